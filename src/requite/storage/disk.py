"""Files and folders of the operating system."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from requite.errors import LogFailed, LogFull, LogGone, LogLocked, LogMismatch, StorageError
from requite.storage.private import FILE_MODE, create_file, make_folder
from requite.storage.shipped import SHIPPED_NAME, SHIPPED_SIZE_MAX, Shipped, decode_shipped

LOCK_NAME: Final = "lock"
_NODE_SIZE_MAX: Final = 255
_LOCK_SIZE_MAX: Final = 512  # process id, device, number and machine
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def as_storage_error(what: str, path: Path) -> Iterator[None]:
    """Convert errors of the system to `StorageError`s."""
    try:
        yield
    except OSError as error:
        raise _storage_error(what, path, error) from error


def _storage_error(what: str, path: Path, error: OSError) -> StorageError:
    cause = error.strerror or str(error)
    if error.errno in _NO_SPACE:
        return LogFull(
            f"cannot {what} {path}: {cause}. Free some space: limit the size of a journal"
            " (--journal-retain), or forget requests of a Titanic."
        )
    if error.errno == errno.ENOENT:
        return LogGone(f"cannot {what} {path}: it does not exist (any more).")
    return LogFailed(f"cannot {what} {path}: {cause}. Check the disk and the permissions.")


class DiskFile:
    """A file, by its descriptor.

    Files are read, not mapped into memory: access to a mapped page that the writer truncates when
    it seals the segment, or that the disk cannot read, kills the process with SIGBUS.
    """

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def read(self, size: int, offset: int) -> bytes:
        with as_storage_error("read", self.path):
            return os.pread(self._descriptor, size, offset)

    def write(self, data: bytes, offset: int) -> None:
        with as_storage_error("write", self.path):
            written = os.pwrite(self._descriptor, data, offset)
            while written < len(data):  # interrupted by a signal, or the disk is almost full
                written += os.pwrite(self._descriptor, data[written:], offset + written)

    def size(self) -> int:
        with as_storage_error("look at", self.path):
            return os.fstat(self._descriptor).st_size

    def age_s(self) -> float:
        with as_storage_error("look at", self.path):
            return time.time() - os.fstat(self._descriptor).st_mtime

    def changed_ns(self) -> int:
        with as_storage_error("look at", self.path):
            return os.fstat(self._descriptor).st_ctime_ns

    def next_data(self, offset: int) -> tuple[int, int] | None:
        """Skip preallocated space that was never written, if the system reports it."""
        try:
            start = os.lseek(self._descriptor, offset, os.SEEK_DATA)
            return start, os.lseek(self._descriptor, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            return offset, self.size()

    def set_aside(self, size: int) -> None:
        """Extend the file to `size` bytes, and allocate them on the disk."""
        with as_storage_error(f"set {size} bytes aside for", self.path):
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._descriptor, 0, size)
            else:  # macOS
                os.ftruncate(self._descriptor, size)

    def truncate(self, size: int) -> None:
        with as_storage_error("cut", self.path):
            os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        try:
            _sync_data(self._descriptor)
        except OSError as error:  # also for ENOSPC: written data are lost, not refused
            raise LogFailed(
                f"cannot sync {self.path}: {error.strerror}. Records that were written since"
                " the last sync may be lost. Check the disk, and open the log again."
            ) from error
        if not os.fstat(self._descriptor).st_nlink:  # a removed file exists until this process ends
            raise LogFailed(
                f"{self.path.parent}, or the file in it that is being written, has been"
                " removed. The records in that file are lost when this process ends. Open the"
                " log again."
            )

    def close(self) -> None:
        os.close(self._descriptor)


class DiskFolder:
    """A folder, and the lock file in it, whose holder is the only writer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None
        self._locked: tuple[int, int] | None = None  # device and inode of the folder

    @property
    def place(self) -> str:
        return str(self.path)

    def make(self) -> None:
        """Create the folder, unless it exists."""
        if self.path.is_dir():
            return
        try:
            with as_storage_error("create the folder", self.path):
                make_folder(self.path)
                sync_folder(self.path.parent)
        except LogFailed as error:
            if not isinstance(error.__cause__, FileExistsError | NotADirectoryError):
                raise
            raise LogMismatch(
                f"{self.path}, or a folder above it, is a file. A log needs a folder."
            ) from None

    def names(self) -> list[str]:
        with as_storage_error("list", self.path):
            return os.listdir(self.path)

    def open(self, name: str, *, writable: bool = False) -> DiskFile:
        path = self.path / name
        flags = os.O_RDWR if writable else os.O_RDONLY
        with as_storage_error("open", path):
            return DiskFile(path, os.open(path, flags | os.O_CLOEXEC))

    def create(self, name: str, size: int) -> DiskFile:
        path = self.path / name
        with as_storage_error("create", path):
            if self._locked is not None and _device_and_inode(self.path) != self._locked:
                raise LogGone(
                    f"cannot create {path}: the log's folder has been replaced by another one. "
                    "Check whether its disk is mounted."
                )
            file = DiskFile(path, create_file(path))
        try:
            file.set_aside(size)
        except StorageError:
            file.close()
            self.remove(name)
            raise
        return file

    def rename(self, old: str, new: str) -> None:
        with as_storage_error("rename", self.path / old):
            os.replace(self.path / old, self.path / new)

    def remove(self, name: str) -> None:
        with as_storage_error("remove", self.path / name):
            (self.path / name).unlink(missing_ok=True)

    def sync(self) -> None:
        with as_storage_error("sync", self.path):
            sync_folder(self.path)

    def lock(self) -> None:
        path = self.path / LOCK_NAME
        with as_storage_error("open", path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            _lock(descriptor, path)
            with as_storage_error("look at", self.path):
                self._locked = _device_and_inode(self.path)
        except StorageError:
            os.close(descriptor)
            raise
        self._lock = descriptor

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = self._locked = None

    def is_locked(self) -> bool:
        """Take a shared lock briefly; a writer that opens the log at that moment has to retry."""
        try:
            descriptor = os.open(self.path / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # a copy of the segments alone
            return False
        except OSError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:  # the lock is held, or the file system has no locks
            return True
        finally:
            os.close(descriptor)
        return False

    def is_copy(self) -> bool:
        """Whether the lock file is a copy: the original contains its own identity."""
        try:
            descriptor = os.open(self.path / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # a copy of the segments alone
            return True
        try:
            told = os.pread(descriptor, _LOCK_SIZE_MAX, 0).split()
            return len(told) > 1 and told[1:] != _identity(descriptor).split()
        finally:
            os.close(descriptor)

    def shipped(self) -> Shipped | None:
        if not self.is_copy():
            return None
        try:
            with (self.path / SHIPPED_NAME).open("rb") as file:
                return decode_shipped(file.read(SHIPPED_SIZE_MAX))
        except OSError:
            return None


def _device_and_inode(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _lock(descriptor: int, path: Path) -> None:
    """Take the lock, and write the process id and the identity of the file into it."""
    with as_storage_error("lock", path):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            told = os.pread(descriptor, _LOCK_SIZE_MAX, 0).decode("ascii", "replace").split()
            holder = told[0] if told else "unknown"
            raise LogLocked(
                f"{path.parent} is in use by process {holder}, which writes a log there. Stop"
                " that process, or use another folder."
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d %b\n" % (os.getpid(), _identity(descriptor)), 0)


def _identity(descriptor: int) -> bytes:
    """Return the identity of a file, which no copy has: inode, device and machine."""
    found = os.fstat(descriptor)
    return b"%d:%d %b" % (found.st_dev, found.st_ino, platform.node().encode()[:_NODE_SIZE_MAX])


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_data(descriptor: int) -> None:
    """Sync the data, and the metadata that reading them needs, to the disk."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:  # macOS, whose `fsync` leaves the data in the drive's cache
        fcntl.fcntl(descriptor, getattr(fcntl, "F_FULLFSYNC"))  # noqa: B009 - not on Linux
