"""The silver tables of requests, attempts and heartbeats."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.events import EventBuilder, call_id, collect, instance, instant, schema_names
from tests.spark.pipeline import model

from requite.spark import schemas
from requite.spark.lifecycle import lives
from requite.spark.silver import (
    CLOCK_WENT_BACK,
    silver_attempts,
    silver_heartbeats,
    silver_requests,
)

W1, W2 = instance("w1"), instance("w2")


@pytest.fixture(scope="module")
def builder() -> EventBuilder:
    builder = EventBuilder()
    b1, b2, c1 = builder.broker("b1"), builder.broker("b2"), builder.client()
    w1, w2 = builder.worker("w1"), builder.worker("w2")
    # 1: client, broker and worker have journals; 2: only the broker; 3: only the client.
    builder.call(1, 0.0, broker=b1, client=c1, worker=w1, queued_s=0.25, took_s=0.5)
    builder.call(2, 1.0, broker=b1, queued_s=0.1, took_s=0.2)
    builder.call(3, 2.0, client=c1, took_s=0.3)
    # 4: its first worker is lost, the second answers.
    b1.add(10.0, "accepted", 4, deadline=20.0)
    b1.add(10.0, "dispatched", 4, attempt=1, worker=W1)
    w1.add(10.0, "delivered", 4, attempt=1, worker=W1)
    w1.add(10.1, "started", 4, attempt=1, worker=W1)
    b1.add(13.0, "redelivered", 4, attempt=1, worker=W1, reason="the worker was silent")
    b1.add(13.5, "dispatched", 4, attempt=2, worker=W2)
    w2.add(13.5, "delivered", 4, attempt=2, worker=W2)
    w2.add(13.6, "started", 4, attempt=2, worker=W2)
    w2.add(13.8, "finished", 4, attempt=2, worker=W2, outcome="OK")
    b1.add(13.9, "answered", 4, attempt=2, worker=W2, outcome="OK")
    # 5: fails, with class and reason; 6: its deadline passes in the queue.
    builder.call(5, 20.0, broker=b1, outcome="FAILED", error_class="RemoteFailure", reason="no")
    b1.add(30.0, "accepted", 6, deadline=32.0)
    b1.add(30.0, "queued", 6)
    b1.add(32.0, "expired", 6, outcome="EXPIRED")
    # 7: lost with one broker, answered by another; the wait in the second one's queue counts.
    b1.add(40.0, "accepted", 7, deadline=50.0)
    builder.call(7, 43.0, broker=b2, queued_s=0.4, took_s=0.1)
    # 8: the clock goes back by 5 s before it is answered.
    b1.add(60.0, "accepted", 8, deadline=70.0)
    b1.add(60.0, "dispatched", 8, attempt=1, worker=W1)
    b1.add(55.0, "answered", 8, attempt=1, worker=W1, outcome="OK")
    # 9: in flight; 10: its connection broke, which is no status of a reply.
    b1.add(70.0, "accepted", 9)
    c1.add(71.0, "accepted", 10)
    c1.add(71.5, "sent", 10, attempt=1)
    c1.add(71.6, "sent", 10, attempt=2)
    c1.add(72.0, "answered", 10, error_class="TransportError", reason="it broke")
    # 11: answered, but accepted in no log.
    b1.add(80.0, "answered", 11, outcome="OK")
    return builder


@pytest.fixture(scope="module")
def requests(spark: SparkSession, builder: EventBuilder) -> dict[str, dict[str, Any]]:
    frame = silver_requests(lives(builder.frame(spark)))
    assert frame.columns == [*schema_names(schemas.SILVER_REQUESTS), CLOCK_WENT_BACK]
    return {row["request_id"]: row for row in collect(frame)}


def test_the_log_of_the_client_determines_begin_and_end(
    requests: dict[str, dict[str, Any]],
) -> None:
    row = requests[call_id(1)]
    assert row["client"] == instance("c1")
    assert row["service"] == "echo"
    assert row["accepted_at"] == instant(0)
    assert row["started_at"] == instant(0.25)
    assert row["finished_at"] == instant(0.75)
    assert row["deadline"] == instant(5)
    assert (row["outcome"], row["ends"], row["attempts"]) == ("OK", 1, 1)
    assert (row["queue_ms"], row["service_ms"], row["total_ms"]) == (250.0, 500.0, 750.0)
    assert row["worker"] == W1
    assert not row[CLOCK_WENT_BACK]


def test_one_journal_is_enough(requests: dict[str, dict[str, Any]]) -> None:
    broker, client = requests[call_id(2)], requests[call_id(3)]
    assert (broker["queue_ms"], broker["service_ms"], broker["total_ms"]) == (100.0, 200.0, 300.0)
    assert (client["queue_ms"], client["service_ms"], client["total_ms"]) == (None, None, 300.0)
    assert (broker["attempts"], client["attempts"]) == (1, 1)


def test_a_redelivered_request_is_timed_at_the_worker_that_answered(
    requests: dict[str, dict[str, Any]],
) -> None:
    row = requests[call_id(4)]
    assert (row["attempts"], row["redeliveries"], row["worker"]) == (2, 1, W2)
    assert row["started_at"] == instant(10.1)
    assert (row["queue_ms"], row["service_ms"], row["total_ms"]) == (0.0, 200.0, 3900.0)


def test_failures_keep_their_class_and_reason(requests: dict[str, dict[str, Any]]) -> None:
    failed, expired = requests[call_id(5)], requests[call_id(6)]
    assert (failed["outcome"], failed["error_class"], failed["reason"]) == (
        "FAILED",
        "RemoteFailure",
        "no",
    )
    assert (expired["outcome"], expired["total_ms"], expired["service_ms"]) == (
        "EXPIRED",
        2000.0,
        None,
    )
    assert requests[call_id(10)]["outcome"] == "TransportError"
    assert requests[call_id(10)]["attempts"] == 2


def test_after_a_lost_broker_only_the_last_queue_counts_as_queue_time(
    requests: dict[str, dict[str, Any]],
) -> None:
    row = requests[call_id(7)]
    assert (row["accepted_at"], row["finished_at"]) == (instant(40), instant(43.5))
    assert (row["queue_ms"], row["service_ms"], row["total_ms"]) == (400.0, 100.0, 3500.0)
    assert row["ends"] == 1


def test_no_duration_is_negative_when_a_clock_goes_back(
    requests: dict[str, dict[str, Any]],
) -> None:
    row = requests[call_id(8)]
    assert row[CLOCK_WENT_BACK]
    assert (row["queue_ms"], row["service_ms"], row["total_ms"]) == (0.0, 0.0, 0.0)
    assert (row["outcome"], row["ends"]) == ("OK", 1)
    others = [each[CLOCK_WENT_BACK] for key, each in requests.items() if key != call_id(8)]
    assert not any(others)


def test_a_request_in_flight_has_no_end_and_an_orphan_no_beginning(
    requests: dict[str, dict[str, Any]],
) -> None:
    open_, orphan = requests[call_id(9)], requests[call_id(11)]
    assert (open_["finished_at"], open_["total_ms"], open_["ends"]) == (None, None, 0)
    assert (orphan["accepted_at"], orphan["outcome"], orphan["ends"]) == (None, "OK", 1)
    assert orphan["date"] == instant(80).date()


def test_every_request_with_an_event_has_a_row(
    builder: EventBuilder, requests: dict[str, dict[str, Any]]
) -> None:
    assert requests.keys() == model.by_request(builder.events).keys()


@pytest.fixture(scope="module")
def attempts(
    spark: SparkSession, builder: EventBuilder
) -> dict[tuple[str, int, str], dict[str, Any]]:
    frame = silver_attempts(builder.frame(spark))
    assert frame.columns == schema_names(schemas.SILVER_ATTEMPTS)
    rows = collect(frame)
    keyed = {(row["request_id"], row["attempt"], row["worker"]): row for row in rows}
    assert len(keyed) == len(rows)
    return keyed


def test_each_attempt_has_a_row(attempts: dict[tuple[str, int, str], dict[str, Any]]) -> None:
    lost, good = attempts[call_id(4), 1, W1], attempts[call_id(4), 2, W2]
    assert (lost["result"], lost["delivered_at"], lost["started_at"], lost["ended_at"]) == (
        "REDELIVERED",
        instant(10),
        instant(10.1),
        instant(13),
    )
    assert (good["result"], good["busy_ms"], good["ended_at"]) == ("OK", 200.0, instant(13.8))


def test_without_a_journal_of_the_worker_attempts_come_from_the_broker(
    attempts: dict[tuple[str, int, str], dict[str, Any]],
) -> None:
    row = attempts[call_id(2), 1, W1]
    assert (row["delivered_at"], row["started_at"], row["ended_at"]) == (
        instant(1.1),
        None,
        instant(1.3),
    )
    assert (row["busy_ms"], row["service"], row["date"]) == (200.0, "echo", instant(1).date())


def test_a_request_that_no_worker_had_has_no_attempt(
    attempts: dict[tuple[str, int, str], dict[str, Any]],
) -> None:
    numbers = {request_id for request_id, _, _ in attempts}
    assert numbers == {call_id(number) for number in (1, 2, 4, 5, 7, 8)}
    assert attempts[call_id(8), 1, W1]["busy_ms"] == 0.0


def test_heartbeats_come_from_the_logs_of_brokers(spark: SparkSession) -> None:
    builder = EventBuilder()
    broker = builder.broker()
    state = {"worker": W1, "gap_s": 0.5, "busy": 1, "capacity": 4}
    for at, kind in enumerate(("worker_joined", "heartbeat", "worker_drained", "worker_lost")):
        broker.add(at, kind, **state)
    builder.call(1, 1.0, broker=broker)
    frame = silver_heartbeats(builder.frame(spark))
    assert frame.columns == schema_names(schemas.SILVER_HEARTBEATS)
    assert sorted(collect(frame), key=lambda row: row["ts"])[1] == {
        **state,
        "service": "echo",
        "ts": instant(1),
        "date": instant(1).date(),
        "kind": "heartbeat",
    }
    assert frame.count() == 4
