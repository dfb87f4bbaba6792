"""Power cuts between any two operations: each unsynced page may be lost or survive."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.helpers import damages

from requite.storage import LogSettings, MemoryFolder, MemoryLog, Record
from requite.storage.memory import MemoryFile

PAGE_SIZE = 512
SYNCED = LogSettings(segment_size_bytes=4096)


class PowerCut(BaseException):
    """A power cut; not an `Exception`, so that no handler of errors catches it."""


class Disk(MemoryFolder):
    """A disk that keeps synced data in `safe`, and raises `PowerCut` after `stop_at` operations."""

    def __init__(self) -> None:
        super().__init__()
        self.stop_at = -1
        self.operations = 0
        self.safe: dict[str, File] = {}

    def operation(self) -> None:
        if self.operations == self.stop_at:
            raise PowerCut
        self.operations += 1

    def create(self, name: str, size: int) -> MemoryFile:
        self.operation()
        file = self._files[name] = File(self, size)
        return file

    def rename(self, old: str, new: str) -> None:
        self.operation()
        super().rename(old, new)

    def remove(self, name: str) -> None:
        self.operation()
        super().remove(name)

    def sync(self) -> None:
        self.operation()
        self.safe = dict(self._files)  # type: ignore[arg-type]

    def after_power_cut(self, random: Random) -> Disk:
        """Return the disk after a power cut: a random part of the unsynced changes is lost."""
        found = Disk()
        entries = random.choice([self.safe, self._files])
        for name, file in entries.items():
            assert isinstance(file, File)
            data = file.after_power_cut(random)
            found._files[name] = File(found, len(data), data, data)
        found.safe = dict(found._files)  # type: ignore[arg-type]
        return found

    def after_death(self) -> Disk:
        """Return the disk after a kill: every write is there, and unsynced ones remain unsynced."""
        found = Disk()
        for name, file in self._files.items():
            assert isinstance(file, File)
            found._files[name] = File(found, file.size(), file.read(file.size(), 0), file.safe)
        found.safe = {n: found._files[n] for n in self.safe if n in found._files}  # type: ignore[misc]
        return found


class File(MemoryFile):
    """A file whose content survives a power cut once it is synced."""

    def __init__(self, disk: Disk, size: int, data: bytes = b"", safe: bytes = b"") -> None:
        super().__init__(size)
        self._data += data
        self._disk = disk
        self.safe = safe

    def write(self, data: bytes, offset: int) -> None:
        self._disk.operation()
        super().write(data, offset)

    def truncate(self, size: int) -> None:
        self._disk.operation()
        super().truncate(size)

    def sync(self) -> None:
        self._disk.operation()
        self.safe = self.read(self.size(), 0)

    def after_power_cut(self, random: Random) -> bytes:
        now = self.read(self.size(), 0)
        size = random.choice([len(now), len(self.safe)])
        odds = random.random()
        return b"".join(
            (now if random.random() < odds else self.safe)[at : at + PAGE_SIZE].ljust(
                min(PAGE_SIZE, size - at), b"\0"
            )
            for at in range(0, size, PAGE_SIZE)
        )[:size]


class History:
    """The records that were appended to a log and those it acknowledged, over several runs."""

    def __init__(self) -> None:
        self.appended: dict[int, set[bytes]] = {}
        self.acknowledged: dict[int, bytes] = {}

    def run(self, disk: Disk, random: Random) -> None:
        """Append, sync and rotate at random, for up to 11 batches or until the disk stops."""
        with MemoryLog(b"TEST", SYNCED, disk) as log:
            pending = self.records(log)  # recovery syncs the records it finds
            self.acknowledged.update(pending)
            for _ in range(random.randrange(12)):
                batch = [random.randbytes(random.randrange(700)) for _ in range(4)]
                for number, payload in enumerate(batch, log.next_number):
                    self.appended.setdefault(number, set()).add(payload)
                pending |= enumerate(batch, log.next_number)
                log.append(batch)
                if random.random() < 0.4:
                    log.sync()
                    self.acknowledged.update(pending)
                if random.random() < 0.2:
                    log.rotate()

    def records(self, log: MemoryLog) -> dict[int, bytes]:
        items = list(log.reader().tail())
        return {item.number: bytes(item.payload) for item in items if isinstance(item, Record)}

    def assert_survived(self, disk: Disk) -> None:
        with MemoryLog(b"TEST", SYNCED, disk) as log:
            records = self.records(log)
        assert self.acknowledged.items() <= records.items()
        assert all(payload in self.appended[number] for number, payload in records.items())
        assert sorted(records) == list(records)


stops = st.lists(st.tuples(st.integers(0, 60), st.booleans()), min_size=1, max_size=4)


@given(seed=st.integers(0, 2**32), stops=stops)
def test_acknowledged_records_survive_power_cuts(seed: int, stops: list[tuple[int, bool]]) -> None:
    random, history, disk = Random(seed), History(), Disk()
    for stop_at, power_is_cut in stops:
        disk.stop_at = stop_at
        with suppress(PowerCut):
            history.run(disk, random)
        history.assert_survived(disk.after_power_cut(random))
        disk = disk.after_power_cut(random) if power_is_cut else disk.after_death()


@pytest.mark.parametrize("sync", [True, False])
def test_a_process_may_be_killed_between_any_two_operations(sync: bool) -> None:
    """The operating system holds all completed writes, so none is lost and none is damaged."""
    settings, disk = LogSettings(segment_size_bytes=4096, sync=sync), Disk()
    finished = False
    while not finished:
        files = Disk()
        files.stop_at = disk.stop_at = disk.stop_at + 1
        written: list[bytes] = []
        try:
            for life in range(2):
                with MemoryLog(b"TEST", settings, files) as log:
                    for number in range(3):
                        log.append([b"%d %d" % (life, number)])
                        written.append(b"%d %d" % (life, number))
                        log.rotate()
            finished = True
        except PowerCut:
            pass
        with MemoryLog(b"TEST", settings, files.after_death()) as log:
            items = list(log.reader().tail())
            assert damages(items) == []
            found = [bytes(item.payload) for item in items if isinstance(item, Record)]
            assert found[: len(written)] == written
            assert len(found) <= len(written) + 1
            assert log.next_number == len(found)
    assert disk.stop_at > 20
