"""From the journal into bronze: what is new, exactly once, in batches that can be repeated.

Spark notes in the checkpoint what belongs to a batch before the batch is read, and that it is done
afterwards. Delta's log names the last batch of the query that each table of bronze has. A run that
dies in between repeats the batch; what is there already is not written again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from requite.spark import bronze
from requite.spark.delta.catalog import Catalog
from requite.spark.delta.table import Table, Transaction
from requite.spark.lake import Lake, write_files

EVENTS: Final = "bronze_events"
QUARANTINE: Final = "bronze_quarantine"

_END: Final = "end of batch"


class Reading(NamedTuple):
    """How batches of the checkpoint become batches of bronze.

    Where a checkpoint was lost, the journal is read once more from its beginning, and `again` says
    that what bronze has already has to be left out.
    """

    root: str
    run: int
    checkpoint: str
    again: bool = False


def journal_stream(lake: Lake, journal: str) -> DataFrame:
    """Return the journal as a stream."""
    return lake.spark.readStream.format("requite").load(journal)


def ingest(
    lake: Lake, open_stream: Callable[[], DataFrame], state: Mapping[str, Any]
) -> dict[str, Any]:
    """Read what the journal has had since the last time, write it to bronze, and stop.

    `state` is what the last run's end has returned; return what the next one needs.
    """
    checkpoint = Checkpoint(Path(lake.root) / "_checkpoints" / "bronze")
    events = lake.catalog.table(EVENTS)
    if not checkpoint.fits(events, state.get("offsets")):
        checkpoint.forget()
    has_events = events is not None and bool(events.files)
    again = has_events and state.get("query") != checkpoint.query
    reading = Reading(lake.root, lake.catalog.run, str(checkpoint.folder), again)
    writer = open_stream().writeStream.foreachBatch(partial(_write, reading))
    place = str(checkpoint.folder)
    query = writer.option("checkpointLocation", place).trigger(availableNow=True).start()
    query.awaitTermination()
    for name in (EVENTS, QUARANTINE):
        lake.catalog.reopen(name)
    return {"query": checkpoint.query, "offsets": checkpoint.offsets_digest()}


class Checkpoint:
    """Spark's checkpoint of the query that reads the journal: a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def query(self) -> str | None:
        """The id of the query; None before the first start."""
        file = self.folder / "metadata"
        try:
            return str(json.loads(file.read_text(encoding="utf-8"))["id"])
        except (OSError, ValueError, KeyError, TypeError):
            return None  # lost, or damaged, which is the same

    @property
    def done(self) -> int:
        """The number of the last batch of which Spark knows that it was written; -1: none."""
        return self._last("commits")

    def _last(self, kind: str) -> int:
        """Return the number of the newest file of a kind, -1 where there is none."""
        folder = self.folder / kind
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def offsets_digest(self) -> str | None:
        """Return what tells the newest offsets from others."""
        last = self._last("offsets")
        if last < 0:
            return None
        return hashlib.sha256((self.folder / "offsets" / str(last)).read_bytes()).hexdigest()

    def fits(self, events: Table | None, offsets: str | None) -> bool:
        """Whether it tells of the very batches that the events are of.

        One that does not has been damaged, or belongs to another lake.
        """
        planned, done = self._last("offsets"), self.done
        query = self.query
        written = events.committed(query) if events is not None and query is not None else -1
        if not done <= written <= planned <= done + 1:
            return False
        return planned != done or offsets is None or offsets == self.offsets_digest()

    def forget(self) -> None:
        """Remove it, so that the journal is read once more."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _write(reading: Reading, batch: DataFrame, batch_id: int) -> None:
    """Write one batch: its events, and, if there is any, what does not decode.

    It may run in a process of Spark's (over Spark Connect), so it is given only plain values.
    """
    once = Transaction(Checkpoint(Path(reading.checkpoint)).query or "", batch_id)
    lake = Lake(batch.sparkSession, Catalog.of_run(reading.root, reading.run))
    if lake.catalog.has(EVENTS, once):  # it comes last
        return
    seen = Observation(f"batch-{batch_id}")
    counted = _with_end(batch).observe(seen, F.count_if(bronze.is_bad()).alias("bad"))
    events = _new(lake, reading, EVENTS, bronze.bronze_events(counted))
    written = write_files(reading.root, EVENTS, events.where(F.col("kind") != _END))
    # Most journals have no damage, and need not be read a second time for it.
    if seen.get["bad"] and not lake.catalog.has(QUARANTINE, once):
        bad = _new(lake, reading, QUARANTINE, bronze.bronze_quarantine(batch))
        lake.catalog.commit(QUARANTINE, write_files(reading.root, QUARANTINE, bad), (), once)
    lake.catalog.commit(EVENTS, written, (), once)


def _with_end(batch: DataFrame) -> DataFrame:
    """Add a row that is no event: Spark leaves the count of rows out where none gets as far as the
    shuffle, and it could not be asked for.

    Asking whether the batch is empty would not do. It reads its beginning twice; and Spark hangs up
    on the Python worker that reads it, which says so on stderr, with a traceback.
    """
    # No plain literal, of which Spark could tell without running anything what comes of it.
    kind = F.when(F.col("id") == 0, F.lit(_END)).alias("kind")
    end = batch.sparkSession.range(1, numPartitions=1).select(kind)
    return batch.unionByName(end, allowMissingColumns=True)


def _new(lake: Lake, reading: Reading, name: str, rows: DataFrame) -> DataFrame:
    once = bronze.deduplicate(rows)
    return bronze.not_among(once, lake.table(name)) if reading.again else once
