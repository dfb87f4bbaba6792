"""The tables are the same for any number of runs, and any order in which a journal is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession
from tests.spark.events import Event, EventBuilder, call_id, collect, instance, rows_frame
from tests.spark.pipeline.harness import ParquetSource

from requite.spark import request_events, runner, schemas
from requite.spark.lake import Lake
from requite.spark.runner import RunSummary

TABLES: Final = (
    "silver_requests", "silver_attempts", "silver_waits", "silver_heartbeats", "silver_access",
    "audit_verdicts", "audit_contradictions", "gold_service_minute", "gold_latency_histogram",
    "gold_queue_depth", "gold_capacity", "gold_worker_liveness", "gold_rightsizing",
    "gold_failures",
)  # fmt: skip
DAY_S: Final = 86_400.0

pytestmark = pytest.mark.timeout(600)


@dataclass
class Journal:
    """Events ordered by time, and ways to slice them."""

    events: list[Event]
    random: Random

    def whole(self) -> Iterator[list[Event]]:
        yield self.events

    def by_time(self) -> Iterator[list[Event]]:
        """Yield the events of all logs, cut at two random instants."""
        first, last = sorted(self.random.sample(range(1, len(self.events)), 2))
        yield from (self.events[:first], self.events[first:last], self.events[last:])

    def by_log(self) -> Iterator[list[Event]]:
        """Yield half of the logs, then the others, as machines deliver them."""
        logs = sorted({event["log"] for event in self.events})
        self.random.shuffle(logs)
        middle = len(logs) // 2
        for some in (logs[:middle], logs[middle:]):
            yield [event for event in self.events if event["log"] in some]

    def by_chance(self) -> Iterator[list[Event]]:
        """Yield each log up to a random position, then the rest."""
        later: list[Event] = []
        some = []
        for log in sorted({event["log"] for event in self.events}):
            of_log = [event for event in self.events if event["log"] == log]
            count = self.random.randint(0, len(of_log))
            some += of_log[:count]
            later += of_log[count:]
        yield from (some, later)


Slicing = Callable[[Journal], Iterator[list[Event]]]


def random_journal(seed: int) -> Journal:
    """Return 60 calls over about two days, with losses, redeliveries and late outcomes."""
    random, builder = Random(seed), EventBuilder()
    broker, client = builder.broker(), builder.client()
    workers = [builder.worker(f"w{number}") for number in range(3)]
    at = 0.0
    for number in range(1, 61):
        at += random.choice([0.5, 7.0, 61.0, 3_600.0, 10_000.0])
        _add_call(builder, random, number, at, broker, client, workers)
        if random.random() < 0.3:
            busy = random.randint(0, 4)
            worker = random.choice(workers).name
            broker.add(at, "heartbeat", worker=worker, gap_s=0.5, busy=busy, capacity=4)
    _add_decisions(random, at, broker)
    events = sorted(builder.events, key=lambda event: event["ts"])
    written: Counter[str] = Counter()
    for event in events:
        event["seq"] = written[event["log"]]
        event["byte_offset"] = 64 + 8 * event["seq"]
        written[event["log"]] += 1
    return Journal(events, random)


def _add_decisions(random: Random, until: float, broker: Any) -> None:
    """Add denied calls, and two owners of the client's ids, the second one after some requests."""
    for _ in range(20):
        principal = random.choice([b"shop", b"thief"]).hex()
        at = random.uniform(0.0, until)
        broker.add(at, "denied", worker=principal, error_class="call", reason="no right")
    reason = f"call ids {instance('c1')}"
    for name, at in {b"shop": 0.0, b"shop2": until / 2}.items():
        broker.add(at, "admitted", worker=name.hex(), error_class="call id", reason=reason)


