"""Contradictions: every kind is found with its evidence, and consistent requests have none."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.events import EventBuilder, Log, call_id, collect, instant
from tests.story.events import findings_of

from requite.chronicle import NOT_IDEMPOTENT
from requite.spark import skew
from requite.spark.contradictions import contradictions
from requite.spark.lifecycle import lives
from requite.story.telling import tell
from requite.story.vocabulary import Contradiction as C

OK = {"outcome": "OK"}


def at_worker(worker: Log, number: int | str, at: float, *, attempt: int = 1, **end: Any) -> None:
    """Add the events of a worker that runs a request."""
    given = {"attempt": attempt, "worker": worker.name}
    worker.add(at, "delivered", number, **given)
    worker.add(at, "started", number, **given)
    if end:
        worker.add(at + 0.1, "finished", number, **given, **end)


def with_broker(broker: Log, worker: Log, since: float, until: float) -> None:
    """Add the events of a worker's connection to a broker, with a heartbeat per second."""
    broker.add(since, "worker_joined", worker=worker.name, gap_s=0.0)
    at = since + 1
    while at < until:
        broker.add(at, "heartbeat", worker=worker.name, gap_s=0.1)
        at += 1


@pytest.fixture(scope="module")
def builder() -> EventBuilder:
    """One request per situation, by number; those below 100 have contradictions."""
    builder = EventBuilder()
    b1, b2 = builder.broker("b1"), builder.broker("b2")
    c1, w1, w2 = builder.client(), builder.worker("w1"), builder.worker("w2")
    add_contradictions(builder, b1, c1, w1, w2)
    add_unknown_workers(builder, b1, b2, w1, w2)
    add_consistent_requests(builder, b1, b2, c1, w1, w2)
    for worker in (w1, w2):
        with_broker(b1, worker, -10.0, 80.0)
    return builder


