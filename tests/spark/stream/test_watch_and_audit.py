"""The streaming audit and the batch audit give the same verdicts."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql import SparkSession
from tests.spark.events import Event, EventBuilder, Log, call_id, instant
from tests.spark.stream.test_watch_processor import event_columns

from requite.spark.audit import verdicts
from requite.spark.lifecycle import lives
from requite.spark.watch.watched_request import Alert, State, WatchedEvent, WatchedRequest

_MEANS = {
    State.ENDED: "EXACTLY_ONE",
    State.OPEN: "IN_FLIGHT",
    Alert.LATE: "LATE",
    Alert.ORPHAN: "ORPHAN",
    Alert.DUPLICATE_OUTCOME: "DUPLICATE_OUTCOME",
    Alert.ACCEPTED_TWICE: "ACCEPTED_TWICE",
}
_KINDS = ("accepted", "accepted", "dispatched", "answered", "answered", "expired", "cancelled")


def add_random_events(rng: Random, number: int, logs: list[Log]) -> None:
    """Add one to six events of a request to random logs; clocks go back now and then."""
    at = 0.0
    for _ in range(rng.randint(1, 6)):
        at += rng.choice((0.0, 0.1, 0.1, 0.1, -0.05))
        deadline = {"deadline": rng.choice((50.0, 50.0, -0.95))} if rng.random() < 0.6 else {}
        rng.choice(logs).add(at, rng.choice(_KINDS), number, **deadline)


def judged(events: list[Event]) -> str:
    case = WatchedRequest()
    for event in events:
        case.add(WatchedEvent(**event_columns(event)), event["service"])
    return _MEANS[case.judge()]


@pytest.mark.timeout(180)
def test_both_audits_give_the_same_verdicts(spark: SparkSession) -> None:
    builder, rng, requests = EventBuilder(), Random(20260302), 600
    brokers = [builder.broker("b1"), builder.broker("b2")]
    all_logs = [*brokers, builder.client()]
    for number in range(requests):
        add_random_events(rng, number, brokers if number % 2 else all_logs)
    rows = verdicts(lives(builder.frame(spark)), instant(10.0)).collect()
    # `judge` does not know the time, so overdue requests are open for it.
    same = {"MISSING": "IN_FLIGHT"}
    batch = {row.request_id: same.get(row.verdict, row.verdict) for row in rows}
    by_request = {call_id(number): [] for number in range(requests)}
    for event in builder.events:
        by_request[event["request_id"]].append(event)
    streaming = {request_id: judged(events) for request_id, events in by_request.items()}
    assert set(streaming.values()) == set(_MEANS.values())
    assert streaming == batch
