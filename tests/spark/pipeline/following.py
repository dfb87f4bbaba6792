"""A lake that follows a journal, for tests of runs: a story is told, written, and read again."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from tests.spark.events import Event, Story, collect

from requite.spark import runner
from requite.spark.lake import Lake
from requite.spark.refresh import Progress
from requite.spark.runner import RunSummary
from requite.spark.source.marks import Offset
from requite.spark.source.reread import Rereading, Skipped


class Pipeline:
    """A journal that grows (as files of Parquet with the source's columns), and its lake."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.journal, self.root = folder / "journal", folder / "lake"
        self.journal.mkdir()
        self.story = Story()
        self.steps: list[Progress] = []

    def write(self, damaged: list[Event] | None = None) -> None:
        """Add what the story has told since the last time to the journal."""
        self.story.write_source(self.journal, damaged)

    def run(self, **options: Any) -> RunSummary:
        self.steps.clear()
        return runner.run(
            self.spark,
            self.journal,
            self.root,
            open_source=Written,
            on_progress=self.steps.append,
            **options,
        )

    def rows(self, name: str) -> list[dict[str, Any]]:
        return collect(Lake.at(self.spark, self.root).table(name))

    def verdicts(self) -> dict[str, tuple[str, Any]]:
        return {
            row["request_id"]: (row["verdict"], row["date"]) for row in self.rows("audit_verdicts")
        }


class Written:
    """What `Story.write_source` has written: an offset is a list of files."""

    def __init__(self, journal: str) -> None:
        self._journal = journal

    def initialOffset(self) -> Offset:
        return {"files": []}

    def latestOffset(self, start: Offset, limit: object) -> Offset:
        there = {str(path) for path in Path(self._journal).glob("*.parquet")}
        return {"files": sorted({*start["files"], *there})}

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
        told = Path(self._journal, "behind")
        return told.read_text().split() if told.exists() else []
