"""Calls by MDP 0.1 and 0.2, for which brokers generate ids, count as one request each."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.spark.events import EventBuilder, Log, call_id, collect, instant

from requite.spark import audit
from requite.spark.aliases import aliases, is_made_up, one_sided, renamed
from requite.spark.lifecycle import lives
from requite.story.vocabulary import Verdict


def generated_id(number: int) -> str:
    """Return the id that a broker generates for its `number`-th request."""
    return f"b1000000000000aa{number:016x}"


def call(
    client: Log, broker: Log, number: int, at: float, *, size: int, took_s: float = 0.01
) -> None:
    """Add a call that has different ids in the logs of its client and its broker."""
    client.add(at, "accepted", number, bytes=size, deadline=at + 5)
    client.add(at, "sent", number, attempt=1)
    broker.add(at + 0.001, "accepted", generated_id(number), bytes=size)
    broker.add(at + 0.001, "dispatched", generated_id(number), attempt=1, worker="w")
    broker.add(at + took_s - 0.001, "answered", generated_id(number), attempt=1, outcome="OK")
    client.add(at + took_s, "answered", number, attempt=1, outcome="OK")


@pytest.fixture(scope="module")
def builder() -> EventBuilder:
    builder = EventBuilder()
    client, broker = builder.client(), builder.broker()
    for number in range(1, 21):  # one at a time
        call(client, broker, number, number / 50, size=10)
    call(client, broker, 21, 2.0, size=10, took_s=1.0)  # concurrent, with different sizes
    call(client, broker, 22, 2.1, size=11, took_s=1.0)
    call(client, broker, 23, 4.0, size=10, took_s=1.0)  # concurrent, with equal sizes
    call(client, broker, 24, 4.1, size=10, took_s=1.0)
    # 25: lost with one broker, answered by the next one. 26: reaches its broker after the deadline.
    client.add(6.0, "accepted", 25, bytes=10, deadline=11.0)
    client.add(6.0, "sent", 25, attempt=1)
    broker.add(6.1, "accepted", generated_id(25), bytes=10)
    client.add(7.0, "sent", 25, attempt=2)
    next_one = builder.broker("b2")
    next_one.add(7.1, "accepted", generated_id(125), bytes=10)
    next_one.add(7.2, "answered", generated_id(125), outcome="OK")
    client.add(7.3, "answered", 25, attempt=2, outcome="OK")
    client.add(8.0, "accepted", 26, bytes=10, deadline=8.5)
    client.add(8.0, "sent", 26, attempt=1)
    client.add(8.5, "expired", 26, outcome="EXPIRED")
    broker.add(9.0, "accepted", generated_id(26), bytes=10)
    broker.add(9.1, "cancelled", generated_id(26), outcome="CANCELLED")
    # 30: the client has no journal. 31: the client uses MDP 0.3.
    broker.add(20.0, "accepted", generated_id(30), bytes=10)
    broker.add(20.1, "answered", generated_id(30), outcome="OK")
    builder.call(31, 20.0, client=client, broker=broker, took_s=1.0)
    return builder


@pytest.fixture(scope="module")
def verdicts(spark: SparkSession, builder: EventBuilder) -> dict[str, dict[str, Any]]:
    events = builder.frame(spark)
    found = aliases(lives(events))
    whole = one_sided(lives(renamed(events, found)), found)
    rows = collect(audit.verdicts(whole, instant(1000)))
    return {row["request_id"]: row["verdict"] for row in rows}


def test_every_call_counts_once(verdicts: dict[str, Any]) -> None:
    calls = {call_id(number) for number in (*range(1, 27), 31)}
    assert {key for key in verdicts if key in calls} == calls
    assert set(verdicts) - calls == {generated_id(number) for number in (24, 30)}
    counts = {verdict: list(verdicts.values()).count(verdict) for verdict in verdicts.values()}
    assert counts == {Verdict.EXACTLY_ONE: 28, Verdict.ONE_SIDED: 1}
    summary = audit.summarise(counts)
    assert summary.accepted == 28
    assert "1 seen from one side, not counted" in summary.sentence()


def test_indistinguishable_calls_are_one_sided_and_not_counted(
    verdicts: dict[str, Any],
) -> None:
    assert verdicts[generated_id(24)] == Verdict.ONE_SIDED  # two calls were open when it arrived
    assert verdicts[call_id(23)] == verdicts[call_id(24)] == Verdict.EXACTLY_ONE


def test_a_call_of_a_client_without_a_journal_counts_by_its_broker(
    verdicts: dict[str, Any],
) -> None:
    assert verdicts[generated_id(30)] == Verdict.EXACTLY_ONE


def test_generated_ids_are_recognized_by_their_first_bit(
    spark: SparkSession, builder: EventBuilder
) -> None:
    ids = (
        builder.frame(spark).where(is_made_up(F.col("request_id"))).select("request_id").distinct()
    )
    assert all(row["request_id"].startswith("b1") for row in collect(ids))
