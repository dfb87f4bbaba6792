"""The ledger: what nobody would come across, because it is not there."""

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
    """Write a log that is closed in good order; return its segments."""
    with Journal(directory, WriterRole.BROKER, NAME, settings=SMALL) as journal:
        journal.chronicle.spans += [SPAN] * rows
    return sorted((directory / LOG).glob("*.seg"))


def test_a_log_that_was_closed_is_whole_to_those_who_have_read_it(tmp_path: Path) -> None:
    write(tmp_path)
    assert list(faults(tmp_path, {LOG})) == []


def test_a_log_that_is_written_is_whole(tmp_path: Path) -> None:
    with Journal(tmp_path, WriterRole.BROKER, NAME):
        assert list(faults(tmp_path)) == []


def test_a_log_without_its_last_segment_has_lost_its_end(tmp_path: Path) -> None:
    *_, last = write(tmp_path, 40_000)
    last.unlink()
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path, copy, ignore=shutil.ignore_patterns("copy"))
    told = (
        f"the end of the log {LOG} is missing: the records that exist are complete, but the record "
        "of its closing is not among them"
    )
    assert list(faults(tmp_path)) == [told]
    assert list(faults(copy)) == []  # it may be copied once more


def test_a_log_that_is_gone_is_missed_unless_it_was_read_to_its_end(tmp_path: Path) -> None:
    write(tmp_path)
    shutil.rmtree(tmp_path / LOG)
    assert list(faults(tmp_path)) == [f"the log {LOG} was started, and is missing"]
    assert list(faults(tmp_path, {LOG})) == []
