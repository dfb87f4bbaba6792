"""Calls of MDP 0.1 and 0.2, to which brokers give ids of their own: one request each."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.spark.events import Log, Story, call_id, collect, instant

from requite.spark import audit
from requite.spark.aliases import aliases, is_made_up, one_sided, renamed
from requite.spark.lifecycle import lives
from requite.spark.vocabulary import Verdict


def made_up(number: int) -> str:
    """Return the id that a broker makes up for its `number`-th request."""
    return f"b1000000000000aa{number:016x}"


def call(
    client: Log, broker: Log, number: int, at: float, *, size: int, took_s: float = 0.01
) -> None:
    """Tell a call that its client and its broker know by different names."""
    client.tell(at, "accepted", number, bytes=size, deadline=at + 5)
    client.tell(at, "sent", number, attempt=1)
    broker.tell(at + 0.001, "accepted", made_up(number), bytes=size)
    broker.tell(at + 0.001, "dispatched", made_up(number), attempt=1, worker="w")
    broker.tell(at + took_s - 0.001, "answered", made_up(number), attempt=1, outcome="OK")
    client.tell(at + took_s, "answered", number, attempt=1, outcome="OK")


@pytest.fixture(scope="module")
def story() -> Story:
    story = Story()
    client, broker = story.client(), story.broker()
    for number in range(1, 21):  # one after the other
        call(client, broker, number, number / 50, size=10)
    call(client, broker, 21, 2.0, size=10, took_s=1.0)  # together, but of different sizes
    call(client, broker, 22, 2.1, size=11, took_s=1.0)
    call(client, broker, 23, 4.0, size=10, took_s=1.0)  # together, and alike
    call(client, broker, 24, 4.1, size=10, took_s=1.0)
    # 25: lost with one broker, and answered by the next one. 26: too late for its caller.
    client.tell(6.0, "accepted", 25, bytes=10, deadline=11.0)
    client.tell(6.0, "sent", 25, attempt=1)
    broker.tell(6.1, "accepted", made_up(25), bytes=10)
    client.tell(7.0, "sent", 25, attempt=2)
    next_one = story.broker("b2")
    next_one.tell(7.1, "accepted", made_up(125), bytes=10)
    next_one.tell(7.2, "answered", made_up(125), outcome="OK")
    client.tell(7.3, "answered", 25, attempt=2, outcome="OK")
    client.tell(8.0, "accepted", 26, bytes=10, deadline=8.5)
    client.tell(8.0, "sent", 26, attempt=1)
    client.tell(8.5, "expired", 26, outcome="EXPIRED")
    broker.tell(9.0, "accepted", made_up(26), bytes=10)
    broker.tell(9.1, "cancelled", made_up(26), outcome="CANCELLED")
    # 30: of a client that keeps no journal. 31: of one that speaks MDP 0.3.
    broker.tell(20.0, "accepted", made_up(30), bytes=10)
    broker.tell(20.1, "answered", made_up(30), outcome="OK")
    story.call(31, 20.0, client=client, broker=broker, took_s=1.0)
    return story


@pytest.fixture(scope="module")
def verdicts(spark: SparkSession, story: Story) -> dict[str, dict[str, Any]]:
    events = story.frame(spark)
    found = aliases(lives(events))
    whole = one_sided(lives(renamed(events, found)), found)
    rows = collect(audit.verdicts(whole, instant(1000)))
    return {row["request_id"]: row["verdict"] for row in rows}


def test_every_call_counts_once(verdicts: dict[str, Any]) -> None:
    calls = {call_id(number) for number in (*range(1, 27), 31)}
    assert {key for key in verdicts if key in calls} == calls
    assert set(verdicts) - calls == {made_up(number) for number in (24, 30)}
    counts = {verdict: list(verdicts.values()).count(verdict) for verdict in verdicts.values()}
    assert counts == {Verdict.EXACTLY_ONE: 28, Verdict.ONE_SIDED: 1}
    summary = audit.summarise(counts)
    assert summary.accepted == 28
    assert "1 seen from one side, not counted" in summary.sentence()


def test_halves_of_calls_that_nothing_tells_apart_are_not_counted(
    verdicts: dict[str, Any],
) -> None:
    assert verdicts[made_up(24)] == Verdict.ONE_SIDED  # when it came, two calls were open
    assert verdicts[call_id(23)] == verdicts[call_id(24)] == Verdict.EXACTLY_ONE


def test_what_a_client_without_a_journal_asked_counts_by_its_broker(
    verdicts: dict[str, Any],
) -> None:
    assert verdicts[made_up(30)] == Verdict.EXACTLY_ONE


def test_brokers_ids_are_known_by_their_first_bit(spark: SparkSession, story: Story) -> None:
    ids = story.frame(spark).where(is_made_up(F.col("request_id"))).select("request_id").distinct()
    assert all(row["request_id"].startswith("b1") for row in collect(ids))
