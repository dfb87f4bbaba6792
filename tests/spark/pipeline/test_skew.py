"""Clock skew: estimates, corrections, and undecided verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.spark.events import NOON, Event, EventBuilder, Log, collect, instant

from requite.spark import audit, skew
from requite.spark.lifecycle import lives
from requite.spark.skew import TOLERANCE_US, Bound, Clocks, merge, settle
from requite.story.vocabulary import Verdict

HOUR_US = 3600 * 10**6
SLACK_US = 200


def around(log: str, other: str, ahead_us: int, width_us: int = 2 * SLACK_US) -> Bound:
    return Bound(log, other, ahead_us - width_us // 2, ahead_us + width_us // 2)


def test_clocks_of_one_machine_are_not_corrected() -> None:
    given = [around("broker-1", "client-1", 0), around("worker-1", "broker-1", 7)]
    assert settle(given) == Clocks()


def test_a_slow_round_trip_is_no_skew() -> None:
    given = [Bound("broker-1", "client-1", 3_000, 9_000), Bound("broker-1", "client-2", 0, -2_000)]
    assert settle(given) == Clocks()


def test_a_broker_ahead_of_all_others_is_corrected() -> None:
    given = [
        around("broker-1", "client-1", 5 * HOUR_US),
        around("worker-1", "broker-1", -5 * HOUR_US),
        around("worker-2", "broker-1", -5 * HOUR_US),
    ]
    assert settle(given).ahead_us == {"broker-1": pytest.approx(5 * HOUR_US, abs=TOLERANCE_US)}


def test_of_two_clocks_the_client_s_is_right() -> None:
    assert settle([around("broker-1", "client-1", -HOUR_US)]).ahead_us == {"broker-1": -HOUR_US}


def test_a_narrow_interval_counts_more_than_a_wide_one() -> None:
    given = [
        around("broker-1", "client-1", HOUR_US),
        around("worker-1", "broker-1", -HOUR_US),
        Bound("worker-1", "client-1", -2 * HOUR_US, 3 * HOUR_US),
    ]
    assert settle(given).ahead_us == {"broker-1": HOUR_US}


def test_a_clock_that_was_set_is_unsettled() -> None:
    given = [Bound("broker-1", "client-1", HOUR_US, 0), around("worker-1", "client-1", 0)]
    assert settle(given).unsettled == {"broker-1"}


def test_no_clock_is_corrected_if_no_correction_fits_better() -> None:
    clocks = settle([Bound("broker-1", "client-1", 390_000, 0)])
    assert clocks.ahead_us == {}
    assert clocks.unsettled == {"broker-1", "client-1"}


def test_a_drifting_clock_is_corrected_by_the_middle_of_its_bounds() -> None:
    clocks = settle([Bound("broker-1", "client-1", HOUR_US + 200_000, HOUR_US)])
    assert clocks.ahead_us == {"broker-1": HOUR_US + 100_000}


def test_bounds_of_several_runs_are_merged() -> None:
    given = [Bound("b", "a", 1, 9), Bound("b", "a", 3, 12), Bound("c", "a", 0, 5)]
    assert merge(given) == [Bound("b", "a", 3, 9), Bound("c", "a", 0, 5)]


@given(st.lists(st.integers(-10 * HOUR_US, 10 * HOUR_US), min_size=2, max_size=6))
def test_the_offsets_of_any_chain_of_clocks_are_found(offsets: list[int]) -> None:
    clocks = {f"worker-{number}": us for number, us in enumerate(offsets)}
    given = [around(b, a, clocks[b] - clocks[a]) for a, b in pairwise(clocks)]
    ahead = settle(given).ahead_us
    for a, b in pairwise(clocks):
        found = ahead.get(b, 0) - ahead.get(a, 0)
        assert abs(found - (clocks[b] - clocks[a])) <= 3 * TOLERANCE_US


# --- in Spark -------------------------------------------------------------------------------------
def add_calls(
    builder: EventBuilder,
    calls: int,
    *,
    broker_ahead_s: float,
    begin_s: float = 0.0,
    every_s: float = 1.0,
) -> tuple[Log, Log, Log]:
    """Add calls through client, broker and worker, with a broker's clock that is wrong."""
    client, broker, worker, rng = builder.client(), builder.broker(), builder.worker(), Random(1)
    for number in range(1, 1 + calls):
        begin = at = begin_s + every_s * number
        steps = [at := at + rng.uniform(0.001, 0.02) for _ in range(6)]
        given = {"attempt": 1, "worker": worker.name}
        client.add(begin, "accepted", number, deadline=begin + 5)
        client.add(begin, "sent", number, attempt=1)
        ahead = broker_ahead_s
        broker.add(steps[0] + ahead, "accepted", number, deadline=begin + 5 + ahead)
        broker.add(steps[1] + ahead, "dispatched", number, **given)
        worker.add(steps[2], "delivered", number, **given)
        worker.add(steps[2], "started", number, **given)
        worker.add(steps[3], "finished", number, outcome="OK", **given)
        broker.add(steps[4] + ahead, "answered", number, outcome="OK", **given)
        client.add(steps[5], "answered", number, attempt=1, outcome="OK")
    return client, broker, worker


def seconds_after_noon(events: list[Event]) -> Iterator[float]:
    for event in events:
        yield (event["ts"] - NOON).total_seconds()


def test_events_are_corrected_to_one_clock(spark: SparkSession) -> None:
    builder = EventBuilder()
    _, broker, _ = add_calls(builder, 30, broker_ahead_s=5 * 3600.0)
    events = builder.frame(spark)
    clocks = settle(skew.collected(skew.bounds(events)))
    assert clocks.ahead_us == {broker.log: pytest.approx(5 * HOUR_US, abs=20_000)}
    assert clocks.unsettled == frozenset()
    rows = collect(skew.corrected(events, clocks))
    assert [*rows[0]] == [*events.columns]
    assert max(seconds_after_noon(rows)) < 31
    given = [row for row in rows if row["role"] == "broker" and row["kind"] == "accepted"]
    assert all(0 < (row["deadline"] - row["ts"]).total_seconds() <= 5 for row in given)


def test_verdicts_that_depend_on_a_clock_that_was_set_are_undecided(spark: SparkSession) -> None:
    builder = EventBuilder()
    b1, b2 = builder.broker("b1"), builder.broker("b2")
    b1.add(0.0, "accepted", 1, deadline=5.0)  # lost with its broker, or sent to it last?
    builder.call(1, -1.0, broker=b2)
    builder.call(2, 0.0, broker=b1, took_s=3600.0)
    builder.call(3, 0.0, broker=b1)
    b2.add(0.0, "accepted", 4, deadline=5.0)
    frame = lives(builder.frame(spark))
    torn = frozenset({b1.log})
    rows = collect(audit.verdicts(frame, instant(9000), unsettled=torn))
    found = [row["verdict"] for row in sorted(rows, key=lambda row: row["request_id"])]
    undecided = Verdict.UNDECIDED
    assert found == [undecided, undecided, Verdict.EXACTLY_ONE, Verdict.MISSING]


def test_undecided_requests_make_the_audit_incomplete() -> None:
    summary = audit.summarise({"EXACTLY_ONE": 3, "UNDECIDED": 2})
    assert (summary.accepted, summary.violations) == (5, 0)
    assert summary.ok
    assert not summary.complete
    assert "2 cannot be judged" in summary.sentence()
