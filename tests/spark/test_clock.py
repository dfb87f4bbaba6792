"""Periods, which are ranges of microseconds: joined, intersected, and by day."""

from __future__ import annotations

from datetime import date
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from requite.spark.clock import (
    DAY_US,
    PERIOD_US,
    common,
    days_of,
    joined,
    period_of,
    periods_of_days,
)

TODAY = date(2026, 3, 2)

spans = st.tuples(st.integers(-200, 400), st.integers(0, 40)).map(
    lambda span: range(span[0] * PERIOD_US, (span[0] + span[1] + 1) * PERIOD_US)
)


def numbers(periods: list[range]) -> set[int]:
    return {start // PERIOD_US for each in periods for start in each[::PERIOD_US]}


def test_a_period_has_ten_minutes_and_both_its_instants():
    assert period_of(PERIOD_US - 1, PERIOD_US) == range(2 * PERIOD_US)
    assert period_of(PERIOD_US, PERIOD_US) == range(PERIOD_US, 2 * PERIOD_US)
    assert PERIOD_US == 600_000_000


@given(st.lists(spans, max_size=16))
def test_periods_that_touch_become_one(periods: list[range]):
    found = joined(periods)
    assert numbers(found) == numbers(periods)
    assert all(a.stop < b.start for a, b in pairwise(found))


@given(st.lists(spans, min_size=17, max_size=60))
def test_joining_many_periods_loses_none(periods: list[range]):
    found = joined(periods)
    assert len(found) <= 16
    assert numbers(periods) <= numbers(found)


@given(st.lists(spans, max_size=8), st.lists(spans, max_size=8))
def test_common_periods_are_in_both(some: list[range], others: list[range]):
    found = common(joined(some), joined(others))
    assert numbers(found) == numbers(some) & numbers(others)


def test_days_are_periods_and_back():
    tomorrow = date(2026, 3, 3)
    (both,) = periods_of_days([tomorrow, TODAY])
    assert both.stop - both.start == 2 * DAY_US
    assert days_of([both]) == {TODAY, tomorrow}
    assert days_of([range(both.start + DAY_US, both.start + DAY_US + 1)]) == {tomorrow}
    assert days_of([]) == set()
