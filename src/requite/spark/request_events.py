"""Finds all events of the requests that a run affects, of any age.

The unit of work is the request: it is computed from all of its events, and from no others. New
events are in the files that the run added to bronze. The table `bronze_ids` shows whether there are
older ones, and on which days: it has the range of each client's request ids per day. A client
numbers its requests, so few of these ranges overlap.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from requite.spark.bronze import CLIENT_DIGITS, EVENTS, IDS
from requite.spark.decoding.columns import arrow_types
from requite.spark.delta.files import filesystem, with_day
from requite.spark.delta.table import File
from requite.spark.lake import Lake, schema_of
from requite.spark.new_rows import widened
from requite.spark.schemas import BRONZE_EVENTS

KNOWN_MAX: Final = 200_000
"""Maximum number of requests that are merged; for more, their days are recomputed."""

_PAIRS_MAX: Final = 8 * KNOWN_MAX


class Known(NamedTuple):
    """Requests with events from earlier runs: their ids, and all days of these events."""

    ids: tuple[str, ...]
    days: frozenset[date]


NOBODY: Final = Known((), frozenset())


def named(events: DataFrame) -> DataFrame:
    """Return the events that have a request id."""
    return events.where(F.col("request_id").isNotNull())


def met(ids: DataFrame, ranges: DataFrame) -> DataFrame:
    """Return the ids that are in ranges of `bronze_ids`, with the days: `request_id`, `day`."""
    asked = ids.select(
        "request_id", F.substring("request_id", 1, CLIENT_DIGITS).alias("client")
    ).distinct()
    is_in = F.col("request_id").between(F.col("first_id"), F.col("last_id"))
    return asked.join(ranges, "client").where(is_in).select("request_id", "day").distinct()


def known(ids: DataFrame, ranges: DataFrame) -> Known:
    """Return the ids that may have events from earlier runs, by the ranges of these runs.

    Of very many ids, only some are returned, but all days.
    """
    pairs = met(ids, ranges)
    found = pairs.limit(_PAIRS_MAX).toArrow()
    days = found.column("day")
    if found.num_rows == _PAIRS_MAX:
        days = pairs.select("day").distinct().toArrow().column("day")
    chosen = found.column("request_id").unique().to_pylist()
    return Known(tuple(chosen), frozenset(days.unique().to_pylist()))


def id_ranges(events: DataFrame) -> DataFrame:
    """Return the ranges of the request ids in events: the table `bronze_ids`."""
    request_id = F.col("request_id")
    client = F.substring(request_id, 1, CLIENT_DIGITS).alias("client")
    grouped = named(events).groupBy(client, F.col("date").alias("day"))
    return grouped.agg(F.min(request_id).alias("first_id"), F.max(request_id).alias("last_id"))


@contextmanager
def of_requests(lake: Lake, fresh: Sequence[File], known: Known) -> Iterator[DataFrame]:
    """Yield the events in new files of bronze, and the older events of known requests."""
    new_events = named(lake.rows(EVENTS, fresh))
    new = {file.path for file in fresh}
    listed = lake.catalog.files(EVENTS, lambda day: day in known.days)
    older = [file for file in listed if file.path not in new]
    if not older:
        yield new_events
        return
    paths = lake.spark.createDataFrame([(file.path,) for file in older], "path string")
    lookup = _Lookup(lake.root, pa.array(known.ids, pa.string()))
    found = paths.repartition(len(older)).mapInArrow(lookup, schema_of(EVENTS)).persist()
    try:
        yield new_events.unionAll(found)
    finally:
        found.unpersist()


@dataclass(frozen=True)
class _Lookup:
    """Finds the events of requests in files of bronze; for `mapInArrow` of file paths.

    Spark would decode all columns of all rows; this reads the ids first.
    """

    root: str
    ids: pa.Array

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = filesystem(self.root)
        for batch in batches:
            for path in batch.column(0).to_pylist():
                with store.open_input_file(f"{EVENTS}/{path}") as opened:
                    yield from self._found(pq.ParquetFile(opened), path)

    def _found(self, file: pq.ParquetFile, path: str) -> Iterator[pa.RecordBatch]:
        types = arrow_types(BRONZE_EVENTS)
        for group in range(file.num_row_groups):
            column = file.read_row_group(group, columns=["request_id"]).column(0)
            is_asked = pc.is_in(column, self.ids)
            if pc.any(is_asked).as_py():
                rows = file.read_row_group(group).filter(is_asked)
                for batch in rows.to_batches():
                    yield with_day(batch, path, types)


def of_days(lake: Lake, days: Collection[date], slack: timedelta = timedelta(0)) -> DataFrame:
    """Return the events of days, and the events of other days of the same requests.

    `slack` is the largest clock error, by which events may be on other days in bronze.
    """
    near = widened(days, slack)
    inside = lake.table(EVENTS, lambda day: day in near)
    others = {file.day for file in lake.catalog.files(EVENTS)} - near - {None}
    if not others:
        return inside
    ranges = lake.table(IDS).where(F.col("day").isin(*others))
    found = met(inside.select("request_id"), ranges).persist()
    where = set(found.select("day").distinct().toArrow().column("day").to_pylist())
    if not where:
        return inside
    older = lake.table(EVENTS, lambda day: day in where)
    ids = found.select("request_id").distinct()
    return inside.unionAll(older.join(ids, "request_id", "left_semi").select(*inside.columns))
