"""Workers: when they were seen, gaps, load, and status."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.events import EventBuilder, collect, instance, instant, schema_names

from requite.spark import schemas
from requite.spark.gold.liveness import gold_worker_liveness
from requite.spark.silver import silver_heartbeats


@pytest.fixture(scope="module")
def workers(spark: SparkSession) -> dict[str, dict[str, Any]]:
    builder = EventBuilder()
    broker = builder.broker()

    def add(at: float, kind: str, name: str, gap_s: float = 0.0, busy: int = 0) -> None:
        worker = instance(name)
        broker.add(at, kind, worker=worker, gap_s=gap_s, busy=busy, capacity=4)

    for name in ("alive", "drained", "lost", "back", "silent"):
        add(0.0, "worker_joined", name)
    for at in range(1, 11):
        add(at, "heartbeat", "alive", gap_s=0.5, busy=at % 3)
    add(4.0, "heartbeat", "alive", gap_s=2.5)
    add(5.0, "worker_drained", "drained")
    add(6.0, "heartbeat", "lost", gap_s=3.0, busy=4)
    add(6.0, "worker_lost", "lost", gap_s=3.0, busy=4)
    add(3.0, "worker_lost", "back", gap_s=3.0)
    add(8.0, "worker_joined", "back")
    add(9.0, "heartbeat", "back")
    add(2.0, "heartbeat", "silent")
    heartbeats = silver_heartbeats(builder.frame(spark))
    frame = gold_worker_liveness(heartbeats, instant(10))
    assert frame.columns == schema_names(schemas.GOLD_WORKER_LIVENESS)
    return {row["worker"]: row for row in collect(frame)}


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("alive", "alive"),
        ("drained", "drained"),
        ("lost", "lost"),
        ("back", "alive"),
        ("silent",) * 2,
    ],
)
def test_the_status_of_each_worker(
    workers: dict[str, dict[str, Any]], name: str, status: str
) -> None:
    assert workers[instance(name)]["status"] == status


def test_gaps_are_silences_of_two_intervals(workers: dict[str, dict[str, Any]]) -> None:
    assert workers[instance("alive")]["gaps"] == 1
    assert workers[instance("alive")]["longest_gap_s"] == 2.5
    assert workers[instance("silent")]["gaps"] == 0


def test_a_worker_was_last_seen_before_its_gap(workers: dict[str, dict[str, Any]]) -> None:
    row = workers[instance("lost")]
    assert (row["first_seen"], row["last_seen"]) == (instant(0), instant(3))


def test_the_busy_fraction_is_the_mean_of_the_heartbeats(
    workers: dict[str, dict[str, Any]],
) -> None:
    shares = [at % 3 / 4 for at in range(1, 11)] + [0.0]
    assert workers[instance("alive")]["busy_fraction"] == pytest.approx(sum(shares) / len(shares))
    assert workers[instance("drained")]["busy_fraction"] is None
