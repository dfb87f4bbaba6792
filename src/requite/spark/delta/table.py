"""One Delta table: its log as delta-rs reads it, and commits on top of the version that was read.

Every commit of requite adds a note to Delta's entries: the version it creates, its run, and the
*seal* of the table after it, a digest of all files with their sizes and rows. If commits in a log
were lost, truncated, doubled or swapped, the log lists other files than its last note.

A commit succeeds only as the next version of the table: if two runs start from one version,
delta-rs accepts the commit of one.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from requite.errors import LakeBusy, LakeDamaged, LakeError
from requite.spark import schemas
from requite.spark.delta.files import DAY, Added, day_of, words_of

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema

_NOTE: Final = "requite"
_SETTINGS: Final = {
    # In commits; a reader starts at the last checkpoint.
    "delta.checkpointInterval": "20",
    # After a crashed run the next one restores older versions, regardless of their age.
    "delta.enableExpiredLogCleanup": "false",
}
_DELTA_TYPES: Final = {"int": "integer", "bigint": "long"}  # the others are named as in Spark


class File(NamedTuple):
    """A file of a table, as listed in its log."""

    path: str
    size: int
    rows: int

    @property
    def day(self) -> date | None:
        """The day of its rows; None if the table is not partitioned by day."""
        return day_of(self.path)


class Seal(NamedTuple):
    """A version of a table, and the digest of its files."""

    version: int
    digest: str


class Note(NamedTuple):
    """The note of a commit; `at` is in milliseconds since 1970."""

    seal: Seal
    run: int
    more: Mapping[str, Any]
    at: int


@dataclass(frozen=True)
class Table:
    """A version of a table. Methods raise `LakeDamaged` if its log is not as it was written."""

    root: str
    name: str
    version: int
    files: Mapping[str, File]
    _delta: DeltaTable

    @classmethod
    def open(cls, root: str, name: str, version: int | None = None) -> Table | None:
        """Read a table's log; return None if there is no table."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        with _named(root, name):
            try:
                delta = DeltaTable(f"{root}/{name}", version=version)
            except TableNotFoundError:
                return None
            return cls(root, name, delta.version(), _files(delta), delta)

    @property
    def place(self) -> str:
        """The path or URL of the table."""
        return f"{self.root}/{self.name}"

    @property
    def seal(self) -> Seal:
        """The seal of this version."""
        return _seal(self.name, self.version, self.files.values())

    def note(self) -> Note:
        """Return the note of the newest commit, and verify the table against its seal.

        Only for the newest version. Raises `LakeDamaged` if requite did not write that commit.
        """
        with _named(self.root, self.name):
            newest = self._delta.history(1)
            record = json.loads(newest[0][_NOTE]) if newest and _NOTE in newest[0] else None
            if record is None:
                raise LakeDamaged(
                    f"{self.place}/_delta_log: version {self.version} was not written by requite; "
                    f"only requite may change a lake; {ADVICE}"
                )
            at = int(newest[0]["timestamp"])
            note = Note(Seal(*record["seal"]), record["run"], record["more"], at)
        self.require(note.seal)
        return note

    def require(self, seal: Seal) -> None:
        """Raise `LakeDamaged` unless the table matches this seal."""
        if self.seal != seal:
            raise LakeDamaged(
                f"{self.place}/_delta_log is damaged: it lists other files than version "
                f"{seal.version} had; {ADVICE}"
            )

    def commit(
        self,
        add: Sequence[Added],
        remove: Sequence[File],
        *,
        run: int,
        more: Mapping[str, Any] | None = None,
    ) -> Table:
        """Add and remove files in one commit; return the table after it.

        Raises `LakeBusy` if another run has committed since the table was read.
        """
        removed = {file.path for file in remove}
        files = [file for file in self.files.values() if file.path not in removed]
        files += [File(file.path, file.size, file.rows) for file in add]
        seal = _seal(self.name, self.version + 1, files)
        properties = _properties(seal, run, more)
        with _named(self.root, self.name):
            self._delta.create_write_transaction(
                [*map(_add_action, add), *map(_remove_action, remove)],
                mode="append",
                schema=_schema(self.name),
                partition_by=_partitions(self.name),
                commit_properties=properties,
            )
        return self._reopened(seal)

    @property
    def has_declared_columns(self) -> bool:
        """Whether the columns are those that `schemas` declares."""
        with _named(self.root, self.name):
            there = [(field.name, field.type) for field in self._delta.schema().fields]
        return there == [(field.name, field.type) for field in _schema(self.name).fields]

    def clear(self, *, run: int) -> Table:
        """Remove all rows, set the columns that `schemas` declares, and return the table."""
        seal = _seal(self.name, self.version + 1, ())
        with _named(self.root, self.name):
            self._delta.create_write_transaction(
                [],
                mode="overwrite",
                schema=_schema(self.name),
                partition_by=_partitions(self.name),
                commit_properties=_properties(seal, run, None),
            )
        return self._reopened(seal)

    def restore(self, seal: Seal, *, run: int) -> Table:
        """Restore the files of an earlier version; return the table after it."""
        before = Table.open(self.root, self.name, seal.version)
        if before is None:
            raise LakeDamaged(f"{self.place}/_delta_log is missing; {ADVICE}")
        before.require(seal)
        after = _seal(self.name, self.version + 1, before.files.values())
        with _named(self.root, self.name):
            properties = _properties(after, run, None)
            self._delta.restore(seal.version, commit_properties=properties)
        return self._reopened(after)

    def _reopened(self, seal: Seal) -> Table:
        found = Table.open(self.root, self.name, seal.version)
        if found is None:
            raise LakeDamaged(f"{self.place}/_delta_log is missing; {ADVICE}")
        found.require(seal)
        return found

    def forget_old_versions(self) -> None:
        """Delete log entries that are older than a month and before a checkpoint."""
        with _named(self.root, self.name):
            self._delta.cleanup_metadata()

    def unneeded(self, hours: int) -> list[str]:
        """Return the files in the table's folder that no version of the last `hours` lists."""
        with _named(self.root, self.name):
            listed = self._delta.vacuum(
                retention_hours=hours, dry_run=True, enforce_retention_duration=False, full=True
            )
            return [f"{self.name}/{path}" for path in listed]


