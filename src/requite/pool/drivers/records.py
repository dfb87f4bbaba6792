"""Records of worker processes: a folder with one file per worker, locked while the worker runs.

The driver opens and locks (`flock`) the file before the process starts, which inherits it; the
kernel releases the lock when the process and all its children have exited. So after a crash of the
manager, or a takeover, the next manager finds the workers, and never mistakes a foreign process
with a reused id for one.

A file has two lines: the worker's record as JSON, and its process id. The process writes the second
line itself before it executes the worker, so it is missing only for a moment.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from requite.storage.private import create_file, make_folder

_SUFFIX: Final = ".worker"
_FRESH: Final = ".new"
_ABANDONED_S: Final = 60.0  # age of a file that its manager never locked


@dataclass(frozen=True, slots=True)
class Record:
    """One worker: its id, the key and version of its group, and its process id (0: unknown yet)."""

    worker_id: str
    key: str
    version: str
    pid: int = 0


class Records:
    """The record files of one pool and instance."""

    def __init__(self, folder: Path) -> None:
        self._folder: Final = folder

    def living(self) -> list[Record]:
        """Return the running workers, and remove the files of those that have exited."""
        make_folder(self._folder)
        self._drop_abandoned()
        found = (self._read(path) for path in sorted(self._folder.glob(f"*{_SUFFIX}")))
        return [record for record in found if record is not None]

    def find(self, worker_id: str) -> Record | None:
        """Return a worker, or None if it does not run."""
        return self._read(self.path(worker_id))

    def forget(self, worker_id: str) -> None:
        """Remove the file of an exited worker whose children still hold the lock."""
        self.path(worker_id).unlink(missing_ok=True)

    def path(self, worker_id: str) -> Path:
        """Return the path of a worker's file."""
        return self._folder / f"{worker_id}{_SUFFIX}"

    @contextmanager
    def entered(self, record: Record) -> Iterator[int]:
        """Record a worker that is about to start; yield the locked file that it must inherit.

        The file gets its name after it is locked, so that it never looks like an exited worker's.
        """
        make_folder(self._folder)
        fresh = self.path(record.worker_id).with_suffix(_FRESH)
        file = create_file(fresh, os.O_APPEND)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            what = {name: value for name, value in asdict(record).items() if name != "pid"}
            os.write(file, json.dumps(what).encode() + b"\n")
            fresh.rename(self.path(record.worker_id))
            yield file
        finally:
            os.close(file)

    def _read(self, path: Path) -> Record | None:
        try:
            file = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            if _is_locked(file):
                return _parse(file)
            path.unlink(missing_ok=True)
            return None
        finally:
            os.close(file)

    def _drop_abandoned(self) -> None:
        """Remove files of managers that were killed before they locked them."""
        for path in self._folder.glob(f"*{_FRESH}"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _ABANDONED_S:
                    path.unlink()


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _parse(file: int) -> Record:
    with os.fdopen(os.dup(file)) as text:
        what, pid = text.readline(), text.readline()
    return Record(**json.loads(what), pid=int(pid) if pid.endswith("\n") else 0)
