"""The tables of a lake as of its last complete run.

A run that completes adds a row to the table `runs`: its position in the journal, and the seal of
every table. A reader sees the tables at the versions of the last row, regardless of a run in
progress. The next run restores the tables that a crashed run had changed.

A run starts with a commit without a row to `runs`. The version of that commit is the run's number,
and every commit of the run records it. So a lake also detects that `runs` has lost its last
commits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from requite.errors import ConfigurationError, LakeBusy, LakeDamaged, LakeError
from requite.spark import schemas
from requite.spark.delta.files import (
    FILE_BYTES_MAX,
    Added,
    day_of,
    faults,
    filesystem,
    folder_of,
    merge,
    words_of,
    write,
)
from requite.spark.delta.process import is_alive, is_here, this_process
from requite.spark.delta.table import ADVICE, File, Note, Seal, Table, create

RUNS: Final = "runs"
NOT_RECOMPUTED: Final = (RUNS, "bronze_events", "bronze_quarantine")
"""Tables that cannot be recomputed from others."""

FILES_MAX: Final = 10
"""Maximum number of files per table and day; beyond it, the smallest are merged."""

RETENTION_H: Final = 48
"""Hours before an unneeded file is deleted: a reader may still use it."""

SILENCE_MAX_S: Final = 900
"""Seconds without a commit after which a run on another machine counts as crashed."""

_FAULTS_SHOWN: Final = 3

Days = Callable[[date | None], bool]


@dataclass(frozen=True)
class Record:
    """The row of the last complete run; empty before the first."""

    run: int = -1
    state: Mapping[str, Any] = field(default_factory=dict)
    seals: Mapping[str, Seal] = field(default_factory=dict)


class Catalog:
    """The tables of a lake: as of the last run, or within a run (`running`).

    Methods raise `LakeDamaged`, which names the file, if a file or log is not as it was written.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.run = -1
        self._store = filesystem(root)
        self._runs = Table.open(root, RUNS)
        self._notes: dict[str, Note] = {}
        self._tables: dict[str, Table | None] = {}
        self._checked: set[str] = set()
        self.last = self._newest_record()
        self._mark: dict[str, Any] = {}

    # --- reading ----------------------------------------------------------------------------------
    def table(self, name: str) -> Table | None:
        """Return a table; None if no run has written it yet."""
        if name not in self._tables:
            self._tables[name] = self._as_recorded(name)
        return self._tables[name]

    def _as_recorded(self, name: str) -> Table | None:
        seal = self.last.seals.get(name)
        if seal is None:
            return None
        found = Table.open(self.root, name, seal.version)
        if found is None:
            raise _missing(self.root, name)
        found.require(seal)
        return found

    def files(self, name: str, days: Days | None = None) -> list[File]:
        """Return the files of a table, or of some of its days; each file is checked once."""
        table = self.table(name)
        if table is None:
            return []
        listed = table.files.values()
        chosen = [file for file in listed if days is None or days(day_of(file.path))]
        self.check(name, chosen)
        return chosen

    def check(self, name: str, files: Iterable[File]) -> None:
        """Raise `LakeDamaged` for missing or changed files."""
        unseen = [(f"{name}/{file.path}", file.size) for file in files]
        unseen = [file for file in unseen if file[0] not in self._checked]
        if found := faults(self._store, unseen):
            more = f" and {len(found) - _FAULTS_SHOWN:,} more" if len(found) > _FAULTS_SHOWN else ""
            raise LakeDamaged(f"{self.root}: {'; '.join(found[:_FAULTS_SHOWN])}{more}; {ADVICE}")
        self._checked.update(path for path, _ in unseen)

    def path(self, name: str, file: File) -> str:
        """Return the full path of a file."""
        return f"{self.root}/{name}/{file.path}"

    def _newest_record(self) -> Record:
        if self._runs is None:
            self._require_nothing()
            return Record()
        self._notes[RUNS] = self._runs.note()
        self.check(RUNS, self._runs.files.values())
        newest, place = -1, ""
        for path in (f"{RUNS}/{path}" for path in self._runs.files):
            last = max(self._read(path, columns=["run"]).column("run").to_pylist())
            newest, place = max((newest, place), (last, path))
        if not place:
            return Record()
        row = self._read(place, filters=[("run", "=", newest)]).to_pylist()[0]
        seals = {name: Seal(*seal) for name, seal in json.loads(row["versions"]).items()}
        return Record(newest, json.loads(row["state"]), seals)

    def _read(self, path: str, **options: Any) -> pa.Table:
        with self._store.open_input_file(path) as file:
            return pq.read_table(file, **options)

    def _require_nothing(self) -> None:
        """Raise `LakeDamaged` if there are tables without the table `runs`."""
        if self._names():
            raise _missing(self.root, RUNS)

    def _names(self) -> list[str]:
        """Return the names of the existing tables except `runs`."""
        if self._store.get_file_info("").type == fs.FileType.NotFound:
            return []
        found = self._store.get_file_info(fs.FileSelector("", allow_not_found=True))
        names = [info.base_name for info in found if info.base_name in schemas.TABLES]
        logs = self._store.get_file_info([f"{name}/_delta_log" for name in names])
        there = [info.type != fs.FileType.NotFound for info in logs]
        return [
            name for name, is_there in zip(names, there, strict=True) if is_there and name != RUNS
        ]

    # --- running ----------------------------------------------------------------------------------
    @contextmanager
    def running(self) -> Iterator[None]:
        """Begin a run, and exclude every other one.

        Raises `LakeBusy` if another run is in progress. A run counts as crashed when its process
        has ended or, on another machine, when it has committed nothing for 15 minutes.
        """
        self._begin()
        try:
            self._settle()
            yield
        finally:
            self._stop()

    def _begin(self) -> None:
        names = sorted({*self._names(), *self.last.seals})
        self._tables = {name: Table.open(self.root, name) for name in names}
        for name, table in self._tables.items():
            if table is not None:
                self._notes[name] = table.note()
        self._require_nobody()
        runs_until = -1 if self._runs is None else self._runs.version
        for name in names:
            self._require_whole(name, runs_until)
        self._require_columns()
        self._mark = {"begun": this_process()}
        if self._runs is None:
            self._runs = create(self.root, RUNS, run=0, more=self._mark)
        else:
            self._runs = self._runs.commit([], [], run=runs_until + 1, more=self._mark)
        self.run = self._runs.version

    def _settle(self) -> None:
        self._tables = {name: self._settled(name) for name in self._tables}

    def _require_nobody(self) -> None:
        note = self._notes.get(RUNS)
        begun = note.more.get("begun") if note else None
        if begun is None:
            return
        silent_s = time.time() - max(note.at for note in self._notes.values()) / 1000
        if is_alive(begun) if is_here(begun) else silent_s < SILENCE_MAX_S:
            raise LakeBusy(
                f"another run (process {begun['process']} on {begun['host']}) is writing the"
                f" lake at {self.root}; try again when it has ended"
            )

    def _require_whole(self, name: str, runs_until: int) -> None:
        seal, table = self.last.seals.get(name), self._tables[name]
        if table is None:
            raise _missing(self.root, name)
        if seal and table.version < seal.version:
            raise LakeDamaged(
                f"{self.root}/{name}/_delta_log is incomplete: version {seal.version} is missing; "
                + ADVICE
            )
        if seal and table.version == seal.version:
            table.require(seal)
        if self._notes[name].run > runs_until:
            raise LakeDamaged(
                f"{self.root}/{RUNS}/_delta_log is incomplete: {name} records later runs; " + ADVICE
            )

    def _require_columns(self) -> None:
        """Raise `ConfigurationError` if events have other columns than in this version."""
        for name, table in [*self._tables.items(), (RUNS, self._runs)]:
            if name in NOT_RECOMPUTED and table is not None and not table.has_declared_columns:
                raise ConfigurationError(
                    f"{self.root}/{name} was written by another version of requite, with other"
                    " columns: pass a new folder, in which the lake is rebuilt from the whole"
                    " journal"
                )

    def _settled(self, name: str) -> Table | None:
        """Return a table without the changes of a crashed run."""
        table, seal = self._tables[name], self.last.seals.get(name)
        assert table is not None
        is_known = seal is not None and table.version == seal.version
        if is_known or self._is_merged(name, seal):
            return table
        if seal is not None:
            return table.restore(seal, run=self.run)
        return table.commit([], list(table.files.values()), run=self.run) if table.files else table

    def _is_merged(self, name: str, seal: Seal | None) -> bool:
        """Whether the only change to a table since the last complete run is a merge."""
        return seal is not None and self._notes[name].more.get("merged") == seal.version

    def commit(
        self,
        name: str,
        add: Sequence[Added],
        remove: Sequence[File] = (),
    ) -> None:
        """Add and remove files of a table in one commit; create the table if it does not exist."""
        self._require_run()
        table = self.table(name) or create(self.root, name, run=self.run)
        if add or remove:
            table = table.commit(add, remove, run=self.run)
        self._tables[name] = table

    def clear(self) -> None:
        """Empty the tables that are computed from events; they get this version's columns."""
        self._require_run()
        for name, table in self._tables.items():
            if table is not None and name in schemas.LAKE and name not in NOT_RECOMPUTED:
                self._tables[name] = table.clear(run=self.run)

    def _require_run(self) -> None:
        """Raise `LakeBusy` if another run has begun because this one counted as crashed."""
        newest = Table.open(self.root, RUNS)
        if newest is None:
            raise _missing(self.root, RUNS)
        if newest.version != self.run:
            raise LakeBusy(
                f"another run changed the lake at {self.root} during this run: run again"
            )

    def end(self, state: Mapping[str, Any], **columns: Any) -> None:
        """Complete the run: readers see its tables from now on. `columns` are those of `runs`."""
        assert self._runs is not None
        tables = {name: table for name, table in self._tables.items() if table is not None}
        seals = {name: table.seal for name, table in tables.items()}
        row = {"run": self.run, "state": json.dumps(state), "versions": json.dumps(seals)}
        batch = pa.RecordBatch.from_pylist([columns | row], _runs_schema())
        added = self._writing(partial(write, self._store, RUNS, [batch]))
        self._runs = self._runs.commit(added, [], run=self.run, more=self._mark)
        self.last = Record(self.run, dict(state), seals)

    def _stop(self) -> None:
        """Release the lake for other runs."""
        # The disk may be full; other runs detect the end of this process.
        with suppress(LakeError):
            assert self._runs is not None
            self._runs = self._runs.commit([], [], run=self.run)

    # --- tidying up -------------------------------------------------------------------------------
    def merge(self) -> int:
        """Merge small files after the run has ended; return how many were merged."""
        assert self._runs is not None
        merged = 0
        for name, table in [*self._tables.items(), (RUNS, self._runs)]:
            groups = to_merge(table.files.values()) if table is not None else []
            if table is None or not groups:
                continue
            after = self._merged(table, groups)
            merged += sum(map(len, groups))
            if name == RUNS:
                self._runs = after
            else:
                self._tables[name] = after
        return merged

    def _merged(self, table: Table, groups: Sequence[Sequence[File]]) -> Table:
        added: list[Added] = []
        for group in groups:
            self.check(table.name, group)
            paths = [file.path for file in group]
            added += self._writing(partial(merge, self._store, table.name, paths))
        removed = [file for group in groups for file in group]
        note = self._mark | {"merged": table.version}
        return table.commit(added, removed, run=self.run, more=note)

    def vacuum(self) -> int:
        """Delete files that no version of the last two days needs; return how many."""
        deleted = 0
        for table in filter(None, [*self._tables.values(), self._runs]):
            table.forget_old_versions()
            for path in table.unneeded(RETENTION_H):
                self._store.delete_file(path)
                deleted += 1
        return deleted

    def _writing(self, act: Callable[[], Iterable[Added]]) -> list[Added]:
        try:
            return list(act())
        except OSError as error:
            raise LakeError(f"{self.root} cannot be written: {words_of(error)}") from error


def to_merge(files: Iterable[File]) -> list[list[File]]:
    """Choose files to merge, by folder: the smallest, until each other is larger than their sum.

    A row is then rewritten only as often as the table doubles.
    """
    folders: dict[str, list[File]] = {}
    for file in files:
        folders.setdefault(folder_of(file.path), []).append(file)
    chosen = [_smallest(each) for each in folders.values() if len(each) > FILES_MAX]
    return [each for each in chosen if len(each) > 1]


def _smallest(files: list[File]) -> list[File]:
    ordered = sorted(files, key=lambda file: file.size)
    chosen: list[File] = []
    total = 0
    for position, file in enumerate(ordered):
        is_enough = len(ordered) - position < FILES_MAX
        if (is_enough and file.size > total) or total + file.size > FILE_BYTES_MAX:
            break
        chosen.append(file)
        total += file.size
    return chosen


def _missing(root: str, name: str) -> LakeDamaged:
    return LakeDamaged(f"{root}/{name} is missing; {ADVICE}")


def _runs_schema() -> pa.Schema:
    types = {
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "boolean": pa.bool_(),
        "string": pa.string(),
    }
    columns = schemas.columns_of(schemas.RUNS)
    return pa.schema([(name, types[kind]) for name, kind in columns.items()])