ADVICE: Final = (
    "restore it, or pass a new folder, in which the lake is rebuilt from the whole journal"
)


def create(root: str, name: str, *, run: int, more: Mapping[str, Any] | None = None) -> Table:
    """Create an empty table. Raises `LakeBusy` if it exists by now."""
    from deltalake.transaction import create_table_with_add_actions

    seal = _seal(name, 0, ())
    with _named(root, name):
        create_table_with_add_actions(
            f"{root}/{name}",
            _schema(name),
            [],
            mode="error",
            partition_by=_partitions(name),
            description=schemas.TABLES[name].about,
            configuration=_SETTINGS,
            commit_properties=_properties(seal, run, more),
        )
    created = Table.open(root, name)
    if created is None:
        raise LakeDamaged(f"{root}/{name}/_delta_log is missing; {ADVICE}")
    created.require(seal)
    return created


def is_by_day(name: str) -> bool:
    """Return whether a table is partitioned by day."""
    return DAY in schemas.columns_of(schemas.TABLES[name])


def _partitions(name: str) -> list[str]:
    return [DAY] if is_by_day(name) else []


def _schema(name: str) -> Schema:
    from deltalake import Field, Schema
    from deltalake.schema import PrimitiveType

    table = schemas.TABLES[name]
    return Schema(
        [
            Field(
                column,
                PrimitiveType(_DELTA_TYPES.get(kind, kind)),
                metadata={"comment": table.comments[column]},
            )
            for column, kind in schemas.columns_of(table).items()
        ]
    )


def _files(delta: DeltaTable) -> dict[str, File]:
    listed = pa.table(delta.get_add_actions(flatten=True))
    columns = [listed.column(name).to_pylist() for name in ("path", "size_bytes", "num_records")]
    return {row[0]: File(*row) for row in zip(*columns, strict=True)}


def _seal(name: str, version: int, files: Iterator[File] | Sequence[File] | Any) -> Seal:
    digest = hashlib.sha256(name.encode())
    for file in sorted(files):
        digest.update(f"\n{file.path} {file.size} {file.rows}".encode())
    return Seal(version, digest.hexdigest())


def _properties(seal: Seal, run: int, more: Mapping[str, Any] | None) -> Any:
    import deltalake

    note = json.dumps({"seal": seal, "run": run, "more": more or {}})
    # No retries: delta-rs would commit on top of another run's commit.
    return deltalake.CommitProperties(custom_metadata={_NOTE: note}, max_commit_retries=0)


def _add_action(file: Added) -> Any:
    from deltalake.transaction import AddAction

    return AddAction(file.path, file.size, _values(file.path), _now_ms(), True, file.stats)


def _remove_action(file: File) -> Any:
    from deltalake.transaction import RemoveAction

    return RemoveAction(file.path, True, _now_ms(), file.size, _values(file.path))


def _values(path: str) -> dict[str, str | None]:
    if "/" not in path:
        return {}
    day = day_of(path)
    return {DAY: None if day is None else day.isoformat()}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def _named(root: str, name: str) -> Iterator[None]:
    """Convert errors of delta-rs to requite's, which name the table."""
    from deltalake.exceptions import CommitFailedError

    log = f"{root}/{name}/_delta_log"
    try:
        yield
    except LakeError:
        raise
    except CommitFailedError as error:
        raise LakeBusy(f"another run changed {root}/{name} during this run: run again") from error
    except OSError as error:
        raise LakeError(f"{log} cannot be read or written: {words_of(error)}") from error
    except Exception as error:  # delta-rs raises many types for broken logs
        raise LakeDamaged(f"{log} is damaged: {words_of(error)}; {ADVICE}") from error
