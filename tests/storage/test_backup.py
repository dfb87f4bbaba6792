"""A backup of a log has everything that the log had at one instant."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.storage.helpers import SMALL, payloads, read_all

from requite.errors import LogGone, LogMismatch, StorageError
from requite.storage import Log
from requite.storage.backup import back_up
from requite.storage.disk import DiskFolder
from requite.storage.layout import segment_name

PURPOSE = b"TEST"


def records(folder: Path) -> list[bytes]:
    """Return the payloads of a log, in order."""
    return payloads(read_all(folder))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """A log of three segments, with a writer; the last one is not sealed."""
    with Log.open(tmp_path / "log", purpose=PURPOSE, settings=SMALL) as log:
        for text in (b"a", b"b", b"c"):
            log.commit([text + b"0", text + b"1"])
            if text != b"c":
                log.rotate()
        yield log


def test_a_backup_of_a_log_in_use_is_a_log(log: Log, tmp_path: Path) -> None:
    made = back_up(tmp_path / "log", tmp_path / "copy", purpose=PURPOSE)
    assert (made.segments, made.records, made.damaged) == (3, 6, ())
    assert made.size_bytes == sum(file.stat().st_size for file in (tmp_path / "copy").iterdir())
    log.commit([b"later"])
    with Log.open(tmp_path / "copy", purpose=PURPOSE, settings=SMALL) as copy:
        assert copy.log_id == log.log_id
        assert copy.recovered.cut_bytes == 0
        copy.commit([b"there"])
    assert records(tmp_path / "copy") == [b"a0", b"a1", b"b0", b"b1", b"c0", b"c1", b"there"]
    assert records(tmp_path / "log") == [b"a0", b"a1", b"b0", b"b1", b"c0", b"c1", b"later"]


def test_a_backup_of_a_closed_log_is_equal(log: Log, tmp_path: Path) -> None:
    log.close()
    back_up(tmp_path / "log", tmp_path / "copy", purpose=PURPOSE)
    for file in (tmp_path / "copy").iterdir():
        assert file.read_bytes() == (tmp_path / "log" / file.name).read_bytes()


def compact(log: Log) -> None:
    """Move what is in the oldest segment to a new one, and remove the oldest."""
    oldest = log.sealed[0].number
    moved = payloads(log.reader().read(oldest))
    log.rotate()
    log.commit(moved)
    log.remove(oldest)


def once_after(
    monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], None], *, calls: int
) -> None:
    """Call `act` after so many calls of a method of `DiskFolder`, which the log does not use."""
    method, seen = getattr(DiskFolder, name), 0

    def call(self: DiskFolder, *words: object, **options: object) -> object:
        nonlocal seen
        result = method(self, *words, **options)
        seen += 1
        if seen == calls:
            act()
        return result

    monkeypatch.setattr(DiskFolder, name, call)


@pytest.mark.parametrize(("name", "calls"), [("names", 1), ("open", 1), ("open", 3)])
def test_records_that_compaction_moves_meanwhile_are_in_the_backup(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, calls: int
) -> None:
    once_after(monkeypatch, name, lambda: compact(log), calls=calls)
    back_up(tmp_path / "log", tmp_path / "copy", purpose=PURPOSE)
    assert len(log.sealed) == 2  # it was compacted
    found = records(tmp_path / "copy")
    assert set(found) == {b"a0", b"a1", b"b0", b"b1", b"c0", b"c1"}
    assert len(found) == 6  # none is there twice


def test_records_that_compaction_moves_during_the_copy_are_in_the_backup(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once_after(monkeypatch, "create", lambda: compact(log), calls=1)
    back_up(tmp_path / "log", tmp_path / "copy", purpose=PURPOSE)
    assert log.sealed[0].number == 2
    assert records(tmp_path / "copy") == [b"a0", b"a1", b"b0", b"b1", b"c0", b"c1"]


def test_an_incomplete_write_is_not_in_the_backup(log: Log, tmp_path: Path) -> None:
    active = tmp_path / "log" / segment_name(log.segment)
    end = log.reader().segments()[-1].written_bytes
    with active.open("r+b") as file:
        file.seek(end)
        file.write(b"\xf5RQ\xb1torn")
    made = back_up(tmp_path / "log", tmp_path / "copy", purpose=PURPOSE)
    assert (made.records, made.damaged) == (6, ())
    assert (tmp_path / "copy" / active.name).stat().st_size == end


def test_damage_is_copied_and_reported(log: Log, tmp_path: Path) -> None:
    first = tmp_path / "log" / segment_name(0)
    raw = bytearray(first.read_bytes())
    raw[64 + 24 : 64 + 26] = b"??"  # the payload of the first record
    first.write_bytes(raw)
    made = back_up(tmp_path / "log", tmp_path / "copy", purpose=PURPOSE)
    assert made.records == 5
    assert [(one.segment, one.offset) for one in made.damaged] == [(0, 64)]
    assert (tmp_path / "copy" / first.name).read_bytes() == bytes(raw)


def test_only_its_user_may_read_a_backup(log: Log, tmp_path: Path) -> None:
    back_up(tmp_path / "log", tmp_path / "deep" / "copy", purpose=PURPOSE)
    found = [tmp_path / "deep" / "copy", *(tmp_path / "deep" / "copy").iterdir()]
    assert [stat.S_IMODE(path.stat().st_mode) for path in found] == [0o700] + [0o600] * 3


def test_a_backup_never_replaces_files(log: Log, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "mine").write_text("x")
    with pytest.raises(LogMismatch, match="Back up to a new folder"):
        back_up(tmp_path / "log", tmp_path / "copy", purpose=PURPOSE)
    assert [file.name for file in (tmp_path / "copy").iterdir()] == ["mine"]
    (tmp_path / "copy" / "mine").unlink()
    assert back_up(tmp_path / "log", tmp_path / "copy", purpose=PURPOSE).records == 6


def test_an_interrupted_backup_is_no_backup(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        once_after(patch, "create", fail, calls=2)
        with pytest.raises(KeyboardInterrupt):
            back_up(tmp_path / "log", tmp_path / "copy", purpose=PURPOSE)
    assert not (tmp_path / "copy").exists()
    compact(log)
    back_up(tmp_path / "log", tmp_path / "copy", purpose=PURPOSE)
    assert records(tmp_path / "copy") == [b"b0", b"b1", b"c0", b"c1", b"a0", b"a1"]
    assert not (tmp_path / "copy.new").exists()


@pytest.mark.parametrize(
    ("folder", "purpose", "error", "message"),
    [
        ("log", b"ELSE", LogMismatch, "a log for another purpose"),
        ("empty", PURPOSE, LogMismatch, "no log"),
        ("none", PURPOSE, LogGone, "does not exist"),
    ],
)
def test_a_folder_without_the_log_is_refused(
    log: Log,
    tmp_path: Path,
    folder: str,
    purpose: bytes,
    error: type[StorageError],
    message: str,
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(error, match=message):
        back_up(tmp_path / folder, tmp_path / "copy", purpose=purpose)
    assert not (tmp_path / "copy").exists()
    assert not (tmp_path / "copy.new").exists()
