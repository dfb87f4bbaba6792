"""A disk on which only synced data survives a power cut."""

from __future__ import annotations

from random import Random
from typing import Final

from requite.storage.memory import MemoryFile, MemoryFolder

_PAGE_SIZE: Final = 512
_OLD_NAMES_P: Final = 0.5  # the probability that a power cut restores the folder's synced names


class SimFile(MemoryFile):
    """A file; `safe` is the data that survives a power cut."""

    def __init__(self, size: int, data: bytes = b"", safe: bytes = b"") -> None:
        super().__init__(size)
        self._data += data
        self.safe = safe

    def sync(self) -> None:
        """Make all data safe."""
        self.safe = self.read(self.size(), 0)

    def after_death(self) -> SimFile:
        """Return the file after a kill: all data is there, synced or not."""
        return SimFile(self.size(), self.read(self.size(), 0), self.safe)

    def after_power_cut(self, rng: Random) -> SimFile:
        """Return the file after a power cut: each page in its synced or its new state."""
        now = self.read(self.size(), 0)
        if now == self.safe:
            return SimFile(len(now), now, now)
        size, odds = rng.choice([len(now), len(self.safe)]), rng.random()
        pages = (
            (now if rng.random() < odds else self.safe)[at : at + _PAGE_SIZE].ljust(
                min(_PAGE_SIZE, size - at), b"\0"
            )
            for at in range(0, size, _PAGE_SIZE)
        )
        data = b"".join(pages)[:size]
        return SimFile(size, data, data)


class SimDisk(MemoryFolder):
    """A folder of files; `safe` are the names that survive a power cut."""

    def __init__(self, files: dict[str, SimFile] | None = None) -> None:
        super().__init__()
        self._files = dict(files or {})
        self.safe: dict[str, SimFile] = dict(files or {})

    def create(self, name: str, size: int) -> MemoryFile:
        """Create a file."""
        file = self._files[name] = SimFile(size)
        return file

    def sync(self) -> None:
        """Make all names safe."""
        self.safe = {name: _ours(file) for name, file in self._files.items()}

    def after_death(self) -> SimDisk:
        """Return the disk after a kill."""
        found = {name: _ours(file).after_death() for name, file in self._files.items()}
        disk = SimDisk(found)
        disk.safe = {name: found[name] for name in self.safe if name in found}
        return disk

    def after_power_cut(self, rng: Random) -> SimDisk:
        """Return the disk after a power cut."""
        now = {name: _ours(file) for name, file in self._files.items()}
        found = self.safe if rng.random() < _OLD_NAMES_P else now
        return SimDisk({name: file.after_power_cut(rng) for name, file in found.items()})


def _ours(file: MemoryFile) -> SimFile:
    assert isinstance(file, SimFile)
    return file
