"""The folder for a sink's replies: Parquet files that become visible atomically.

    FOLDER/_requite/WRITE/...parquet              being written: Spark does not read `_` folders
    FOLDER/requite_write=WRITE/part-...parquet    committed

`WRITE` is a UUID for a batch write, and `QUERY-BATCH` for a micro-batch. Spark reads the folder as
one table with a column `requite_write`. Tasks stage files under unique names, and the driver
commits those of successful tasks by renaming one folder. A write is atomic if the file system
renames folders atomically (local disks, NFS, HDFS; not object stores).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from requite.errors import ConfigurationError

_STAGING: Final = "_requite"


class Part(NamedTuple):
    """A file that a task has staged."""

    name: str
    rows: int


@dataclass(frozen=True)
class Replies:
    """The folder at `location`: a path, or a URI of a file system that Arrow supports."""

    location: str

    def check(self) -> None:
        """Raise `ConfigurationError` if the folder is not writable, before any request is sent."""
        try:
            system, root = self._open()
            probe = f"{root}/{_STAGING}/{uuid4()}"
            system.create_dir(probe, recursive=True)
            system.delete_dir(probe)
        except (OSError, ValueError) as error:  # Arrow's errors are subclasses
            raise ConfigurationError(f"cannot write replies to {self.location}: {error}") from error

    def has(self, write: str) -> bool:
        """Return whether a write has been committed."""
        system, root = self._open()
        kind = system.get_file_info(_committed(root, write)).type
        return bool(kind == fs.FileType.Directory)

    def stage(self, batches: Iterator[pa.RecordBatch], write: str) -> Part | None:
        """Write batches to a new file; return None without batches.

        The folder is created before the first batch is read, which sends requests.
        """
        system, root = self._open()
        system.create_dir(_staged(root, write), recursive=True)
        first = next(batches, None)
        if first is None:
            return None
        name, rows = f"part-{uuid4()}.parquet", first.num_rows
        path = f"{_staged(root, write)}/{name}"
        with pq.ParquetWriter(path, first.schema, filesystem=system) as writer:
            writer.write_batch(first)
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
        return Part(name, rows)

    def publish(self, write: str, parts: list[Part]) -> None:
        """Make the files of a write visible; a write that is already committed stays as it is."""
        system, root = self._open()
        if parts and not self.has(write):
            ready = f"{_staged(root, write)}/ready"
            system.create_dir(ready, recursive=True)
            for part in parts:
                system.move(f"{_staged(root, write)}/{part.name}", f"{ready}/{part.name}")
            system.move(ready, _committed(root, write))
        self.discard(write)

    def discard(self, write: str) -> None:
        """Remove the staged files of a write."""
        system, root = self._open()
        staged = _staged(root, write)
        if system.get_file_info(staged).type == fs.FileType.Directory:
            system.delete_dir(staged)

    def _open(self) -> tuple[Any, str]:
        if "://" in self.location:
            system, root = fs.FileSystem.from_uri(self.location)
            return system, root.rstrip("/")
        path = self.location.removeprefix("file:")
        return fs.LocalFileSystem(), path.rstrip("/")


def _staged(root: str, write: str) -> str:
    return f"{root}/{_STAGING}/{write}"


def _committed(root: str, write: str) -> str:
    return f"{root}/requite_write={write}"
