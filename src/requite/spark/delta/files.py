"""Data files of Delta tables: Parquet files, each named after its content.

    bronze_events/date=2026-03-02/5f0c…-9a41….parquet

The first part of a name is random, so no two tasks write the same file: a file that a killed or
speculative task leaves belongs to no table. The second part is the digest of all bytes, so a reader
detects a truncated, damaged or swapped file by its name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from requite.errors import ConfigurationError, LakeError
from requite.spark.decoding.columns import arrow_types
from requite.storage.place import is_store

DAY: Final = "date"
"""The partition column of tables that have it."""

NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
"""The partition value for a null day, as in Hive."""

FILE_BYTES_MAX: Final = 128 << 20
"""Size at which a file is closed and written; until then it is in memory."""

_ROW_GROUP_BYTES: Final = 32 << 20  # in memory: some 100,000 events
_OPEN_BYTES_MAX: Final = 256 << 20  # over all open files of a task
_OPEN_MAX: Final = 64
_DIGEST_LENGTH: Final = 32
_CHUNK_BYTES: Final = 4 << 20
_ERRNO: Final = re.compile(r"\[errno \d+\] (.+)$", re.IGNORECASE | re.MULTILINE)
_WORDS_MAX: Final = 160  # characters of a library's message
_THREADS: Final = 4
_SHARE_BYTES: Final = 8 << 20  # of files that one task reads

# Columns with statistics, by which readers skip files.
_STATISTICS: Final = ("ts", "accepted_at", "minute", "window", "request_id", "service")

ADDED: Final = "path string, size bigint, rows bigint, stats string, failure string"
"""The row that a task returns for each written file, or for a failure to write."""


Store: TypeAlias = fs.SubTreeFileSystem
"""The files below a lake's root."""


class Added(NamedTuple):
    """A written file: path within the table, bytes, rows, and statistics (JSON) for Delta's log."""

    path: str
    size: int
    rows: int
    stats: str


def filesystem(root: str) -> Store:
    """Return the file system of a lake's root: a folder, or the URL of a store that Arrow supports.

    Stores read their settings from the environment, as Delta's log does. The file system of
    deltalake (`deltalake.fs`) cannot write with current versions of Arrow. Raises
    `ConfigurationError` for a URL that Arrow does not support.
    """
    if not is_store(root):
        return fs.SubTreeFileSystem(root, fs.LocalFileSystem())
    try:
        store, path = fs.FileSystem.from_uri(root)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigurationError(
            f"cannot store a lake at {root}: {words_of(error)}; for Azure, write"
            " abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"
        ) from None
    return fs.SubTreeFileSystem(path, store)


def folder_of(path: str) -> str:
    """Return the folder of a file within its table; empty if the table is not partitioned."""
    return path.rpartition("/")[0]


def day_folder(day: date | None) -> str:
    """Return the folder of a day."""
    return f"{DAY}={NO_DAY if day is None else day.isoformat()}"


def day_of(path: str) -> date | None:
    """Return the day of a file, from its path."""
    value = folder_of(path).partition("=")[2]
    return None if value in ("", NO_DAY) else date.fromisoformat(value)