def add_contradictions(builder: EventBuilder, b1: Log, c1: Log, w1: Log, w2: Log) -> None:
    given = {"worker": w1.name, "attempt": 1}
    # 1: the client has a reply; its only broker says that the request expired.
    builder.call(1, 1.0, client=c1)
    b1.add(1.0, "accepted", 1, deadline=6.0)
    b1.add(6.0, "expired", 1, outcome="EXPIRED")
    # 2: the broker answered twice; the client took one reply.
    builder.call(2, 2.0, client=c1, broker=b1)
    b1.add(2.5, "answered", 2, **OK)
    # 3: the reply is of a withdrawn attempt; 4: answered while no worker had the request.
    for number in (3, 4):
        builder.call(number, 3.0, client=c1)
        b1.add(3.0, "accepted", number, deadline=8.0)
        b1.add(3.0, "dispatched", number, **given)
        b1.add(3.1, "redelivered", number, **given)
    b1.add(3.2, "dispatched", 3, worker=w2.name, attempt=2)
    b1.add(3.3, "answered", 3, worker=w2.name, attempt=2, **OK)
    at_worker(w1, 3, 3.0, outcome="OK")
    at_worker(w2, 3, 3.2, attempt=2, outcome="CANCELLED")
    b1.add(3.4, "answered", 4, **OK)
    # 5, 6, 7: sent, dispatched, and started after the deadline.
    c1.add(4.0, "accepted", 5, deadline=5.0)
    c1.add(5.5, "sent", 5, attempt=1)
    c1.add(5.6, "expired", 5, outcome="EXPIRED")
    b1.add(4.0, "accepted", 6, deadline=5.0)
    b1.add(5.1, "dispatched", 6, **given)
    b1.add(5.2, "answered", 6, **given, **OK)
    builder.call(7, 4.0, client=c1, broker=b1)
    w1.add(4.0, "delivered", 7, deadline=5.0, **given)
    w1.add(6.5, "started", 7, **given)
    # 8: not idempotent, dispatched to and run by two workers; 9: not idempotent, redelivered.
    b1.add(7.0, "accepted", 8, deadline=12.0, reason=NOT_IDEMPOTENT)
    b1.add(7.1, "dispatched", 8, **given)
    b1.add(7.1, "redelivered", 8, **given)
    b1.add(7.1, "dispatched", 8, worker=w2.name, attempt=2)
    at_worker(w1, 8, 7.1, outcome="OK")
    at_worker(w2, 8, 7.1, attempt=2, outcome="OK")
    b1.add(7.3, "answered", 8, worker=w2.name, attempt=2, **OK)
    c1.add(7.0, "accepted", 9, deadline=12.0, reason=NOT_IDEMPOTENT)
    c1.add(7.0, "sent", 9, attempt=1)
    b1.add(7.0, "accepted", 9, deadline=12.0)
    b1.add(7.1, "dispatched", 9, **given)
    b1.add(7.2, "redelivered", 9, **given)
    b1.add(12.0, "expired", 9, outcome="EXPIRED")
    c1.add(12.0, "expired", 9, outcome="EXPIRED")
    # 10: one id for two calls; 11: for two services; 12: for two bodies.
    builder.call(10, 8.0, client=c1)
    builder.call(10, 9.0, client=c1)
    builder.call(11, 8.0, broker=b1)
    b1.add(8.5, "accepted", 11, deadline=13.0, bytes=10, service="other")
    b1.add(8.6, "answered", 11, service="other", **OK)
    builder.call(12, 8.0, broker=b1)
    b1.add(8.5, "accepted", 12, deadline=13.0, bytes=11)
    b1.add(8.6, "answered", 12, **OK)
    # 13: dispatched to a second worker while the first one had it; 14: known by its attempt.
    b1.add(9.0, "accepted", 13, deadline=14.0)
    b1.add(9.0, "dispatched", 13, **given)
    b1.add(9.0, "dispatched", 13, worker=w2.name, attempt=2)
    b1.add(9.1, "answered", 13, worker=w2.name, attempt=2, **OK)
    b1.add(9.0, "accepted", 14, deadline=14.0)
    b1.add(9.0, "dispatched", 14, worker=w2.name, attempt=2)
    b1.add(9.1, "answered", 14, worker=w2.name, attempt=2, **OK)
    at_worker(w2, 14, 9.0, attempt=2, outcome="OK")
    at_worker(w1, 14, 9.0, outcome="OK")
    # 15: answered before the worker finished.
    b1.add(10.0, "accepted", 15, deadline=15.0)
    b1.add(10.0, "dispatched", 15, **given)
    b1.add(10.02, "answered", 15, **given, **OK)
    at_worker(w1, 15, 10.0, outcome="OK")


def add_unknown_workers(builder: EventBuilder, b1: Log, b2: Log, w1: Log, w2: Log) -> None:
    # 20: dispatched once, and run by two workers; 21: run, but in no other log.
    builder.call(20, 20.0, broker=b1, worker=w1)
    at_worker(w2, 20, 20.0, outcome="OK")
    at_worker(w2, 21, 21.0, outcome="OK")
    # 22: run, but not in the log of the client that its id names.
    other = builder.client("c2")
    builder.call(call_id(1, "c2"), 20.0, client=other)
    builder.call(call_id(2, "c2"), 25.0, client=other)
    unknown = builder.worker("w9")
    unknown.add(22.0, "started", call_id(22, "c2"), attempt=1, worker=unknown.name)
    # 120: the worker may have a broker without a journal; 121: the client has no journal either.
    builder.call(120, 20.0, broker=b1, worker=w1)
    at_worker(unknown, 120, 20.0, outcome="OK")
    unknown.add(22.0, "started", call_id(121, "c3"), attempt=1, worker=unknown.name)
    # 122: its broker was killed at that time; 123: the worker changed its broker at that time.
    dead, w3, w4 = builder.broker("b3"), builder.worker("w3"), builder.worker("w4")
    with_broker(dead, w3, 20.0, 30.0)
    at_worker(w3, 122, 28.9, outcome="OK")
    b1.add(28.0, "accepted", 122, deadline=30.0)
    b1.add(30.0, "expired", 122, outcome="EXPIRED")
    with_broker(b2, w4, 20.0, 30.0)
    at_worker(w4, call_id(123, "c3"), 30.5, outcome="OK")
    with_broker(b1, w4, 31.0, 40.0)
    # 125: started for the killed broker, and again when the next broker dispatched it.
    w6 = builder.worker("w6")
    with_broker(dead, w6, 20.0, 30.0)
    at_worker(w6, 125, 29.9, outcome="OK")
    with_broker(b1, w6, 31.0, 40.0)
    builder.call(125, 33.0, broker=b1, worker=w6, at_worker=w6.name)
    # 124: its broker has dropped rows.
    full, w5 = builder.broker("b4"), builder.worker("w5")
    with_broker(full, w5, 20.0, 30.0)
    full.add(26.0, "dropped", dropped=5)
    at_worker(w5, call_id(124, "c3"), 25.0, outcome="OK")


