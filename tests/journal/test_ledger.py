"""The ledger: missing logs and missing ends of logs."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.journal.rows import SPAN

from requite.chronicle import WriterRole
from requite.journal import Journal, JournalSettings
from requite.journal.ledger import faults

NAME = bytes(range(8))
LOG = "broker-0001020304050607"
SMALL = JournalSettings(segment_size_bytes=1 << 20)


def write(directory: Path, rows: int = 1) -> list[Path]:
    """Write and close a log; return the paths of its segments."""
    with Journal(directory, WriterRole.BROKER, NAME, settings=SMALL) as journal:
        journal.chronicle.spans += [SPAN] * rows
    return sorted((directory / LOG).glob("*.seg"))


def test_a_closed_log_that_was_read_has_no_faults(tmp_path: Path) -> None:
    write(tmp_path)
    assert list(faults(tmp_path, {LOG})) == []


def test_an_open_log_has_no_faults(tmp_path: Path) -> None:
    with Journal(tmp_path, WriterRole.BROKER, NAME):
        assert list(faults(tmp_path)) == []


def test_a_log_without_its_last_segment_lacks_its_end(tmp_path: Path) -> None:
    *_, last = write(tmp_path, 40_000)
    last.unlink()
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path, copy, ignore=shutil.ignore_patterns("copy"))
    fault = (
        f"the end of the log {LOG} is missing: the records that exist are complete, but the record "
        "of its closing is not among them"
    )
    assert list(faults(tmp_path)) == [fault]
    assert list(faults(copy)) == []  # the next shipping may add the end


def test_a_removed_log_is_missing_unless_it_was_read_to_its_end(tmp_path: Path) -> None:
    write(tmp_path)
    shutil.rmtree(tmp_path / LOG)
    assert list(faults(tmp_path)) == [f"the log {LOG} was started, and is missing"]
    assert list(faults(tmp_path, {LOG})) == []
