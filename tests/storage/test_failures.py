"""Disks that are full or fail, and folders that cannot hold a log."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pytest
from tests.storage.helpers import SMALL, damages, open_small, payloads

from requite.errors import LogFailed, LogFull, LogGone, LogMismatch, StorageError
from requite.storage import Log, LogReader, LogSettings, MemoryFolder, MemoryLog, disk
from requite.storage.memory import MemoryFile

KIB = b"k" * 1000


class Disk(MemoryFolder):
    """A disk in memory that raises `fail[operation]` once, and records operations in `done`."""

    def __init__(self) -> None:
        super().__init__()
        self.fail: dict[str, StorageError] = {}
        self.done: list[str] = []

    def check(self, operation: str) -> None:
        self.done.append(operation)
        if operation in self.fail:
            raise self.fail.pop(operation)

    def create(self, name: str, size: int) -> MemoryFile:
        self.check("create")
        file = self._files[name] = File(self, size)
        return file

    def rename(self, old: str, new: str) -> None:
        self.check("rename")
        super().rename(old, new)

    def remove(self, name: str) -> None:
        self.check("remove")
        super().remove(name)

    def sync(self) -> None:
        self.check("sync folder")


class File(MemoryFile):
    """A file on a `Disk`. A failing write stores the first two thirds of its data."""

    def __init__(self, disk: Disk, size: int) -> None:
        super().__init__(size)
        self._disk = disk

    def write(self, data: bytes, offset: int) -> None:
        if "write" in self._disk.fail:
            super().write(data[: len(data) * 2 // 3], offset)
        self._disk.check("write")
        super().write(data, offset)

    def truncate(self, size: int) -> None:
        self._disk.check("truncate")
        super().truncate(size)

    def sync(self) -> None:
        self._disk.check("sync")


SYNCED = LogSettings(segment_size_bytes=4096)


def test_a_batch_is_discarded_if_the_disk_is_full() -> None:
    disk = Disk()
    with MemoryLog(b"TEST", SMALL, disk) as log:
        log.append([b"a"])
        disk.fail["write"] = LogFull("no space")
        with pytest.raises(LogFull):
            log.append([b"lost 1", b"lost 2", b"lost 3"])
        assert payloads(log.reader().tail()) == [b"a"]
        [position] = log.append([b"b"])
        assert position.number == 1
        assert payloads(log.reader().tail()) == [b"a", b"b"]
    assert payloads(log.reader().tail()) == [b"a", b"b"]
    assert damages(log.reader().tail()) == []


@pytest.mark.parametrize("operation", ["create", "write", "rename"])
def test_a_failed_rotation_can_be_retried(operation: str) -> None:
    disk = Disk()
    with MemoryLog(b"TEST", SMALL, disk) as log:
        log.append([b"a"])
        log.rotate()
        log.append([b"b"])
        disk.fail["create" if operation == "write" else operation] = LogFull("no space")
        with pytest.raises(LogFull):
            log.rotate()
        assert payloads(log.reader().tail()) == [b"a", b"b"]
        # If only the rename failed, the old segment is sealed and there is no active segment.
        assert (log.segment, log.next_number) == (2 if operation == "rename" else 1, 2)
        assert log.room() > 3000
        log.append([b"c"])
        log.rotate()
        assert payloads(log.reader().tail()) == [b"a", b"b", b"c"]
        assert damages(log.reader().tail()) == []
    assert len([name for name in disk.names() if name.endswith(".seg")]) == 4 - (
        operation != "rename"
    )
    assert not [name for name in disk.names() if name.endswith(".new")]


class SmallDisk(Disk):
    """A disk on which a file may have at most `size_max` bytes."""

    size_max = 0

    def create(self, name: str, size: int) -> MemoryFile:
        if size > self.size_max:
            raise LogFull("no space")
        return super().create(name, size)


def test_a_smaller_segment_is_created_if_the_disk_has_no_room_for_a_whole_one() -> None:
    disk = SmallDisk()
    disk.size_max = 16 << 20
    with MemoryLog(b"TEST", LogSettings(segment_size_bytes=16 << 20), disk) as log:
        log.append([b"a"])
        disk.size_max = 5 << 20
        log.rotate()
        assert (log.segment, log.room() >> 20) == (1, 3)
        log.append([b"b"])
        disk.size_max = 1 << 20
        log.rotate()
        log.append([b"c"])
        disk.size_max -= 1
        with pytest.raises(LogFull):
            log.rotate()
        log.append([b"d"])
        assert payloads(log.reader().tail()) == [b"a", b"b", b"c", b"d"]
    assert all(info.sealed for info in LogReader.on(disk).segments())


def test_a_failed_write_keeps_the_preallocated_space() -> None:
    disk = Disk()
    with MemoryLog(b"TEST", SMALL, disk) as log:
        disk.fail["write"] = LogFull("no space")
        with pytest.raises(LogFull):
            log.append([b"a"])
        [file] = disk._files.values()
        assert file.size() == 4096


def test_a_segment_that_cannot_be_sealed_stays_active() -> None:
    disk = Disk()
    with MemoryLog(b"TEST", SMALL, disk) as log:
        log.append([b"a"])
        disk.fail["write"] = LogFull("no space")
        with pytest.raises(LogFull):
            log.rotate()
        log.append([b"b"])
        assert log.segment == 0
        assert payloads(log.reader().tail()) == [b"a", b"b"]
        assert damages(log.reader().tail()) == []


@pytest.mark.parametrize("operation", ["sync", "write", "truncate", "rename", "sync folder"])
def test_after_a_disk_error_the_log_refuses_operations_until_it_is_reopened(
    operation: str,
) -> None:
    disk = Disk()
    log = MemoryLog(b"TEST", SYNCED, disk)
    log.commit([b"a"])
    disk.fail[operation] = LogFailed("input/output error")
    with pytest.raises(LogFailed, match="input/output"):
        _use(log)
    for use in (lambda: log.append([b"c"]), log.sync, log.rotate, lambda: log.remove(0)):
        with pytest.raises(LogFailed, match="input/output"):
            use()
    log.close()
    with MemoryLog(b"TEST", SYNCED, disk) as log:
        assert payloads(log.reader().tail())[:1] == [b"a"]
        assert damages(log.reader().tail()) == []
        log.commit([b"c"])
        assert payloads(log.reader().tail())[-1] == b"c"


def _use(log: MemoryLog) -> None:
    log.commit([b"b"])
    log.rotate()


def test_a_log_is_closed_even_if_its_segment_cannot_be_sealed() -> None:
    disk = Disk()
    log = MemoryLog(b"TEST", SYNCED, disk)
    log.commit([b"a"])
    disk.fail["write"] = LogFull("no space")
    with pytest.raises(LogFull):
        log.close()
    log.close()
    with MemoryLog(b"TEST", SYNCED, disk) as log:
        assert payloads(log.reader().tail()) == [b"a"]


def test_a_commit_is_one_write_and_one_sync() -> None:
    disk = Disk()
    with MemoryLog(b"TEST", LogSettings(), disk) as log:
        disk.done.clear()
        log.commit([b"%d" % number for number in range(1000)])
        log.sync()
        assert disk.done == ["write", "sync"]


def test_a_segment_is_renamed_after_its_header_is_synced() -> None:
    disk = Disk()
    with MemoryLog(b"TEST", SYNCED, disk) as log:
        assert disk.done == ["create", "write", "sync", "rename", "sync folder"]
        log.append([b"a"])
        disk.done.clear()
        log.rotate()
        sealed = ["write", "truncate", "sync"]
        assert disk.done == ["create", "write", "sync", *sealed, "rename", "sync folder"]
        disk.done.clear()
        log.remove(0)
        assert disk.done == ["remove", "sync folder"]


def test_with_sync_disabled_no_operation_syncs() -> None:
    disk = Disk()
    with MemoryLog(b"TEST", SMALL, disk) as log:
        log.commit([b"a"])
        log.rotate()
        log.remove(0)
    MemoryLog(b"TEST", SMALL, disk).close()
    assert not {"sync", "sync folder"} & {*disk.done}


def test_an_unfinished_segment_is_removed_on_opening() -> None:
    disk = Disk()
    disk.fail["rename"] = LogFull("no space")
    with pytest.raises(LogFull):
        MemoryLog(b"TEST", SMALL, disk)
    assert [name for name in disk.names() if name.endswith(".new")]
    MemoryLog(b"TEST", SMALL, disk).close()
    assert not [name for name in disk.names() if name.endswith(".new")]


def test_a_folder_with_other_files_is_refused_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(LogMismatch, match=r"thesis\.txt"):
        open_small(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("inside", ["", "log"])
def test_the_path_of_a_file_is_refused(tmp_path: Path, inside: str) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(LogMismatch, match="is a file"):
        open_small(tmp_path / "file" / inside)
    assert (tmp_path / "file").read_text() == "precious"


def test_missing_folders_are_created(tmp_path: Path) -> None:
    open_small(tmp_path / "a" / "b" / "log").close()
    assert (tmp_path / "a" / "b" / "log" / "lock").exists()


def test_a_folder_that_cannot_be_created_is_an_error() -> None:
    with pytest.raises(StorageError, match="cannot create the folder"):
        open_small(Path("/proc/self/requite"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_an_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(LogFailed, match="permissions"):
        open_small(tmp_path)


def test_a_removed_folder_is_an_error(tmp_path: Path) -> None:
    log = open_small(tmp_path / "log")
    log.append([b"a"])
    for entry in (tmp_path / "log").iterdir():
        entry.unlink()
    (tmp_path / "log").rmdir()
    log.append([b"b"])
    with pytest.raises(LogGone):
        log.rotate()
    with pytest.raises(LogGone):
        log.append([b"c"])
    log.close()


def test_no_segment_is_created_in_a_folder_that_replaced_the_log(
    tmp_path: Path,
) -> None:
    log = open_small(tmp_path / "log")
    log.commit([KIB])
    (tmp_path / "log").rename(tmp_path / "away")
    (tmp_path / "log").mkdir()
    with pytest.raises(LogGone, match="replaced by another one"):
        log.rotate()
    assert list((tmp_path / "log").iterdir()) == []
    log.close()


@pytest.mark.parametrize("other", ["no log", "another log"])
def test_only_the_log_with_the_given_id_is_opened(tmp_path: Path, other: str) -> None:
    with open_small(tmp_path / "log") as log:
        log_id = log.log_id
        log.commit([KIB])
    (tmp_path / "log").rename(tmp_path / "away")
    (tmp_path / "log").mkdir()
    if other == "another log":
        with open_small(tmp_path / "log") as log:
            log.commit([KIB])
    before = sorted((tmp_path / "log").glob("*.seg"))
    with pytest.raises(LogMismatch, match="another log, or none"):
        Log.open(tmp_path / "log", purpose=b"TEST", settings=SMALL, log_id=log_id)
    assert sorted((tmp_path / "log").glob("*.seg")) == before
    with Log.open(tmp_path / "away", purpose=b"TEST", settings=SMALL, log_id=log_id) as log:
        assert log.log_id == log_id


def test_a_commit_to_a_removed_file_fails(tmp_path: Path) -> None:
    log = open_small(tmp_path / "log", sync=True)
    log.commit([b"kept"])
    shutil.rmtree(tmp_path / "log")
    with pytest.raises(LogFailed, match="has been removed"):
        log.commit([b"lost"])
    with pytest.raises(LogFailed, match="has been removed"):
        log.append([b"refused"])
    log.close()


def test_recovered_damage_is_reported_even_if_opening_fails() -> None:
    """The next open finds no torn tail, so only this error can report it."""
    disk = Disk()
    log = MemoryLog(b"TEST", SMALL, disk)
    log.append([b"whole"])
    log.append([b"torn"])
    [file] = disk._files.values()
    file._data[-1] ^= 1
    disk.unlock()  # as if the writer was killed
    disk.fail["create"] = LogFull("no space")
    with pytest.raises(LogFull, match=r"no space \(before that: \d+ bytes at the end") as caught:
        MemoryLog(b"TEST", SMALL, disk)
    assert caught.value.cut_bytes > 0
    with MemoryLog(b"TEST", SMALL, disk) as log:
        assert log.recovered.cut_bytes == 0
        assert payloads(log.reader().tail()) == [b"whole"]


# --- systems without fdatasync --------------------------------------------------------------------
def test_a_system_without_fdatasync_syncs_the_cache_of_the_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, ...]] = []
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda *arguments: synced.append(arguments))
    with (tmp_path / "file").open("wb") as file:
        disk.DiskFile(tmp_path / "file", file.fileno()).sync()
        assert synced == [(file.fileno(), 51)]
