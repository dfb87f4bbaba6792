"""Instants and durations in columns.

A wall clock may be set back while a request is in flight. A negative duration counts as 0, and the
request is marked (`clock_went_back`), so that the runner can count such requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

MINUTE_US: Final = 60 * 10**6
PERIOD_US: Final = 10 * MINUTE_US
"""Gold is recomputed by periods of ten minutes: those that contain a run's new rows."""
DAY_US: Final = 24 * 3600 * 10**6
_1970: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH: Final = _1970.toordinal()


Instant = datetime | Column
"""An instant: a value, or a column of a query."""

WITHOUT_DEADLINE_US: Final = MINUTE_US
"""How long a request without a deadline and without an outcome counts as waiting."""


def still_waiting_us(until: Instant, begin_us: Column, deadline: Column) -> Column:
    """Return until when an open request counts as waiting: `until`, or its deadline if earlier."""
    given_up = F.coalesce(micros(deadline), begin_us + F.lit(WITHOUT_DEADLINE_US))
    return F.least(micros(F.lit(until)), given_up)


def micros(instant: Column) -> Column:
    """Return an instant as microseconds since 1970."""
    return F.unix_micros(instant)


def instant_us(instant: datetime) -> int:
    """Return a Python instant as microseconds since 1970."""
    return (instant - _1970) // timedelta(microseconds=1)


def later(instant: Column, seconds: float) -> Column:
    """Return the instant `seconds` later."""
    return F.timestamp_micros(micros(instant) + F.lit(round(seconds * 1e6)))


def elapsed_ms(start: Column, end: Column) -> Column:
    """Return the milliseconds from start to end; negative where the clock went back."""
    return (micros(end) - micros(start)) / F.lit(1000.0)


def not_negative(duration: Column) -> Column:
    """Return a duration, or 0 where it is negative; null stays null."""
    return F.when(duration < 0, F.lit(0.0)).otherwise(duration)


def minute_of(instant: Column) -> Column:
    """Return the start of an instant's minute; independent of the session's time zone."""
    return F.timestamp_micros(micros(instant) - F.pmod(micros(instant), F.lit(MINUTE_US)))


Periods = Sequence[range]
"""Disjoint whole periods in order, as ranges of microseconds since 1970."""

_RANGES_MAX: Final = 16


def minutes_of(begin_us: Column, end_us: Column, within: Periods | None = None) -> Column:
    """Return the minutes that a time span overlaps, as an array of microseconds since 1970.

    `within` limits the result to some periods; without it, a wrong clock can yield centuries of
    minutes.
    """
    return _steps(begin_us, end_us, MINUTE_US, within)


def periods_of(begin_us: Column, end_us: Column, within: Periods | None = None) -> Column:
    """Return the periods that a time span overlaps, in the form of `minutes_of`."""
    return _steps(begin_us, end_us, PERIOD_US, within)


def _steps(begin_us: Column, end_us: Column, step_us: int, within: Periods | None) -> Column:
    first = begin_us - F.pmod(begin_us, F.lit(step_us))
    last = F.greatest(begin_us, end_us - 1)
    if within:
        first = F.greatest(first, F.lit(within[0].start))
        last = F.least(last, F.lit(within[-1].stop - 1))
    steps = F.sequence(first, last, F.lit(step_us))
    found = F.when(first <= last, steps).otherwise(F.array().cast("array<bigint>"))
    if within and len(within) > 1:
        return F.filter(found, lambda at: is_within(at, within))
    return found


def is_within(us: Column, periods: Periods) -> Column:
    """Whether an instant, in microseconds since 1970, is in one of the periods."""
    inside = ((us >= F.lit(each.start)) & (us < F.lit(each.stop)) for each in periods)
    return reduce(or_, inside, F.lit(False))


def period_of(first_us: int, last_us: int) -> range:
    """Return the range of periods from one instant to another."""
    return range(first_us - first_us % PERIOD_US, last_us - last_us % PERIOD_US + PERIOD_US)


def period_us(us: Column) -> Column:
    """Return the start of an instant's period."""
    return us - F.pmod(us, F.lit(PERIOD_US))


def joined(periods: Iterable[range]) -> list[range]:
    """Sort and merge periods; close the smallest gaps until at most 16 ranges are left."""
    ranges: list[range] = []
    for each in sorted(periods, key=lambda each: each.start):
        if ranges and each.start <= ranges[-1].stop:
            ranges[-1] = range(ranges[-1].start, max(ranges[-1].stop, each.stop))
        else:
            ranges.append(each)
    while len(ranges) > _RANGES_MAX:
        gaps = [after.start - before.stop for before, after in pairwise(ranges)]
        at = gaps.index(min(gaps))
        ranges[at : at + 2] = [range(ranges[at].start, ranges[at + 1].stop)]
    return ranges


def periods_of_days(days: Iterable[date]) -> list[range]:
    """Return the periods of days."""
    return joined(range(start, start + DAY_US) for start in map(_day_us, days))


def common(some: Periods, others: Periods) -> list[range]:
    """Return the intersection of two lists of periods."""
    pairs = ((a, b) for a in some for b in others if a.start < b.stop and b.start < a.stop)
    return [range(max(a.start, b.start), min(a.stop, b.stop)) for a, b in pairs]


def days_of(periods: Periods) -> set[date]:
    """Return the days that periods overlap."""
    numbers = (range(each.start // DAY_US, -(-each.stop // DAY_US)) for each in periods)
    return {date.fromordinal(_EPOCH + number) for each in numbers for number in each}


def _day_us(day: date) -> int:
    return (day.toordinal() - _EPOCH) * DAY_US


def until_next_day(begin_us: Column, end_us: Column) -> Column:
    """Limit an end to the end of the day after the beginning.

    Longer spans are recorded on their first two days only, so a day is computed from itself and
    the day before.
    """
    day = F.floor(begin_us / F.lit(DAY_US))
    return F.least(end_us, (day + 2) * F.lit(DAY_US))


def date_of(instant: Column) -> Column:
    """Return the UTC day of an instant; independent of the session's time zone."""
    return F.date_from_unix_date(F.floor(micros(instant) / F.lit(DAY_US)).cast("int"))


def dated(own: Column, events: Column) -> Column:
    """Return the day of a request: that of its acceptance, else of its first event."""
    return date_of(F.coalesce(F.array_min(own["ts"]), F.get(events, 0)["ts"]))
