"""Modes of created files and folders: only their user can read them, even under umask 0."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.journal.rows import SPAN
from tests.storage.helpers import SMALL, payloads

from requite.chronicle import WriterRole
from requite.cli.show.audit import Archive
from requite.dedup.policy import DedupPolicy
from requite.dedup.store import LogStore
from requite.journal import Journal, JournalSettings
from requite.spark.marker import FORMAT, MARKER, OURS, save
from requite.storage import Log
from requite.storage.private import is_exposed
from requite.storage.stores import FolderStore
from requite.titanic.store import StoreSettings, open_store

NAME = bytes(range(8))
TITANIC = StoreSettings(segment_size_bytes=1 << 20)


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """Set umask 0, which forbids nothing."""
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(root: Path) -> list[str]:
    """Return the files and folders in `root` that group or others may use, with their modes."""
    found = [(path, path.stat().st_mode & 0o777) for path in sorted(root.rglob("*"))]
    assert found
    return [f"{path.relative_to(root)} {mode:04o}" for path, mode in found if mode & 0o077]


def test_a_log_and_the_folders_above_it_are_closed(tmp_path: Path) -> None:
    with Log.open(tmp_path / "a" / "b" / "log", purpose=b"TEST", settings=SMALL) as log:
        log.commit([b"x"])
        log.rotate()
    assert len([*(tmp_path / "a" / "b" / "log").iterdir()]) == 3
    assert open_to_others(tmp_path) == []


def test_a_journal_and_its_copy_are_closed(tmp_path: Path) -> None:
    settings = JournalSettings(ship_to=str(tmp_path / "mnt" / "copy"))
    folder = tmp_path / "var" / "journal"
    with Journal(folder, WriterRole.BROKER, NAME, settings=settings) as journal:
        journal.chronicle.spans.append(SPAN)
    assert (tmp_path / "mnt" / "copy" / ".logs").is_dir()
    assert open_to_others(tmp_path) == []


def test_the_umask_decides_who_can_read_a_lake(tmp_path: Path) -> None:
    os.umask(0o027)
    save(str(tmp_path / "lake"), {"format": FORMAT})
    paths = [tmp_path / "lake", tmp_path / "lake" / OURS, tmp_path / "lake" / MARKER]
    assert [path.stat().st_mode & 0o777 for path in paths] == [0o750, 0o750, 0o640]


def test_a_draft_of_an_older_version_does_not_pass_its_mode_on(tmp_path: Path) -> None:
    (tmp_path / "one.new").write_bytes(b"half")
    FolderStore(tmp_path).put("one", b"whole")
    assert (tmp_path / "one").read_bytes() == b"whole"
    assert open_to_others(tmp_path) == []


def test_titanic_and_dedup_are_closed_and_do_not_warn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), closing(open_store(tmp_path / "titanic", TITANIC)):
        LogStore(tmp_path / "dedup", DedupPolicy(durable=True))._log.close()
    assert open_to_others(tmp_path) == []
    assert caplog.messages == []


@pytest.mark.parametrize("kind", ["titanic", "dedup"])
def test_an_existing_folder_keeps_its_mode_and_is_named_in_a_warning(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / kind
    folder.mkdir(0o755)
    with caplog.at_level(logging.WARNING):
        if kind == "titanic":
            open_store(folder, TITANIC).close()
        else:
            LogStore(folder, DedupPolicy(durable=True))._log.close()
    assert folder.stat().st_mode & 0o777 == 0o755
    assert open_to_others(folder) == []
    (message,) = caplog.messages
    assert f"chmod -R go= {folder}" in message
    assert "0755" in message


def test_a_log_of_an_older_version_is_continued(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with Log.open(folder, purpose=b"TEST", settings=SMALL) as log:
        log.commit([b"old"])
    for path in folder.iterdir():
        path.chmod(0o644)
    with Log.open(folder, purpose=b"TEST", settings=SMALL) as log:
        log.commit([b"new"])
        assert payloads(log.reader().tail()) == [b"old", b"new"]
    assert [line.partition(" ")[2] for line in open_to_others(folder)] == ["0644", "0644"]


def test_the_archive_of_a_demo_is_closed(tmp_path: Path) -> None:
    Archive(tmp_path / "runs" / "today")
    assert open_to_others(tmp_path) == []


# --- files with secrets ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("mode", "owner", "is_refused"),
    [
        (0o600, 1000, False),
        (0o400, 1000, False),
        (0o640, 1000, True),
        (0o440, 0, False),  # mounted by systemd or Kubernetes
        (0o460, 0, True),
        (0o444, 0, True),
        (0o604, 1000, True),
    ],
)
def test_a_secret_is_exposed_unless_only_this_process_may_read_it(
    mode: int, owner: int, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    status = os.stat_result((stat.S_IFREG | mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))
    assert is_exposed(status) == is_refused
