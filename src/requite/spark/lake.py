"""A lake: a folder of Delta tables, as DataFrames; one run at a time may change it.

LAKE/bronze_events/date=…/…    LAKE/silver_requests/date=…/…    …and so on
LAKE/runs/                     a row per run: the state of the lake at its end
LAKE/_requite/lake.json        marks the folder as a lake (`requite.spark.marker`)

Spark's tasks write Parquet files (`requite.spark.delta.files`), and the driver commits them to
Delta's log through delta-rs (`requite.spark.delta.catalog`), so Spark needs no jar of Delta's.
Spark reads the files that the log lists, after the digest of each has been compared with its name.
In an object store, tasks read and write the files through Arrow, since Spark includes no jars for
object stores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from requite.errors import LakeError
from requite.spark import schemas
from requite.spark.delta.catalog import Catalog
from requite.spark.delta.files import ADDED, Added, Reader, Without, Writer, day_of, share_out
from requite.spark.delta.table import is_by_day
from requite.spark.marker import require_current
from requite.storage.place import is_store, place_of

if TYPE_CHECKING:
    from requite.spark.delta.catalog import Days
    from requite.spark.delta.table import File


@dataclass(frozen=True)
class Lake:
    """The tables of a catalog, for one session."""

    spark: SparkSession
    catalog: Catalog

    @classmethod
    def at(cls, spark: SparkSession, root: str | PathLike[str]) -> Lake:
        """Open the lake in a folder or a store, as of its last run.

        Raises `LakeDamaged` if a file or log has changed, `ConfigurationError` if an older version
        of requite created it.
        """
        place = place_of(
            root, "a lake is stored in"
        )  # absolute: Java may have another working folder
        require_current(place)
        return cls(spark, Catalog(place))

    @property
    def root(self) -> str:
        """The path or URL of the lake."""
        return self.catalog.root

    def table(self, name: str, days: Days | None = None) -> DataFrame:
        """Return a table, or some of its days, with the columns that `schemas` declares.

        A table that no run has written yet is empty. Raises `LakeDamaged` for a missing or changed
        file.
        """
        return self.rows(name, self.catalog.files(name, days))

    def rows(self, name: str, files: Sequence[File]) -> DataFrame:
        """Return the rows of some files of a table."""
        schema = schema_of(name)
        if not files:
            return self._empty(schema)
        if is_store(self.root):
            return self._fetched(name, files)
        paths = [self.catalog.path(name, file) for file in files]
        # Without a schema Spark would read a footer; the day is only in the path.
        reader = self.spark.read.schema(schema).option("basePath", f"{self.root}/{name}")
        return reader.parquet(*paths).select(*columns_of(name))

    def _fetched(self, name: str, files: Sequence[File]) -> DataFrame:
        """Return the rows of files in an object store, which tasks read through Arrow."""
        shares = share_out([(file.path, file.size) for file in files])
        reader = Reader(self.root, name, schemas.TABLES[name], shares)
        numbers = self.spark.range(0, len(shares), 1, len(shares))
        return numbers.mapInArrow(reader, schema_of(name))

    def _empty(self, schema: StructType) -> DataFrame:
        # Not `createDataFrame`, which starts Python workers even for no rows.
        columns = (
            f"CAST(NULL AS {column.dataType.simpleString()}) AS `{column.name}`"
            for column in schema
        )
        return self.spark.sql(f"SELECT {', '.join(columns)} WHERE false")

    def replace(self, name: str, rows: DataFrame) -> int:
        """Replace a table; return its number of rows."""
        return self._replace(name, rows, None)

    def replace_days(self, name: str, rows: DataFrame, *, days: Iterable[date]) -> int:
        """Replace days of a table by rows of these days; return the number of new rows."""
        return self._replace(name, rows, set(days))

    def _replace(self, name: str, rows: DataFrame, days: set[date] | None) -> int:
        table = self.catalog.table(name)
        before = table.files.values() if table is not None else ()
        added = write_files(self.root, name, rows)
        gone = [file for file in before if days is None or file.day in days]
        self.catalog.commit(name, added, gone)
        return sum(file.rows for file in added)

    def merge_in(self, name: str, rows: DataFrame, ids: Collection[str], days: Days) -> Change:
        """Upsert rows into a table by request.

        Older rows of the requests `ids` are in files of `days` only, which are rewritten
        without them. Other requests have none. Raises `LakeError` if files cannot be written.
        """
        listed = self.catalog.files(name, days) if ids else []
        kept, gone = self._without(name, listed, ids) if listed else ([], [])
        added = write_files(self.root, name, rows)
        self.catalog.commit(name, [*kept, *added], gone)
        paths = [file.path for file in added] + [file.path for file in gone]
        days_of = {day for day in map(day_of, paths) if day is not None}
        return Change(sum(file.rows for file in added), days_of)

    def _without(
        self, name: str, files: Sequence[File], ids: Collection[str]
    ) -> tuple[list[Added], list[File]]:
        """Rewrite files without the rows of some requests; return new and replaced ones."""
        paths = [(file.path,) for file in files]
        frame = self.spark.createDataFrame(paths, "path string").repartition(len(paths))
        without = Without(self.root, name, pa.array(sorted(ids)))
        found = added_by(frame.mapInArrow(without, f"{ADDED}, gone string"))
        gone = {row["gone"] for row in found if row["gone"]}
        kept = [Added(*(row[key] for key in Added._fields)) for row in found if row["path"]]
        return kept, [file for file in files if file.path in gone]


class Change(NamedTuple):
    """A change of a table: the number of new rows, and the days that have changed."""

    rows: int
    days: set[date]


def write_files(root: str, name: str, rows: DataFrame) -> list[Added]:
    """Write rows as files for a table in Spark's tasks; the caller commits them.

    Raises `LakeError` if they cannot be written.
    """
    writer = Writer(root, name, is_by_day(name))
    # Spark may repeat tasks: only the files of the attempts that it reports are committed.
    found = added_by(rows.select(*columns_of(name)).mapInArrow(writer, ADDED))
    return [Added(*(row[key] for key in Added._fields)) for row in found]


def added_by(tasks: DataFrame) -> list[dict[str, Any]]:
    """Run tasks that write files; return the rows that they report.

    Raises `LakeError` if one of them cannot write.
    """
    report: list[dict[str, Any]] = tasks.toArrow().to_pylist()
    if failures := [row["failure"] for row in report if row["failure"]]:
        raise LakeError(f"{failures[0]}; the lake is unchanged")
    return report


def columns_of(table: str) -> list[str]:
    """Return the names of the declared columns of a table, without a call to Spark."""
    return list(schemas.columns_of(schemas.TABLES[table]))


def schema_of(table: str) -> StructType:
    """Return the declared columns of a table, with their comments."""
    declared = schemas.TABLES[table]
    schema = cast(StructType, StructType.fromDDL(declared))
    for column in schema:
        column.metadata = {"comment": declared.comments[column.name]}
    return schema
