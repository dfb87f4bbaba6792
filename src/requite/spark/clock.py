"""Instants and durations in columns.

A wall clock may be set back while a request is under way. No duration is negative: it counts as 0,
and the request is marked (`clock_went_back`), so that the runner can tell how many there were.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

MINUTE_US: Final = 60 * 10**6
DAY_US: Final = 24 * 3600 * 10**6


Instant = datetime | Column
"""An instant that is known, or that a query finds out."""

WITHOUT_DEADLINE_US: Final = MINUTE_US
"""How long a request without a deadline, and without an end, counts as waiting."""


def still_waiting_us(until: Instant, begin_us: Column, deadline: Column) -> Column:
    """Return up to when something without an end counts as waiting: `until`, or its deadline."""
    given_up = F.coalesce(micros(deadline), begin_us + F.lit(WITHOUT_DEADLINE_US))
    return F.least(micros(F.lit(until)), given_up)


def micros(instant: Column) -> Column:
    """Return an instant as microseconds since 1970."""
    return F.unix_micros(instant)


def later(instant: Column, seconds: float) -> Column:
    """Return the instant so many seconds later."""
    return F.timestamp_micros(micros(instant) + F.lit(round(seconds * 1e6)))


def elapsed_ms(start: Column, end: Column) -> Column:
    """Return the milliseconds from start to end; negative where the clock went back."""
    return (micros(end) - micros(start)) / F.lit(1000.0)


def not_negative(duration: Column) -> Column:
    """Return a duration, or 0 where it is negative; null stays null."""
    return F.when(duration < 0, F.lit(0.0)).otherwise(duration)


def minute_of(instant: Column) -> Column:
    """Return the minute in which an instant lies, in UTC whatever the session's time zone."""
    return F.timestamp_micros(micros(instant) - F.pmod(micros(instant), F.lit(MINUTE_US)))


def minutes_of(begin_us: Column, end_us: Column, days: Sequence[date] | None) -> Column:
    """Return the minutes, in microseconds since 1970, of which a time has a part: an array.

    Only those between the first and the last of `days`, if any are given: a request may last for
    centuries, and nobody asks for all of their minutes.
    """
    first = begin_us - F.pmod(begin_us, F.lit(MINUTE_US))
    last = F.greatest(begin_us, end_us - 1)
    if days:
        first = F.greatest(first, F.lit(_day_us(min(days))))
        last = F.least(last, F.lit(_day_us(max(days)) + DAY_US - 1))
    minutes = F.sequence(first, last, F.lit(MINUTE_US))
    return F.when(first <= last, minutes).otherwise(F.array().cast("array<bigint>"))


def _day_us(day: date) -> int:
    return (day - date(1970, 1, 1)).days * DAY_US


def until_next_day(begin_us: Column, end_us: Column) -> Column:
    """Return an end, at most that of the day after the one of the beginning.

    What lasts for longer is told of on two days only, so that these two suffice to tell of a day.
    """
    day = F.floor(begin_us / F.lit(DAY_US))
    return F.least(end_us, (day + 2) * F.lit(DAY_US))


def date_of(instant: Column) -> Column:
    """Return the day in which an instant lies, in UTC whatever the session's time zone."""
    return F.date_from_unix_date(F.floor(micros(instant) / F.lit(DAY_US)).cast("int"))


def dated(own: Column, events: Column) -> Column:
    """Return the day to which a request belongs: that of its acceptance, or of its first event."""
    return date_of(F.coalesce(F.array_min(own["ts"]), F.get(events, 0)["ts"]))