# --- writing --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Writer:
    """Writes a task's part of a table; for `DataFrame.mapInArrow`, with the columns `ADDED`."""

    root: str
    table: str
    by_day: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the batches of a task; return a row per file."""
        split = by_day if self.by_day else as_one
        try:
            for added in write(filesystem(self.root), self.table, batches, split):
                yield _row(failure=None, **added._asdict())
        except OSError as error:
            # A row, since Spark prints pages of stack traces for an exception.
            yield _row(failure=f"{self.root}/{self.table} cannot be written: {words_of(error)}")
            deque(batches, maxlen=0)  # Spark logs an error for unread input


@dataclass(frozen=True)
class Without:
    """Rewrites files without the rows of some requests; for `mapInArrow` of file paths.

    Returns the columns `ADDED` and `gone`, the path of a replaced file. Files without such rows
    are left as they are.
    """

    root: str
    table: str
    ids: pa.Array

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the remaining rows of each file that has such rows; return a row per file."""
        store = filesystem(self.root)
        for batch in batches:
            for path in batch.column(0).to_pylist():
                try:
                    yield from self._rewrite(store, path)
                except OSError as error:
                    failure = f"{self.root}/{self.table} cannot be written: {words_of(error)}"
                    yield _row(failure=failure, gone=None)

    def _rewrite(self, store: Store, path: str) -> Iterator[pa.RecordBatch]:
        with store.open_input_file(f"{self.table}/{path}") as opened:
            file = pq.ParquetFile(opened)
            column = file.read(columns=["request_id"]).column(0)
            if not pc.any(pc.is_in(column, self.ids)).as_py():
                return
            rest = (self._rest(batch) for batch in file.iter_batches())
            folder = folder_of(path)
            for added in write(store, self.table, rest, lambda batch: [(folder, batch)]):
                yield _row(failure=None, gone=None, **added._asdict())
        yield _row(gone=path)

    def _rest(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(pc.invert(pc.is_in(batch.column("request_id"), self.ids)))


def _row(**columns: Any) -> pa.RecordBatch:
    types = {"size": pa.int64(), "rows": pa.int64()}
    names = [column.split()[0] for column in ADDED.split(",")]
    names += ["gone"] * ("gone" in columns)
    arrays = [pa.array([columns.get(name)], types.get(name, pa.string())) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names)


def words_of(error: BaseException) -> str:
    """Return a short reason from an error of the system or a library."""
    text = getattr(error, "strerror", None) or str(error)
    detail = _ERRNO.search(text)
    return detail[1] if detail else text.splitlines()[0][:_WORDS_MAX]


Split = Callable[[pa.RecordBatch], Iterable[tuple[str, pa.RecordBatch]]]


def as_one(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Put all rows into the table's own folder."""
    yield "", batch


def by_day(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Put rows into folders by day; the files do not contain the column."""
    days, rest = batch.column(DAY), batch.drop_columns([DAY])
    found = pc.unique(days).to_pylist()
    for day in found:
        chosen = pc.is_null(days) if day is None else pc.equal(days, pa.scalar(day, days.type))
        yield day_folder(day), rest if len(found) == 1 else rest.filter(chosen)


def write(
    store: Store, table: str, batches: Iterable[pa.RecordBatch], split: Split = as_one
) -> Iterator[Added]:
    """Write batches as files of a table; yield each written file. Raises `OSError`."""
    drafts: dict[str, _Draft] = {}
    for batch in batches:
        for folder, part in split(batch):
            if part.num_rows:
                drafts.setdefault(folder, _Draft(part.schema)).add(part)
        while _too_much(drafts):
            longest = max(drafts, key=lambda folder: drafts[folder].held)
            yield drafts.pop(longest).save(store, table, longest)
    for folder, draft in drafts.items():
        yield draft.save(store, table, folder)


def _too_much(drafts: dict[str, _Draft]) -> bool:
    held = [draft.held for draft in drafts.values()]
    too_long = any(draft.length >= FILE_BYTES_MAX for draft in drafts.values())
    return too_long or len(held) > _OPEN_MAX or sum(held) > _OPEN_BYTES_MAX


class _Draft:
    """A file being built in memory: its name is known only when it is complete."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._sink, schema)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    @property
    def length(self) -> int:
        """Bytes of the file so far."""
        return int(self._sink.tell())

    @property
    def held(self) -> int:
        """Bytes of memory that it occupies."""
        return self.length + self._waiting_bytes

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
        self._waiting, self._waiting_bytes = [], 0

    def save(self, store: Store, table: str, folder: str) -> Added:
        self._flush()
        self._writer.close()
        content = self._sink.getvalue()
        digest = hashlib.sha256(content).hexdigest()[:_DIGEST_LENGTH]
        name = f"{uuid4().hex}-{digest}.parquet"
        path = f"{folder}/{name}" if folder else name
        if isinstance(store.base_fs, fs.LocalFileSystem):  # object stores have no folders
            store.create_dir(f"{table}/{folder}", recursive=True)
        with store.open_output_stream(f"{table}/{path}") as file:
            file.write(content)
        metadata = pq.read_metadata(pa.BufferReader(content))
        return Added(path, content.size, metadata.num_rows, _stats(metadata))


def _stats(metadata: pq.FileMetaData) -> str:
    """Return the statistics of a file for Delta's log, as JSON."""
    names = metadata.schema.names
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for name in set(names) & set(_STATISTICS):
        columns = [group.column(names.index(name)).statistics for group in groups]
        if any(column is None for column in columns):
            continue
        nulls[name] = sum(column.null_count for column in columns)
        known = [column for column in columns if column.has_min_max]
        if known:
            least[name] = _plain(min(column.min for column in known))
            most[name] = _plain(max(column.max for column in known))
    record = {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most}
    return json.dumps(record | {"nullCount": nulls})


def _plain(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    instant = value if value.tzinfo else value.replace(tzinfo=UTC)
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# --- reading --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Reader:
    """Reads files of a table; for `DataFrame.mapInArrow` of share numbers, to the columns `ddl`."""

    root: str
    table: str
    ddl: str
    shares: tuple[tuple[str, ...], ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files; raise `LakeError` if a file cannot be read."""
        store = filesystem(self.root)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for path in self.shares[number]:
                    yield from self._rows(store, path)

    def _rows(self, store: Store, path: str) -> Iterator[pa.RecordBatch]:
        types = arrow_types(self.ddl)
        try:
            with store.open_input_file(f"{self.table}/{path}") as opened:
                for rows in pq.ParquetFile(opened, pre_buffer=True).iter_batches():
                    yield with_day(rows, path, types)
        except OSError as error:
            failure = f"{self.root}/{self.table}/{path} cannot be read: {words_of(error)}"
            raise LakeError(failure) from error


def with_day(rows: pa.RecordBatch, path: str, types: Mapping[str, Any]) -> pa.RecordBatch:
    """Return rows of a file with all columns of its table; the day comes from the path."""
    if DAY in types:
        rows = rows.append_column(DAY, pa.array([day_of(path)] * rows.num_rows, types[DAY]))
    return rows.select(list(types)).cast(pa.schema(types))


def share_out(files: Sequence[tuple[str, int]]) -> tuple[tuple[str, ...], ...]:
    """Divide files, given by path and size, among tasks, by size."""
    shares: list[tuple[str, ...]] = []
    room = 0
    for path, size in files:
        if size > room:
            shares.append(())
            room = _SHARE_BYTES
        shares[-1] += (path,)
        room -= size
    return tuple(shares)


# --- checking -------------------------------------------------------------------------------------
def faults(store: Store, files: Sequence[tuple[str, int]]) -> list[str]:
    """Check files, given by path and size; return a message for each missing or changed one."""
    with ThreadPoolExecutor(_THREADS) as pool:
        found = pool.map(lambda file: _fault(store, *file), files)
        return [fault for fault in found if fault]


def _fault(store: Store, path: str, size: int) -> str | None:
    digest, length = hashlib.sha256(), 0
    try:
        with store.open_input_file(path) as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                length += len(chunk)
    except FileNotFoundError:
        return f"{path} is missing"
    except OSError as error:
        return f"{path} cannot be read: {words_of(error)}"
    if length != size:
        return f"{path} has {length:,} bytes, but {size:,} were written"
    written = path.rpartition("-")[2].removesuffix(".parquet")
    if digest.hexdigest()[:_DIGEST_LENGTH] != written:
        return f"{path} has changed since it was written"
    return None


# --- merging --------------------------------------------------------------------------------------
def merge(store: Store, table: str, paths: Sequence[str]) -> list[Added]:
    """Rewrite the rows of several files of one folder as few files. Raises `OSError`."""
    folder = folder_of(paths[0])
    return list(write(store, table, _rows(store, table, paths), lambda batch: [(folder, batch)]))


def _rows(store: Store, table: str, paths: Iterable[str]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with store.open_input_file(f"{table}/{path}") as file:
            yield from pq.ParquetFile(file).iter_batches()
