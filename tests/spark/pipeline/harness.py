"""A pipeline from a growing journal to a lake, for tests of runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from tests.spark.events import Event, EventBuilder, collect

from requite.spark import runner
from requite.spark.lake import Lake
from requite.spark.refresh import Progress
from requite.spark.runner import RunSummary
from requite.spark.source.marks import Offset
from requite.spark.source.reread import Rereading, Skipped


class Pipeline:
    """A growing journal, as Parquet files with the columns of the source, and its lake."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.journal, self.root = folder / "journal", folder / "lake"
        self.journal.mkdir()
        self.builder = EventBuilder()
        self.steps: list[Progress] = []

    def write(self, damaged: list[Event] | None = None) -> None:
        """Write the events that were added since the last write to the journal."""
        self.builder.write_source(self.journal, damaged)

    def run(self, **options: Any) -> RunSummary:
        self.steps.clear()
        return runner.run(
            self.spark,
            self.journal,
            self.root,
            open_source=ParquetSource,
            on_progress=self.steps.append,
            **options,
        )

    def rows(self, name: str) -> list[dict[str, Any]]:
        return collect(Lake.at(self.spark, self.root).table(name))

    def verdicts(self) -> dict[str, tuple[str, Any]]:
        return {
            row["request_id"]: (row["verdict"], row["date"]) for row in self.rows("audit_verdicts")
        }


class ParquetSource:
    """The files that `EventBuilder.write_source` wrote; an offset is a list of files."""

    def __init__(self, journal: str) -> None:
        self._journal = journal

    def initialOffset(self) -> Offset:
        return {"files": []}

    def latestOffset(self, start: Offset, limit: object) -> Offset:
        found = {str(path) for path in Path(self._journal).glob("*.parquet")}
        return {"files": sorted({*start["files"], *found})}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return [InputPartition(file) for file in end["files"] if file not in start["files"]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from pq.ParquetFile(partition.value).iter_batches()

    def note(self, segments: object, end: Offset, since_ns: int) -> list[Skipped]:
        return []

    def reread(self, skipped: Collection[Skipped], start: Offset) -> Rereading:
        return Rereading(start)

    def faults(self, ended: Collection[str]) -> list[str]:
        return []

    def behind(self) -> list[str]:
        path = Path(self._journal, "behind")
        return path.read_text().split() if path.exists() else []
