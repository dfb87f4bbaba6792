"""Read a log that was shipped to an object store.

A listing of the log's objects is a snapshot: the last segment keeps its size at that moment, even
if a longer one replaces it. Each request for the names of the segments makes a new listing.
"""

from __future__ import annotations

import time
from os import PathLike
from pathlib import Path
from typing import Final

from requite.errors import LogGone
from requite.storage.disk import DiskFolder
from requite.storage.files import ReadableFolder
from requite.storage.place import local_folder, store_url
from requite.storage.shipped import SHIPPED_NAME, SHIPPED_SIZE_MAX, Shipped, decode_shipped
from requite.storage.stores import Store, open_store

_AHEAD_BYTES: Final = 4 << 20  # the size of a request in a sequential read
_SMALL_BYTES: Final = 1 << 10  # the size of a request for a header or an end
_SMALL_MAX: Final = 8

_READ_FROM: Final = "a log is read from"


def open_folder(place: str | PathLike[str]) -> ReadableFolder:
    """Return the folder of a log, on a disk or in a store. Raises `ConfigurationError`."""
    url = store_url(place, _READ_FROM)
    if url is not None:
        root, _, name = url.rpartition("/")
        return RemoteFolder(open_store(root), name)
    is_url = str(place).lower().startswith("file:")
    return DiskFolder(local_folder(place, _READ_FROM) if is_url else Path(place))


class RemoteFile:
    """An object of a store, with its size in the listing."""

    def __init__(self, store: Store, name: str, size: int) -> None:
        self._store = store
        self._name = name
        self._size = size
        self._base = 0
        self._data = b""
        self._small: dict[tuple[int, int], bytes] = {}

    def read(self, size: int, offset: int) -> bytes:
        size = max(0, min(size, self._size - offset))
        at = offset - self._base
        if at >= 0 and at + size <= len(self._data):
            return self._data[at : at + size]
        if (small := self._small.get((size, offset))) is not None:
            return small
        if size <= _SMALL_BYTES:
            return self._read_small(size, offset)
        # A read at the end of the previous one is probably part of a sequential read.
        goes_on = bool(self._data) and 0 <= at <= len(self._data)
        length = max(size, _AHEAD_BYTES) if goes_on else size
        self._base = offset
        self._data = self._store.get(self._name, min(length, self._size - offset), offset)
        return self._data[:size]

    def _read_small(self, size: int, offset: int) -> bytes:
        data = self._store.get(self._name, size, offset) if size else b""
        if len(self._small) < _SMALL_MAX:
            self._small[size, offset] = data
        return data

    def size(self) -> int:
        return self._size

    def age_s(self) -> float:
        return time.time() - self.changed_ns() / 1e9

    def changed_ns(self) -> int:
        return self._store.changed_ns(self._name)

    def next_data(self, offset: int) -> tuple[int, int] | None:
        return (offset, self._size) if offset < self._size else None

    def close(self) -> None:
        """Drop the read-ahead buffer."""
        self._base, self._data = 0, b""


class RemoteFolder:
    """The objects of a log: a copy, which is never written in place."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._files: dict[str, RemoteFile] | None = None
        self._shipped: Shipped | None = None

    @property
    def place(self) -> str:
        return f"{self._store.url}/{self._name}"

    def names(self) -> list[str]:
        self._files = self._listed()
        return list(self._files)

    def _listed(self) -> dict[str, RemoteFile]:
        # The note first: the segments that it describes were written before it, so the list has
        # them.
        self._shipped = self._note()
        sizes = self._store.sizes(self._name)
        if not sizes:
            raise LogGone(f"{self.place} does not exist (any more)")
        before = self._files or {}
        return {name.rpartition("/")[2]: self._file(name, sizes[name], before) for name in sizes}

    def _file(self, name: str, size: int, before: dict[str, RemoteFile]) -> RemoteFile:
        known = before.get(name.rpartition("/")[2])
        is_same = known is not None and known.size() == size
        return known if known is not None and is_same else RemoteFile(self._store, name, size)

    def _note(self) -> Shipped | None:
        try:
            return decode_shipped(self._store.get(f"{self._name}/{SHIPPED_NAME}", SHIPPED_SIZE_MAX))
        except LogGone:
            return None

    def open(self, name: str) -> RemoteFile:
        if self._files is None:
            self._files = self._listed()
        try:
            return self._files[name]
        except KeyError:
            raise LogGone(f"{self.place}/{name} does not exist (any more)") from None

    def is_locked(self) -> bool:
        return False

    def is_copy(self) -> bool:
        return True

    def shipped(self) -> Shipped | None:
        if self._files is None:
            self._files = self._listed()
        return self._shipped
