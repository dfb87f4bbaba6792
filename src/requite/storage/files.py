"""The interface between a log and a disk: a folder of files, written at any offset.

Implementations: `disk`, `memory`, and `remote` (read only, in an object store). They raise no other
errors than `StorageError`.
"""

from __future__ import annotations

from typing import Protocol

from requite.storage.shipped import Shipped


class ReadableFile(Protocol):
    """An open file. It may be longer than its written part; the rest reads as zeros."""

    def read(self, size: int, offset: int) -> bytes:
        """Return at most `size` bytes; fewer only at the end of the file."""

    def size(self) -> int: ...

    def age_s(self) -> float:
        """Return the seconds since the modification time of the file."""

    def changed_ns(self) -> int:
        """Return the change time in nanoseconds since 1970, which copying does not preserve."""

    def next_data(self, offset: int) -> tuple[int, int] | None:
        """Return the next range from `offset` that may have other bytes than zeros, or None."""

    def close(self) -> None: ...


class File(ReadableFile, Protocol):
    """An open file that can be written."""

    def write(self, data: bytes, offset: int) -> None:
        """Write `data`. After a `StorageError` any part of it may have been written."""

    def set_aside(self, size: int) -> None:
        """Extend the file with zeros to `size` bytes. Raises `LogFull` if the disk lacks space."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Wait until all written data are on the disk."""


class ReadableFolder(Protocol):
    """A folder of files, without subfolders, for a reader."""

    @property
    def place(self) -> str:
        """The place of the folder (`requite.storage.place`)."""

    def names(self) -> list[str]:
        """Return the names of the files. Raises `LogGone` if the folder does not exist."""

    def open(self, name: str) -> ReadableFile:
        """Open an existing file. Raises `LogGone` if it does not exist."""

    def is_locked(self) -> bool:
        """Whether the log has a writer, or that is unknown."""

    def is_copy(self) -> bool:
        """Whether this is a copy, whose lock file does not show whether there is a writer."""

    def shipped(self) -> Shipped | None:
        """Return what a copy records about its original; None if this is no copy."""


class Folder(ReadableFolder, Protocol):
    """A folder of files, without subfolders, for the writer."""

    def open(self, name: str, *, writable: bool = False) -> File:
        """Open an existing file. Raises `LogGone` if it does not exist."""

    def create(self, name: str, size: int) -> File:
        """Create a file of `size` zeros, allocated on the disk. It replaces an existing file."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file. It replaces an existing file of the new name."""

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""

    def sync(self) -> None:
        """Wait until all created, renamed and removed files are so on the disk."""

    def lock(self) -> None:
        """Become the only writer. Raises `LogLocked` if there is another one."""

    def unlock(self) -> None: ...
