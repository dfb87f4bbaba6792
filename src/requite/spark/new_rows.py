"""The new rows that a run finds in bronze, and the days that they affect."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pyspark.sql import functions as F

from requite.spark.aliases import is_made_up
from requite.spark.bronze import EVENTS
from requite.spark.clock import micros
from requite.spark.lake import Lake
from requite.story.vocabulary import ACCEPTED, CLOSED, DECISIONS, DROPPED

DAYS_AT_ONCE: Final = 7
"""Days computed together: enough to use all cores, few enough for the memory of a small machine."""

EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATEST: Final = datetime.max.replace(tzinfo=UTC)
"""The first and the last instant that a journal can hold; spans are limited to them."""


class Span(NamedTuple):
    """A time span: two instants."""

    start: datetime
    end: datetime

    @classmethod
    def of(cls, record: Sequence[str]) -> Span:
        """Parse a span from the form of `record`."""
        start, end = map(datetime.fromisoformat, record)
        return cls(start, end)

    def record(self) -> list[str]:
        """Return the span for JSON."""
        return [self.start.isoformat(), self.end.isoformat()]

    def moved(self, after: Span) -> list[datetime]:
        """Return the old and new instants of each end that differs in a later span."""
        pairs = zip(self, after, strict=True)
        return [end for was, now in pairs if was != now for end in (was, now)]


class NewRows(NamedTuple):
    """Summary of the events that are not yet in silver and gold.

    `spans`: first to last event of each day; `deadline_s`: the longest time from acceptance to
    deadline; `dropped`: number of events that the journal lost; `ended`: closed logs; `heard_us`:
    instant of each log's newest event, in microseconds since 1970; `made_up`: whether brokers made
    up ids; `decisions`: whether there are access decisions.
    """

    events: int = 0
    spans: tuple[Span, ...] = ()
    deadline_s: float = 0.0
    dropped: int = 0
    ended: frozenset[str] = frozenset()
    heard_us: Mapping[str, int] = MappingProxyType({})
    made_up: bool = False
    decisions: bool = False


def find(lake: Lake) -> NewRows:
    """Summarise all events in bronze."""
    given_us = F.when(F.col("kind") == ACCEPTED, micros(F.col("deadline")) - micros(F.col("ts")))
    by_day = (
        lake.table(EVENTS)
        .groupBy("date")
        .agg(
            F.count("*").alias("events"),
            F.min("ts").alias("start"),
            F.max("ts").alias("end"),
            F.max(given_us).alias("given_us"),
            F.sum(F.when(F.col("kind") == DROPPED, F.col("dropped"))).alias("dropped"),
            F.collect_set(F.when(F.col("kind") == CLOSED, F.col("log"))).alias("ended"),
            F.coalesce(F.bool_or(is_made_up(F.col("request_id"))), F.lit(False)).alias("made_up"),
            F.coalesce(F.bool_or(F.col("kind").isin(*DECISIONS)), F.lit(False)).alias("decisions"),
        )
    )
    return _gathered(by_day.toArrow().to_pylist())


def _gathered(rows: list[dict[str, Any]]) -> NewRows:
    return NewRows(
        events=sum(row["events"] for row in rows),
        spans=tuple(Span(row["start"], row["end"]) for row in rows),
        deadline_s=max((row["given_us"] or 0 for row in rows), default=0) / 1e6,
        dropped=sum(row["dropped"] or 0 for row in rows),
        ended=frozenset(log for row in rows for log in row["ended"]),
        made_up=any(row["made_up"] for row in rows),
        decisions=any(row["decisions"] for row in rows),
    )


def known_days(lake: Lake, worst_us: int = 0) -> list[date]:
    """Return the days of bronze's events, widened by a clock error of up to `worst_us`."""
    table = lake.catalog.table(EVENTS)
    days = {file.day for file in table.files.values() if file.day} if table else set()
    return sorted(widened(days, timedelta(microseconds=worst_us)))


def widened(days: Collection[date], by: timedelta) -> set[date]:
    """Return days, and the days before and after them within `by`."""
    more = -(-by // timedelta(days=1))
    return {
        date.fromordinal(number)
        for day in days
        for number in range(
            max(day.toordinal() - more, date.min.toordinal()),
            min(day.toordinal() + more, date.max.toordinal()) + 1,
        )
    }


def touched(spans: Iterable[Span], look_back: timedelta, known: Iterable[date]) -> set[date]:
    """Return the `known` days that events of these spans may change.

    An event may belong to a request that was accepted up to `look_back` earlier or, if the logs of
    several machines arrive at different times, to a request with later events.

    A look-back may be years long (a distant deadline), so its days are not enumerated.
    """
    widened = [_days(widen(span, look_back)) for span in spans]
    return {day for day in known if any(first <= day <= last for first, last in widened)}


def widen(span: Span, by: timedelta) -> Span:
    """Return a span extended at both ends, limited to `EARLIEST` and `LATEST`."""
    return Span(span.start - min(by, span.start - EARLIEST), span.end + min(by, LATEST - span.end))


def hull(spans: Sequence[Span]) -> Span | None:
    """Return the shortest span that contains all spans; None for no spans."""
    if not spans:
        return None
    return Span(min(span.start for span in spans), max(span.end for span in spans))


def _days(span: Span) -> tuple[date, date]:
    """Return the first and the last UTC day that a span overlaps."""
    return span.start.astimezone(UTC).date(), span.end.astimezone(UTC).date()


def runs_of(days: Iterable[date]) -> Iterator[list[date]]:
    """Yield runs of consecutive days, at most `DAYS_AT_ONCE` each."""
    run: list[date] = []
    for day in sorted(days):
        if run and (day - run[-1] > timedelta(days=1) or len(run) == DAYS_AT_ONCE):
            yield run
            run = []
        run.append(day)
    if run:
        yield run
