"""A lake: a folder with a folder per table, which only one run at a time may change.

    LAKE/bronze_events/date=…/batch=…/    LAKE/silver_requests/date=…/    …and so on
    LAKE/_checkpoints/    how far the journal has been read
    LAKE/_requite/lake.json    marks the folder as ours, and names the journal that it is fed by
    LAKE/_requite/state.json   how far silver and gold have followed
    LAKE/_requite/lock         held by the run that is at work

The folder has to be one that this process sees (a disk or a mount); tables are read and written by
Spark alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final, cast

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructType

from requite.errors import ConfigurationError
from requite.spark import schemas

FORMAT: Final = 1
"""The layout of lakes; one with a higher number was made by a newer requite."""

OUR_FOLDER: Final = "_requite"
MARKER: Final = "lake.json"
BATCH: Final = "batch"


@dataclass(frozen=True, slots=True)
class Lake:
    """The tables in a folder, for one session."""

    spark: SparkSession
    root: Path
    table_format: str = "parquet"

    def path(self, table: str) -> str:
        """Return where a table is."""
        return str(self.root / table)

    def table(self, name: str) -> DataFrame:
        """Return a table with the columns that `schemas` declares; one not there yet is empty."""
        return self._read(name, schema_of(name)).select(*columns_of(name))

    def batches(self, name: str) -> DataFrame:
        """Return a table of bronze, with the number of the batch that brought each row."""
        return self._read(name, schema_of(name).add(BATCH, LongType()))

    def _read(self, name: str, schema: StructType) -> DataFrame:
        # Schemas are always given: a table without rows has no file to take them from.
        reader = self.spark.read.format(self.table_format).schema(schema)
        try:
            frame = reader.load(self.path(name))
            frame.schema.names  # noqa: B018 - over Spark Connect nothing is looked for before
            return frame
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return self._empty(schema)

    def _empty(self, schema: StructType) -> DataFrame:
        # Not `createDataFrame`, which has Python workers make the rows, even none.
        columns = (
            f"CAST(NULL AS {column.dataType.simpleString()}) AS `{column.name}`"
            for column in schema
        )
        return self.spark.sql(f"SELECT {', '.join(columns)} WHERE false")

    def replace(self, name: str, rows: DataFrame) -> None:
        """Replace a table that is not kept by day."""
        rows.write.format(self.table_format).mode("overwrite").save(self.path(name))

    def replace_days(self, name: str, rows: DataFrame, *, days: Sequence[date]) -> None:
        """Replace days of a table by rows of these days; a day may have none any more."""
        if self.table_format == "delta":
            listed = ", ".join(f"'{day}'" for day in days)
            write_partitions(rows, self, name, ["date"], replaceWhere=f"date in ({listed})")
            return
        before = {day: self._files(name, day) for day in days}
        write_partitions(rows, self, name, ["date"])
        # Overwriting replaces the days of which there are rows; the others have to go as well.
        for day, files in before.items():
            if files and self._files(name, day) == files:
                shutil.rmtree(self._folder(name, day))

    def _folder(self, name: str, day: date) -> Path:
        return self.root / name / f"date={day.isoformat()}"

    def _files(self, name: str, day: date) -> frozenset[str]:
        folder = self._folder(name, day)
        return frozenset(os.listdir(folder)) if folder.is_dir() else frozenset()


def columns_of(table: str) -> list[str]:
    """Return the names of the declared columns of a table, without asking Spark."""
    ddl: str = getattr(schemas, table.upper())
    return [column.split()[0] for column in ddl.split(",")]


def schema_of(table: str) -> StructType:
    """Return the declared columns of a table."""
    return cast(StructType, StructType.fromDDL(getattr(schemas, table.upper())))


def write_partitions(
    rows: DataFrame, lake: Lake, name: str, partitions: Sequence[str], **options: Any
) -> None:
    """Replace those partitions of a table of which there are rows."""
    options = options or {"partitionOverwriteMode": "dynamic"}
    writer = rows.write.format(lake.table_format).mode("overwrite").options(**options)
    writer.partitionBy(*partitions).save(lake.path(name))


def claim(root: Path, journal: str) -> None:
    """Make a folder a lake for a journal, or see that it is one.

    Raises `ConfigurationError` where it is something else, and touches nothing then.
    """
    marker = root / OUR_FOLDER / MARKER
    if marker.is_file():
        _check(root, _load(marker), journal)
        return
    if root.exists() and not _is_blank(root):
        raise ConfigurationError(
            f"{root} is not empty and not a lake of requite: nothing was touched; "
            "name a new folder, or an empty one"
        )
    try:
        marker.parent.mkdir(parents=True, exist_ok=True)
        save(marker, {"format": FORMAT, "journal": journal})
    except OSError as error:
        raise ConfigurationError(f"no lake can be made at {root}: {error.strerror}") from error


def _is_blank(root: Path) -> bool:
    """Whether a folder holds nothing, or only what a run that died at once has left of ours."""
    if not root.is_dir():
        return False
    ours = root / OUR_FOLDER
    if any(entry != ours for entry in root.iterdir()):
        return False
    if not ours.exists():
        return True
    draft = _draft(ours / MARKER)
    return ours.is_dir() and all(entry == draft for entry in ours.iterdir())


def _check(root: Path, marker: dict[str, Any], journal: str) -> None:
    if marker.get("format", 0) > FORMAT:
        raise ConfigurationError(f"the lake at {root} was made by a newer version of requite")
    fed_by = marker.get("journal")
    if fed_by != journal:
        raise ConfigurationError(
            f"the lake at {root} is fed by the journal {fed_by}: name another lake, a new folder, "
            f"for the journal {journal}; or, if it is the same one, which was moved, write its new "
            f"path into {root / OUR_FOLDER / MARKER}"
        )


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Keep every other run out of a lake; the lock goes with the process, however that ends."""
    with (root / OUR_FOLDER / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise ConfigurationError(
                f"another run (process {holder}) is at work on the lake at {root}; "
                "try again when it is done"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _load(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise ConfigurationError(f"{path} is damaged; put it back, or name another lake")
    return record


def load(path: Path) -> dict[str, Any]:
    """Read one of our own files; one that is not there yet is empty."""
    return _load(path) if path.exists() else {}


def _draft(path: Path) -> Path:
    return path.with_suffix(".new")


def save(path: Path, record: dict[str, Any]) -> None:
    """Write one of our own files, whole or not at all."""
    draft = _draft(path)
    with draft.open("w", encoding="utf-8") as file:
        json.dump(record, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
