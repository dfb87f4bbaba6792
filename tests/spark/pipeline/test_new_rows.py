"""The days that new events affect."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from requite.spark.new_rows import DAYS_AT_ONCE, LATEST, Span, runs_of, touched, widened

MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)
MARCH = [date(2026, 3, day) for day in range(1, 32)]
CENTURIES = timedelta(days=365 * 300)
INSTANTS = st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31), timezones=st.just(UTC))


def test_events_in_the_middle_of_a_day_touch_that_day() -> None:
    noon = MIDNIGHT + 12 * HOUR
    assert touched([Span(noon, noon + HOUR)], HOUR, MARCH) == {date(2026, 3, 2)}


def test_replies_after_midnight_touch_the_day_before() -> None:
    late = MIDNIGHT + timedelta(minutes=5)
    assert touched([Span(late, late)], HOUR, MARCH) == {date(2026, 3, 1), date(2026, 3, 2)}
    assert touched([Span(late, late)], timedelta(minutes=4), MARCH) == {date(2026, 3, 2)}


def test_acceptances_that_come_late_touch_the_day_after() -> None:
    evening = MIDNIGHT - timedelta(minutes=5)
    assert touched([Span(evening, evening)], HOUR, MARCH) == {date(2026, 3, 1), date(2026, 3, 2)}


def test_without_new_events_no_day_is_touched() -> None:
    assert touched([], HOUR, MARCH) == set()


def test_days_are_those_of_utc_for_any_time_zone() -> None:
    elsewhere = MIDNIGHT.astimezone(timezone(timedelta(hours=-5)))
    assert touched([Span(elsewhere, elsewhere)], timedelta(0), MARCH) == {date(2026, 3, 2)}


def test_a_look_back_of_centuries_touches_only_known_days() -> None:
    known = [date(1970, 1, 1), date(2026, 3, 2), date.max]
    assert touched([Span(MIDNIGHT, MIDNIGHT)], CENTURIES, known) == set(known[:2])
    assert touched([Span(LATEST, LATEST)], CENTURIES, known) == {date.max}


def test_widened_days_stay_within_the_calendar() -> None:
    assert widened([date.max], HOUR) == {date.max, date.max - timedelta(days=1)}
    assert widened([date.min], timedelta(0)) == {date.min}


@given(st.sets(st.dates(date(2026, 1, 1), date(2026, 3, 1))))
def test_runs_are_all_days_once_in_order_and_without_gaps(days: set[date]) -> None:
    runs = list(runs_of(days))
    assert [day for run in runs for day in run] == sorted(days)
    for run in runs:
        assert 1 <= len(run) <= DAYS_AT_ONCE
        assert run[-1] - run[0] == timedelta(days=len(run) - 1)


@given(INSTANTS, st.timedeltas(timedelta(0), timedelta(days=3)), st.integers(60, 90000))
def test_the_end_of_a_request_touches_its_day(
    accepted: datetime, took: timedelta, look_back_s: int
) -> None:
    look_back = timedelta(seconds=look_back_s)
    ended = accepted + min(took, look_back)
    assert accepted.date() in touched([Span(ended, ended)], look_back, [accepted.date()])