def _add_call(
    builder: EventBuilder,
    random: Random,
    number: int,
    at: float,
    broker: Any,
    client: Any,
    workers: Any,
) -> None:
    worker, fate = random.choice(workers), random.random()
    if fate < 0.5:
        builder.call(number, at, broker=broker, client=client, worker=worker)
        return
    deadline = at + random.choice([5.0, 30.0, DAY_S])
    client.add(at, "accepted", number, deadline=deadline)
    client.add(at, "sent", number, attempt=1)
    if fate < 0.55:
        return  # lost before it reached the broker
    broker.add(at + 0.1, "accepted", number, deadline=deadline)
    broker.add(at + 0.1, "queued", number)
    if fate < 0.65:
        return  # never dispatched
    given = at + random.choice([0.2, 2.0, 9_000.0])
    broker.add(given, "dispatched", number, attempt=1, worker=worker.name)
    worker.add(given + 0.01, "delivered", number, attempt=1, worker=worker.name, deadline=deadline)
    worker.add(given + 0.02, "started", number, attempt=1, worker=worker.name)
    if fate < 0.75:
        broker.add(given + 1, "redelivered", number, attempt=1, worker=worker.name)
        worker = random.choice(workers)
        given += 2
        broker.add(given, "dispatched", number, attempt=2, worker=worker.name)
        worker.add(given + 0.01, "started", number, attempt=2, worker=worker.name)
    attempt = 2 if fate < 0.75 else 1
    ended = given + random.choice([0.1, 40.0, 40_000.0])
    names = {"attempt": attempt, "worker": worker.name}
    outcome = random.choice(["OK", "OK", "FAILED"])
    error = {} if outcome == "OK" else {"error_class": "RemoteFailure", "reason": f"no {number}"}
    worker.add(ended, "finished", number, outcome=outcome, **names)
    broker.add(ended + 0.01, "answered", number, outcome=outcome, **names, **error)
    if fate < 0.95:
        client.add(ended + 0.02, "answered", number, outcome=outcome, **error)
    if fate > 0.97:
        broker.add(ended + 5_000, "answered", number, outcome=outcome, **names)


def run(spark: SparkSession, folder: Path, slices: Iterator[list[Event]]) -> RunSummary:
    """Run the pipeline after each slice; return the last summary."""
    (folder / "journal").mkdir(parents=True)
    builder = EventBuilder()
    for events in slices:
        builder.events += events
        builder.write_source(folder / "journal")
        summary = runner.run(spark, folder / "journal", folder / "lake", open_source=ParquetSource)
    return summary


def tables_of(spark: SparkSession, root: Path) -> dict[str, list[str]]:
    lake = Lake.at(spark, root)
    return {name: sorted(map(repr, collect(lake.table(name)))) for name in TABLES}


def require_equal(spark: SparkSession, folder: Path, seed: int, *slicings: Slicing) -> None:
    whole = run(spark, folder / "whole", random_journal(seed).whole())
    expected = tables_of(spark, folder / "whole" / "lake")
    assert len(expected["audit_verdicts"]) > 50
    assert len(expected["silver_access"]) == 22
    assert any("'shop, shop2'" in row for row in expected["silver_requests"])
    for slicing in slicings:
        place = folder / slicing.__name__
        summary = run(spark, place, slicing(random_journal(seed)))
        assert summary.audit == whole.audit
        found = tables_of(spark, place / "lake")
        for name in TABLES:
            assert found[name] == expected[name], (slicing.__name__, name)


def test_any_slicing_gives_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    require_equal(spark, tmp_path, 1, Journal.by_chance)


@pytest.mark.long
def test_recomputed_days_equal_merged_ones(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "KNOWN_MAX", 10)
    require_equal(spark, tmp_path, 1, Journal.by_chance)


def test_of_too_many_known_requests_all_days_are_returned(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_events, "_PAIRS_MAX", 2)
    days = [date(2026, 3, day) for day in (2, 3, 4)]
    ids = [{"request_id": call_id(number)} for number in (5, 7, 30)]
    ranges = [
        {"client": instance("c1"), "first_id": call_id(1), "last_id": call_id(9), "day": day}
        for day in days
    ]
    asked = rows_frame(spark, ids, "request_id string")
    known = request_events.known(asked, rows_frame(spark, ranges, schemas.BRONZE_IDS))
    assert known.days == set(days)
    assert set(known.ids) <= {call_id(5), call_id(7)}


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(3, 13))
def test_any_slicing_of_more_journals(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    require_equal(spark, tmp_path, seed, Journal.by_time, Journal.by_log, Journal.by_chance)
