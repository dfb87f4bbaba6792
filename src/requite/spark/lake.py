"""A lake: a folder of Delta tables, as DataFrames; only one run at a time changes it.

    LAKE/bronze_events/date=…/…    LAKE/silver_requests/date=…/…    …and so on
    LAKE/runs/                     a row per run: what the lake was at its end
    LAKE/_requite/lake.json        marks the folder as ours (`requite.spark.marker`)

Spark computes, and its tasks write Parquet files (`requite.spark.delta.files`); the driver commits
these to Delta's log through delta-rs (`requite.spark.delta.catalog`). So no archive of Delta's is
needed in Spark. Files are read by Spark itself, those that the log lists, each after its digest
has been compared with its name. In a store of objects tasks read them as they write them, through
Arrow, since Spark brings no archive for stores.
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
        """Return the lake in a folder or a store, as its last run has left it.

        Raises `LakeDamaged` where it is not what was written, `ConfigurationError` where an older
        version of requite has made it.
        """
        place = place_of(root, "a lake is kept in")  # Java may have started in another folder
        require_current(place)
        return cls(spark, Catalog(place))

    @property
    def root(self) -> str:
        """Where the lake is."""
        return self.catalog.root

    def table(self, name: str, days: Days | None = None) -> DataFrame:
        """Return a table, or some of its days, with the columns that `schemas` declares.

        A table that no run has written yet is empty. Raises `LakeDamaged` for a file that is gone
        or is not what was written.
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
        # The schema is given, or Spark would read a footer; the day is in the path alone.
        reader = self.spark.read.schema(schema).option("basePath", f"{self.root}/{name}")
        return reader.parquet(*paths).select(*columns_of(name))

    def _fetched(self, name: str, files: Sequence[File]) -> DataFrame:
        """Return the rows of files that Spark has no archive for to read: tasks fetch them."""
        shares = share_out([(file.path, file.size) for file in files])
        reader = Reader(self.root, name, schemas.TABLES[name], shares)
        numbers = self.spark.range(0, len(shares), 1, len(shares))
        return numbers.mapInArrow(reader, schema_of(name))

    def _empty(self, schema: StructType) -> DataFrame:
        # Not `createDataFrame`, which has Python workers make the rows, even none.
        columns = (
            f"CAST(NULL AS {column.dataType.simpleString()}) AS `{column.name}`"
            for column in schema
        )
        return self.spark.sql(f"SELECT {', '.join(columns)} WHERE false")

    def replace(self, name: str, rows: DataFrame) -> int:
        """Replace a table; return how many rows it has."""
        return self._replace(name, rows, None)

    def replace_days(self, name: str, rows: DataFrame, *, days: Iterable[date]) -> int:
        """Replace days of a table by rows of these days; a day may have none any more."""
        return self._replace(name, rows, set(days))

    def _replace(self, name: str, rows: DataFrame, days: set[date] | None) -> int:
        table = self.catalog.table(name)
        before = table.files.values() if table is not None else ()
        added = write_files(self.root, name, rows)
        gone = [file for file in before if days is None or file.day in days]
        self.catalog.commit(name, added, gone)
        return sum(file.rows for file in added)

    def merge_in(self, name: str, rows: DataFrame, ids: Collection[str], days: Days) -> Change:
        """Put rows into a table in place of those of the same requests.

        Older rows of the requests `ids` are in files of `days`, if anywhere; these are written anew
        without them. Other requests have none. Raises `LakeError` where nothing can be written.
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
        """Write files anew without the rows of requests; return the new ones, and the old ones."""
        paths = [(file.path,) for file in files]
        frame = self.spark.createDataFrame(paths, "path string").repartition(len(paths))
        without = Without(self.root, name, pa.array(sorted(ids)))
        found = added_by(frame.mapInArrow(without, f"{ADDED}, gone string"))
        gone = {row["gone"] for row in found if row["gone"]}
        kept = [Added(*(row[key] for key in Added._fields)) for row in found if row["path"]]
        return kept, [file for file in files if file.path in gone]


class Change(NamedTuple):
    """What was put into a table: how many rows, and the days of which it has others now."""

    rows: int
    days: set[date]


def write_files(root: str, name: str, rows: DataFrame) -> list[Added]:
    """Have Spark's tasks write rows as files of a table, which no version of it has yet.

    Raises `LakeError` where they cannot be written.
    """
    writer = Writer(root, name, is_by_day(name))
    # Each task's batches are its own, whatever Spark repeats: files of the others are nobody's.
    found = added_by(rows.select(*columns_of(name)).mapInArrow(writer, ADDED))
    return [Added(*(row[key] for key in Added._fields)) for row in found]


def added_by(tasks: DataFrame) -> list[dict[str, Any]]:
    """Have tasks write files; return what they tell of each.

    Raises `LakeError` where one of them cannot.
    """
    told: list[dict[str, Any]] = tasks.toArrow().to_pylist()
    if failures := [row["failure"] for row in told if row["failure"]]:
        raise LakeError(f"{failures[0]}; what was there before is unchanged")
    return told


def columns_of(table: str) -> list[str]:
    """Return the names of the declared columns of a table, without asking Spark."""
    return list(schemas.columns_of(schemas.TABLES[table]))


def schema_of(table: str) -> StructType:
    """Return the declared columns of a table, with their comments."""
    declared = schemas.TABLES[table]
    schema = cast(StructType, StructType.fromDDL(declared))
    for column in schema:
        column.metadata = {"comment": declared.comments[column.name]}
    return schema
