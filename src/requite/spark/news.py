"""What a run finds new in bronze, and which days that touches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final, NamedTuple

from pyspark.sql import functions as F

from requite.spark.clock import micros
from requite.spark.ingest import EVENTS
from requite.spark.lake import BATCH, Lake
from requite.spark.vocabulary import ACCEPTED

DAYS_AT_ONCE: Final = 7
"""Days that are computed together: enough to use all cores, few enough to fit a small machine."""


class Span(NamedTuple):
    """From one instant to another."""

    start: datetime
    end: datetime


class News(NamedTuple):
    """The batches that silver and gold do not know yet.

    `spans` tells, for each day of which there are events, from when to when; `deadline_s` is the
    longest time that any of the requests was given.
    """

    batch: int = -1
    events: int = 0
    spans: tuple[Span, ...] = ()
    deadline_s: float = 0.0


def find(lake: Lake, after: int) -> News:
    """Look at the batches after one."""
    fresh = lake.batches(EVENTS).where(F.col(BATCH) > after)
    given_us = F.when(F.col("kind") == ACCEPTED, micros(F.col("deadline")) - micros(F.col("ts")))
    by_day = fresh.groupBy("date").agg(
        F.count("*").alias("events"),
        F.min("ts").alias("start"),
        F.max("ts").alias("end"),
        F.max(given_us).alias("given_us"),
        F.max(BATCH).alias(BATCH),
    )
    return _gathered(by_day.toArrow().to_pylist(), after)


def _gathered(rows: list[dict[str, Any]], after: int) -> News:
    return News(
        batch=max((row[BATCH] for row in rows), default=after),
        events=sum(row["events"] for row in rows),
        spans=tuple(Span(row["start"], row["end"]) for row in rows),
        deadline_s=max((row["given_us"] or 0 for row in rows), default=0) / 1e6,
    )


def touched(spans: Iterable[Span], look_back: timedelta) -> set[date]:
    """Return the days that events of these spans may change.

    An event may belong to a request that was accepted up to `look_back` earlier; and where logs of
    several machines come at different times, to one of which later events are known already.
    """
    days: set[date] = set()
    for span in spans:
        days.update(days_of(Span(span.start - look_back, span.end + look_back)))
    return days


def days_of(span: Span) -> Iterator[date]:
    """Yield the days, in UTC, of which a span has a part."""
    day = span.start.astimezone(UTC).date()
    last = span.end.astimezone(UTC).date()
    while day <= last:
        yield day
        day += timedelta(days=1)


def runs_of(days: Iterable[date]) -> Iterator[list[date]]:
    """Yield days that follow each other, not too many at once."""
    run: list[date] = []
    for day in sorted(days):
        if run and (day - run[-1] > timedelta(days=1) or len(run) == DAYS_AT_ONCE):
            yield run
            run = []
        run.append(day)
    if run:
        yield run


def reach(days: list[date], look_back: timedelta) -> Span:
    """Return when the events of the requests of these days may have happened."""
    start = datetime.combine(days[0], time(), UTC)
    end = datetime.combine(days[-1], time(), UTC) + timedelta(days=1)
    return Span(start - look_back, end + look_back)