def add_consistent_requests(
    builder: EventBuilder, b1: Log, b2: Log, c1: Log, w1: Log, w2: Log
) -> None:
    given = {"worker": w1.name, "attempt": 1}
    builder.call(101, 40.0, client=c1, broker=b1, worker=w1, at_worker=w1.name)
    # 102: lost with a worker, and run by the next one, each time as dispatched.
    builder.call(102, 41.0, client=c1, took_s=0.5)
    b1.add(41.0, "accepted", 102, deadline=46.0)
    b1.add(41.0, "dispatched", 102, **given)
    at_worker(w1, 102, 41.0)
    b1.add(41.2, "redelivered", 102, **given)
    b1.add(41.2, "dispatched", 102, worker=w2.name, attempt=2)
    at_worker(w2, 102, 41.2, attempt=2, outcome="OK")
    b1.add(41.4, "answered", 102, worker=w2.name, attempt=2, **OK)
    # 103: expired at one broker, answered by the other; 104: the other has no journal.
    builder.call(103, 42.0, client=c1, took_s=3.0)
    c1.add(43.0, "sent", 103, attempt=2)
    b1.add(42.0, "accepted", 103, deadline=44.0)
    b1.add(44.0, "expired", 103, outcome="EXPIRED")
    builder.call(103, 43.0, broker=b2, took_s=1.0)
    builder.call(104, 42.0, client=c1, took_s=3.0)
    c1.add(43.0, "sent", 104, attempt=2)
    b1.add(42.0, "accepted", 104, deadline=44.0)
    b1.add(44.0, "expired", 104, outcome="EXPIRED")
    # 105: sent again before the broker noticed the loss; both attempts went to the same worker.
    b1.add(45.0, "accepted", 105, deadline=50.0)
    b1.add(45.0, "dispatched", 105, **given)
    b1.add(45.2, "accepted", 105, deadline=50.0)
    b1.add(45.2, "dispatched", 105, **given)
    b1.add(45.3, "cancelled", 105, outcome="CANCELLED", **given)
    b1.add(45.4, "answered", 105, **given, **OK)
    at_worker(w1, 105, 45.0, outcome="CANCELLED")
    at_worker(w1, 105, 45.2, outcome="OK")
    # 106: the broker's reply was too late for the client; 107: started just after the deadline.
    c1.add(46.0, "accepted", 106, deadline=47.0)
    c1.add(46.0, "sent", 106, attempt=1)
    c1.add(47.0, "expired", 106, outcome="EXPIRED")
    builder.call(106, 46.1, broker=b1, timeout_s=1.0, took_s=0.95)
    builder.call(107, 46.0, broker=b1)
    w1.add(46.0, "delivered", 107, deadline=47.0, **given)
    w1.add(47.5, "started", 107, **given)
    # 108: not idempotent, returned by a broker that shut down, and run once.
    c1.add(48.0, "accepted", 108, deadline=53.0, reason=NOT_IDEMPOTENT)
    c1.add(48.0, "sent", 108, attempt=1)
    b1.add(48.0, "accepted", 108, deadline=53.0, reason=NOT_IDEMPOTENT)
    b1.add(48.1, "answered", 108, outcome="SHUTTING_DOWN")
    c1.add(48.2, "sent", 108, attempt=1)
    builder.call(108, 48.3, broker=b2)
    c1.add(48.4, "answered", 108, **OK)
    # 109: dispatched twice to a worker as attempt 1; the end of the second is not journalled yet.
    b1.add(49.0, "accepted", 109, deadline=54.0)
    b1.add(49.0, "dispatched", 109, **given)
    b1.add(49.2, "cancelled", 109, outcome="CANCELLED", **given)
    b1.add(49.3, "accepted", 109, deadline=54.0)
    b1.add(49.3, "dispatched", 109, **given)
    b1.add(49.6, "answered", 109, **given, **OK)
    at_worker(w1, 109, 49.1, outcome="CANCELLED")


