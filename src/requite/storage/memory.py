"""An in-memory log for tests and simulations, byte for byte the same as `Log`."""

from __future__ import annotations

from requite.errors import LogGone, LogLocked
from requite.storage.log import Log
from requite.storage.settings import LogSettings


class MemoryFile:
    """Bytes, padded with zeros up to the allocated size."""

    def __init__(self, size: int) -> None:
        self._data = bytearray()
        self._size = size

    def read(self, size: int, offset: int) -> bytes:
        size = max(0, min(size, self._size - offset))
        return bytes(self._data[offset : offset + size]).ljust(size, b"\0")

    def write(self, data: bytes, offset: int) -> None:
        end = offset + len(data)
        self._data.extend(bytes(max(0, offset - len(self._data))))
        self._data[offset:end] = data
        self._size = max(self._size, end)

    def size(self) -> int:
        return self._size

    def age_s(self) -> float:
        return 0.0

    def changed_ns(self) -> int:
        return 0

    def next_data(self, offset: int) -> tuple[int, int] | None:
        return (offset, len(self._data)) if offset < len(self._data) else None

    def set_aside(self, size: int) -> None:
        self._size = max(self._size, size)

    def truncate(self, size: int) -> None:
        del self._data[size:]
        self._size = size

    def sync(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Do nothing: the bytes stay until the file is opened again."""


class MemoryFolder:
    """Files by name; a folder may be reopened as a log any number of times."""

    def __init__(self) -> None:
        self.place = "memory"
        self._files: dict[str, MemoryFile] = {}
        self._locked = False

    def names(self) -> list[str]:
        return list(self._files)

    def open(self, name: str, *, writable: bool = False) -> MemoryFile:
        try:
            return self._files[name]
        except KeyError:
            raise LogGone(f"{self.place}/{name} does not exist (any more)") from None

    def create(self, name: str, size: int) -> MemoryFile:
        file = self._files[name] = MemoryFile(size)
        return file

    def rename(self, old: str, new: str) -> None:
        self._files[new] = self._files.pop(old)

    def remove(self, name: str) -> None:
        self._files.pop(name, None)

    def sync(self) -> None:
        """Nothing to wait for."""

    def lock(self) -> None:
        if self._locked:
            raise LogLocked("the log in memory already has a writer")
        self._locked = True

    def unlock(self) -> None:
        self._locked = False

    def is_locked(self) -> bool:
        return self._locked

    def is_copy(self) -> bool:
        return False

    def shipped(self) -> None:
        """Return None: it is no copy."""


class MemoryLog(Log):
    """A log in memory. To reopen it, pass its `folder` to another `MemoryLog`."""

    def __init__(
        self,
        purpose: bytes,
        settings: LogSettings | None = None,
        folder: MemoryFolder | None = None,
    ) -> None:
        self.folder = folder or MemoryFolder()
        super().__init__(self.folder, purpose, settings or LogSettings())
