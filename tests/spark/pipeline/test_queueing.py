"""Queue depth per minute, compared with the model in plain Python."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import pytest
from pyspark.sql import SparkSession
from tests.spark.events import EventBuilder, collect, instance, instant, schema_names
from tests.spark.pipeline import model

from requite.spark import schemas
from requite.spark.gold.queueing import gold_queue_depth
from requite.spark.lifecycle import lives
from requite.spark.silver import silver_waits

NOW = instant(400)

Wait = tuple[datetime, datetime]


def random_waits(rng: random.Random) -> tuple[EventBuilder, list[Wait]]:
    """Return requests that wait for up to two minutes, some twice, some until they expire."""
    builder = EventBuilder()
    broker = builder.broker()
    waits: list[Wait] = []
    for number in range(120):
        at = rng.uniform(0, 200)
        wait = rng.choice((0.0, rng.uniform(0, 3), rng.uniform(0, 120)))
        if rng.random() < 0.8:
            builder.call(number, at, broker=broker, queued_s=wait, timeout_s=200)
            waits.append((instant(at), instant(at + wait)))
        else:
            again = at + wait + 1
            broker.add(at, "accepted", number, deadline=at + 300)
            broker.add(at, "queued", number)
            broker.add(at + wait, "dispatched", number, attempt=1, worker=instance("w1"))
            broker.add(again, "redelivered", number, attempt=1, worker=instance("w1"))
            broker.add(again + 5, "expired", number, outcome="EXPIRED")
            waits += [(instant(at), instant(at + wait)), (instant(again), instant(again + 5))]
    return builder, [(begin, end) for begin, end in waits if end > begin]


def test_depths_per_minute_match_the_model(spark: SparkSession) -> None:
    builder, waits = random_waits(random.Random(3))
    frame = gold_queue_depth(silver_waits(lives(builder.frame(spark))), NOW)
    assert frame.columns == schema_names(schemas.GOLD_QUEUE_DEPTH)
    found = {row["minute"]: row for row in collect(frame)}
    accepted = {model.minute(e["ts"]) for e in builder.events if e["kind"] == "accepted"}
    waited = {
        model.minute(begin) + timedelta(minutes=step)
        for begin, end in waits
        for step in range(10)
        if model.minute(begin) + timedelta(minutes=step) < end
    }
    assert found.keys() == accepted | waited
    for minute, row in found.items():
        after = minute + timedelta(minutes=1)
        near = [(max(begin, minute), min(end, after), begin) for begin, end in waits]
        inside = [(begin, end, since) for begin, end, since in near if begin < end]
        deepest = max((model.depth_at(waits, begin) for begin, _, _ in inside), default=0)
        seconds = sum((end - begin).total_seconds() for begin, end, _ in inside)
        oldest = max(((end - since).total_seconds() for _, end, since in inside), default=0.0)
        assert row["max_depth"] == deepest
        assert row["avg_depth"] == pytest.approx(seconds / 60)
        assert row["oldest_age_s"] == pytest.approx(oldest)
        assert row["date"] == minute.date()


def test_a_wait_without_an_end_lasts_until_now_or_its_deadline(spark: SparkSession) -> None:
    builder = EventBuilder()
    broker = builder.broker()
    for number, deadline in ((1, 300.0), (2, 1000.0), (3, None)):
        broker.add(0.0, "accepted", number, deadline=deadline, service=f"s{number}")
        broker.add(0.0, "queued", number, service=f"s{number}")
    rows = collect(gold_queue_depth(silver_waits(lives(builder.frame(spark))), NOW))
    longest: dict[str, float] = {}
    for row in rows:
        longest[row["service"]] = max(longest.get(row["service"], 0), row["oldest_age_s"])
    assert longest == {"s1": 300.0, "s2": 400.0, "s3": 60.0}


def test_a_wait_that_ends_when_another_begins_does_not_overlap_it(spark: SparkSession) -> None:
    builder = EventBuilder()
    broker = builder.broker()
    builder.call(1, 0.0, broker=broker, queued_s=1.0)
    builder.call(2, 1.0, broker=broker, queued_s=1.0)
    (row,) = collect(gold_queue_depth(silver_waits(lives(builder.frame(spark))), NOW))
    assert row["max_depth"] == 1
