"""A disk that loses unsynced data, stops at any operation, fills up, and flips bits."""

from __future__ import annotations

from random import Random
from typing import Final

from requite.errors import LogFailed, LogFull
from requite.storage import Log
from requite.storage.layout import HEADER_SIZE
from requite.storage.memory import MemoryFile, MemoryFolder

PAGE_SIZE: Final = 512  # the disk writes a page completely or not at all


class Killed(BaseException):
    """The process is killed here; no code may catch this."""


class SimLog(Log):
    """A log with reproducible bytes: no clock, no random id."""

    def _now_us(self) -> int:
        return 0

    def _new_id(self) -> bytes:
        return b"a simulated log!"


class SimDisk(MemoryFolder):
    """A folder. `stop_at`: the operation before which the process is killed (-1: none)."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0
        self.stop_at = -1
        self.is_full = False
        self.fails_next_sync = False
        self._safe: dict[str, SimFile] = {}

    def operation(self) -> None:
        """Count an operation; raise `Killed` if the process is to be killed before it."""
        if self.operations == self.stop_at:
            raise Killed
        self.operations += 1

    def check_space(self) -> None:
        """Raise `LogFull` while the disk is full."""
        if self.is_full:
            raise LogFull("no space is left on the simulated disk")

    def create(self, name: str, size: int) -> MemoryFile:
        self.operation()
        self.check_space()
        file = self._files[name] = SimFile(self, size)
        return file

    def rename(self, old: str, new: str) -> None:
        self.operation()
        super().rename(old, new)

    def remove(self, name: str) -> None:
        self.operation()
        super().remove(name)

    def sync(self) -> None:
        self.operation()
        self._safe = dict(self.files)

    @property
    def files(self) -> dict[str, SimFile]:
        """All files by name, with unsynced data."""
        return {name: file for name, file in self._files.items() if isinstance(file, SimFile)}

    def after_death(self) -> SimDisk:
        """Return the disk after a kill: all data is there, synced or not."""
        found = SimDisk()
        for name, file in self.files.items():
            found._files[name] = SimFile(found, file.size(), file.data(), file.safe)
        found._safe = {name: file for name, file in found.files.items() if name in self._safe}
        return found

    def after_power_cut(self, random: Random) -> SimDisk:
        """Return the disk after a power cut: any part of the unsynced data is lost."""
        found = SimDisk()
        entries = random.choice([self._safe, self.files])
        for name, file in entries.items():
            data = file.after_power_cut(random)
            found._files[name] = SimFile(found, len(data), data, data)
        found._safe = found.files
        return found

    def flip(self, random: Random) -> bool:
        """Flip bits of one byte among the records of a file; return whether there was one.

        A reader can correct a single bit. Headers are not flipped: the store refuses a segment with
        a damaged header and no intact record, until an operator acts.
        """
        written = [file for file in self.files.values() if file.data()[HEADER_SIZE:].strip(b"\0")]
        if not written:
            return False
        random.choice(written).flip(random)
        return True


class SimFile(MemoryFile):
    """A file whose pages survive a power cut once it is synced."""

    def __init__(self, disk: SimDisk, size: int, data: bytes = b"", safe: bytes = b"") -> None:
        super().__init__(size)
        self._data += data
        self._disk = disk
        self.safe = safe

    def data(self) -> bytes:
        """The content, with unsynced data."""
        return self.read(self.size(), 0)

    def write(self, data: bytes, offset: int) -> None:
        self._disk.operation()
        super().write(data, offset)

    def set_aside(self, size: int) -> None:
        self._disk.check_space()
        super().set_aside(size)

    def truncate(self, size: int) -> None:
        self._disk.operation()
        super().truncate(size)

    def sync(self) -> None:
        self._disk.operation()
        if self._disk.fails_next_sync:
            self._disk.fails_next_sync = False
            raise LogFailed("the simulated disk failed to sync")
        self.safe = self.data()

    def after_power_cut(self, random: Random) -> bytes:
        """Return each page as it is now or as it was synced, with a drawn probability."""
        now = self.data()
        size = random.choice([len(now), len(self.safe)])
        odds = random.choice([0.0, random.random(), 1.0])
        pages = []
        for at in range(0, size, PAGE_SIZE):
            source = now if random.random() < odds else self.safe
            pages.append(source[at : at + PAGE_SIZE].ljust(min(PAGE_SIZE, size - at), b"\0"))
        return b"".join(pages)[:size]

    def flip(self, random: Random) -> None:
        """Flip one bit of a byte, or several; also in the synced data."""
        at = random.randrange(HEADER_SIZE, len(self.data().rstrip(b"\0")))
        bits = random.choice((1 << random.randrange(8), random.randrange(1, 256)))
        self._data[at] ^= bits
        if at < len(self.safe):
            self.safe = self.safe[:at] + bytes([self.safe[at] ^ bits]) + self.safe[at + 1 :]