EXPECTED = {
    1: {C.OUTCOMES_DIFFER},
    2: {C.BROKER_ENDED_TWICE, C.FORMER_OWNER},
    3: {C.FORMER_OWNER},
    4: {C.FORMER_OWNER},
    5: {C.BEGUN_LATE},
    6: {C.BEGUN_LATE},
    7: {C.BEGUN_LATE},
    8: {C.RAN_AGAIN},
    9: {C.RAN_AGAIN},
    10: {C.SHARED_CALL_ID},
    11: {C.SHARED_CALL_ID, C.FORMER_OWNER},
    12: {C.SHARED_CALL_ID, C.FORMER_OWNER},
    13: {C.TWO_OWNERS},
    14: {C.TWO_OWNERS, C.RAN_UNDISPATCHED},
    15: {C.FORMER_OWNER},
    20: {C.RAN_UNDISPATCHED},
    21: {C.RAN_UNASKED},
}


BY_CLOCKS = {14: {C.RAN_UNDISPATCHED}, **{number: EXPECTED[number] for number in (6, 15, 20)}}
"""The contradictions that depend on the clock of the broker."""


@pytest.fixture(scope="module")
def found(spark: SparkSession, builder: EventBuilder) -> list[dict[str, Any]]:
    events = builder.frame(spark)
    return collect(contradictions(lives(events), events))


def by_request(found: list[dict[str, Any]]) -> dict[str, set[str]]:
    kinds: dict[str, set[str]] = defaultdict(set)
    for row in found:
        kinds[row["request_id"]].add(row["kind"])
    return kinds


def test_every_contradiction_is_found_and_no_other(found: list[dict[str, Any]]) -> None:
    expected = {call_id(number): kinds for number, kinds in EXPECTED.items()}
    assert by_request(found) == expected | {call_id(22, "c2"): {C.RAN_UNASKED}}


def test_stories_have_the_same_contradictions(builder: EventBuilder) -> None:
    """Two kinds rest on missing events: only the audit finds them."""
    findings = findings_of(builder)
    for request_id in {event["request_id"] for event in builder.events} - {None}:
        story = tell(findings, request_id)
        assert story is not None
        numbers = {call_id(number): kinds for number, kinds in EXPECTED.items()}
        expected = numbers.get(request_id, set()) - {C.RAN_UNDISPATCHED, C.RAN_UNASKED}
        assert set(story.contradictions) == expected, request_id


def test_requests_that_contradict_themselves_bound_no_clock(
    spark: SparkSession, builder: EventBuilder
) -> None:
    assert skew.settle(skew.collected(skew.bounds(builder.frame(spark)))) == skew.IN_STEP


def test_a_clock_that_was_set_causes_no_contradiction(
    spark: SparkSession, builder: EventBuilder
) -> None:
    events, broker = builder.frame(spark), builder.broker("b1").log
    found = contradictions(lives(events), events, unsettled=frozenset({broker}))
    expected = {
        call_id(number): kinds - BY_CLOCKS.get(number, set()) for number, kinds in EXPECTED.items()
    }
    left = {request_id: kinds for request_id, kinds in expected.items() if kinds}
    assert by_request(collect(found)) == left | {call_id(22, "c2"): {C.RAN_UNASKED}}


def test_a_contradiction_is_reported_once_with_the_events_of_all_logs(
    found: list[dict[str, Any]],
) -> None:
    pairs = [(row["request_id"], row["kind"]) for row in found]
    assert len(pairs) == len(set(pairs))
    (row,) = (row for row in found if row["kind"] == C.OUTCOMES_DIFFER)
    events = [(event["log"][:6], event["kind"]) for event in json.loads(row["evidence"])]
    assert ("client", "answered") in events
    assert ("broker", "expired") in events
    assert row["service"] == "echo"
    assert row["date"] == instant(0).date()
