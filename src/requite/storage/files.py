"""What a log needs of a disk: a folder of files that can be written at any offset.

`disk` has the real one, `memory` one without a disk, `remote` one that is only read, in a store of
objects. All raise `StorageError` and nothing else.
"""

from __future__ import annotations

from typing import Protocol

from requite.storage.shipped import Shipped


class ReadableFile(Protocol):
    """An open file. It may be longer than what has been written; the rest reads as zeros."""

    def read(self, size: int, offset: int) -> bytes:
        """At most `size` bytes; fewer only at the end of the file."""

    def size(self) -> int: ...

    def age_s(self) -> float:
        """How many seconds ago the file was last written, as it says itself."""

    def changed_ns(self) -> int:
        """When the file was last changed, in nanoseconds since 1970; no copying sets that back."""

    def next_data(self, offset: int) -> tuple[int, int] | None:
        """From where to where, from `offset` on, not all may be zero; None: only zeros follow."""

    def close(self) -> None: ...


class File(ReadableFile, Protocol):
    """An open file that can be written."""

    def write(self, data: bytes, offset: int) -> None:
        """All of `data`, or a `StorageError` and any part of it."""

    def set_aside(self, size: int) -> None:
        """Make the file `size` bytes long, with zeros; `LogFull` where the disk has not as much."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return when everything written so far is on the disk."""


class ReadableFolder(Protocol):
    """A flat folder of files, for one who reads them."""

    @property
    def place(self) -> str:
        """Where it is (`requite.storage.place`)."""

    def names(self) -> list[str]:
        """What is in there now; `LogGone` if there is no folder."""

    def open(self, name: str) -> ReadableFile:
        """An existing file; `LogGone` if there is none."""

    def is_locked(self) -> bool:
        """Whether there is a writer, or nobody can tell."""

    def is_copy(self) -> bool:
        """Whether this is a copy: then the lock tells nothing about who writes the log."""

    def shipped(self) -> Shipped | None:
        """What the copy says about its original; None for anything else."""


class Folder(ReadableFolder, Protocol):
    """A flat folder of files, for the one who writes them."""

    def open(self, name: str, *, writable: bool = False) -> File:
        """An existing file; `LogGone` if there is none."""

    def create(self, name: str, size: int) -> File:
        """A new file of `size` zeros, with that much space set aside; an old one is replaced."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name; a file that had it is gone."""

    def remove(self, name: str) -> None:
        """Remove a file; no error if it is gone already."""

    def sync(self) -> None:
        """Return when files created, renamed and removed so far are so on the disk."""

    def lock(self) -> None:
        """Become the one writer; `LogLocked` if there is one already."""

    def unlock(self) -> None: ...
