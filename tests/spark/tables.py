"""Writes and reads the tables of a lake without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from requite.spark import schemas
from requite.spark.delta.catalog import Catalog
from requite.spark.delta.files import DAY, Added, as_one, by_day, filesystem, write
from requite.spark.delta.table import is_by_day

TYPES = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
}


def batch_of(name: str, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Return rows with the declared columns of a table; missing columns are null."""
    columns = schemas.columns_of(getattr(schemas, name.upper()))
    schema = pa.schema([(column, TYPES[kind]) for column, kind in columns.items()])
    return pa.RecordBatch.from_pylist(rows, schema)


def written(root: Path | str, name: str, *batches: list[dict[str, Any]]) -> list[Added]:
    """Write files of a table as a task does, at least one for each list of rows; return them."""
    split = by_day if is_by_day(name) else as_one
    store = filesystem(str(root))
    files: list[Added] = []
    for rows in batches:
        files += write(store, name, [batch_of(name, rows)], split)
    return files


def append(catalog: Catalog, name: str, *batches: list[dict[str, Any]]) -> None:
    """Add rows to a table, in one commit."""
    catalog.commit(name, written(catalog.root, name, *batches))


def replace(
    catalog: Catalog, name: str, rows: list[dict[str, Any]], days: Sequence[date] | None = None
) -> None:
    """Replace a table, or days of it."""
    gone = [file for file in catalog.files(name) if days is None or file.day in days]
    catalog.commit(name, written(catalog.root, name, rows), gone)


def rows_of(catalog: Catalog, name: str) -> list[dict[str, Any]]:
    """Check the files of a table, as every reader does; return its rows."""
    rows: list[dict[str, Any]] = []
    for file in catalog.files(name):
        day = {DAY: file.day} if file.day else {}
        with filesystem(catalog.root).open_input_file(f"{name}/{file.path}") as opened:
            rows += [row | day for row in pq.ParquetFile(opened).read().to_pylist()]
    return rows
