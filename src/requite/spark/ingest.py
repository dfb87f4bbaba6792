"""From the journal into bronze: what is new, exactly once, in batches that can be repeated.

Spark notes in the checkpoint what belongs to a batch before the batch is read, and that it is done
afterwards. A run that dies in between repeats the batch, under the same number, and so replaces
what it had written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from requite.spark import bronze
from requite.spark.lake import BATCH, OUR_FOLDER, Lake, load, save, write_partitions

EVENTS: Final = "bronze_events"
QUARANTINE: Final = "bronze_quarantine"

_END: Final = "end of batch"


class Reading(NamedTuple):
    """How batches of the checkpoint become batches of bronze.

    Spark counts the batches of a checkpoint from 0; `base` is the number of its first one in
    bronze. Where a checkpoint was lost, the journal is read once more from its beginning, and
    `again` says that what bronze has already has to be left out.
    """

    root: str
    table_format: str
    base: int = 0
    again: bool = False


def journal_stream(lake: Lake, journal: str) -> DataFrame:
    """Return the journal as a stream."""
    return lake.spark.readStream.format("requite").load(journal)


def ingest(lake: Lake, open_stream: Callable[[], DataFrame]) -> None:
    """Read what the journal has had since the last time, write it to bronze, and stop."""
    note = lake.root / OUR_FOLDER / "reading.json"
    checkpoint = lake.root / "_checkpoints" / "bronze"
    reading = _reading(lake, load(note), is_new=not (checkpoint / "offsets").is_dir())
    save(note, {"base": reading.base, "again": reading.again})
    writer = open_stream().writeStream.foreachBatch(partial(_write, reading))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    save(note, {"base": reading.base, "again": False})


def _reading(lake: Lake, note: dict[str, Any], *, is_new: bool) -> Reading:
    place = str(lake.root), lake.table_format
    if not is_new:
        return Reading(*place, note.get("base", 0), note.get("again", False))
    base = last_batch(lake, EVENTS) + 1
    return Reading(*place, base, base > 0)


def last_batch(lake: Lake, name: str) -> int:
    """Return the number of the last batch in a table of bronze, -1 where there is none."""
    found = lake.batches(name).agg(F.max(BATCH).alias("last")).toArrow().to_pylist()
    last = found[0]["last"]
    return -1 if last is None else int(last)


def _write(reading: Reading, batch: DataFrame, batch_id: int) -> None:
    """Write one batch: its events, and, if there is any, what does not decode.

    It may run in a process of Spark's (over Spark Connect), so it is given only plain values.
    """
    lake = Lake(batch.sparkSession, Path(reading.root), reading.table_format)
    number = F.lit(reading.base + batch_id).cast("bigint").alias(BATCH)
    seen = Observation(f"batch-{reading.base + batch_id}")
    counted = _with_end(batch).observe(seen, F.count_if(bronze.is_bad()).alias("bad"))
    events = _new(lake, reading, EVENTS, bronze.bronze_events(counted))
    events = events.where(F.col("kind") != _END)
    write_partitions(events.select("*", number), lake, EVENTS, ["date", BATCH])
    # Most journals have no damage, and need not be read a second time for it.
    if seen.get["bad"]:
        bad = _new(lake, reading, QUARANTINE, bronze.bronze_quarantine(batch))
        write_partitions(bad.select("*", number), lake, QUARANTINE, [BATCH])


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
    if not reading.again:
        return once
    return bronze.not_among(once, lake.batches(name).where(F.col(BATCH) < reading.base))
