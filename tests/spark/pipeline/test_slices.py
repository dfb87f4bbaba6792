"""In however many runs a journal is read, and whatever comes first, the tables are the same."""

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
from tests.spark.events import Event, Story, call_id, collect, instance, rows_frame
from tests.spark.pipeline.following import Written

from requite.spark import request_events, runner, schemas
from requite.spark.lake import Lake
from requite.spark.runner import RunSummary

TABLES: Final = (
    "silver_requests", "silver_attempts", "silver_waits", "silver_heartbeats", "audit_verdicts",
    "audit_contradictions", "gold_service_minute", "gold_latency_histogram", "gold_queue_depth",
    "gold_capacity", "gold_worker_liveness", "gold_rightsizing", "gold_failures",
)  # fmt: skip
DAY_S: Final = 86_400.0

pytestmark = pytest.mark.timeout(600)


@dataclass
class Journal:
    """Events in the order in which they happened, and their slices."""

    events: list[Event]
    random: Random

    def whole(self) -> Iterator[list[Event]]:
        yield self.events

    def by_time(self) -> Iterator[list[Event]]:
        """Cut the events of all logs at random instants."""
        first, last = sorted(self.random.sample(range(1, len(self.events)), 2))
        yield from (self.events[:first], self.events[first:last], self.events[last:])

    def by_log(self) -> Iterator[list[Event]]:
        """Read log after log, as machines deliver them."""
        logs = sorted({event["log"] for event in self.events})
        self.random.shuffle(logs)
        middle = len(logs) // 2
        for some in (logs[:middle], logs[middle:]):
            yield [event for event in self.events if event["log"] in some]

    def by_chance(self) -> Iterator[list[Event]]:
        """Read each log up to a place of its own, and then the rest."""
        later: list[Event] = []
        some = []
        for log in sorted({event["log"] for event in self.events}):
            told = [event for event in self.events if event["log"] == log]
            count = self.random.randint(0, len(told))
            some += told[:count]
            later += told[count:]
        yield from (some, later)


Slicing = Callable[[Journal], Iterator[list[Event]]]


def told(seed: int) -> Journal:
    """Tell of a hundred calls over three days, with every kind of trouble."""
    random, story = Random(seed), Story()
    broker, client = story.broker(), story.client()
    workers = [story.worker(f"w{number}") for number in range(3)]
    at = 0.0
    for number in range(1, 61):
        at += random.choice([0.5, 7.0, 61.0, 3_600.0, 10_000.0])
        _tell(story, random, number, at, broker, client, workers)
        if random.random() < 0.3:
            busy = random.randint(0, 4)
            worker = random.choice(workers).name
            broker.tell(at, "heartbeat", worker=worker, gap_s=0.5, busy=busy, capacity=4)
    events = sorted(story.events, key=lambda event: event["ts"])
    written: Counter[str] = Counter()
    for event in events:
        event["seq"] = written[event["log"]]
        event["byte_offset"] = 64 + 8 * event["seq"]
        written[event["log"]] += 1
    return Journal(events, random)


def _tell(
    story: Story, random: Random, number: int, at: float, broker: Any, client: Any, workers: Any
) -> None:
    worker, fate = random.choice(workers), random.random()
    if fate < 0.5:
        story.call(number, at, broker=broker, client=client, worker=worker)
        return
    deadline = at + random.choice([5.0, 30.0, DAY_S])
    client.tell(at, "accepted", number, deadline=deadline)
    client.tell(at, "sent", number, attempt=1)
    if fate < 0.55:
        return  # lost on its way
    broker.tell(at + 0.1, "accepted", number, deadline=deadline)
    broker.tell(at + 0.1, "queued", number)
    if fate < 0.65:
        return  # nobody takes it
    given = at + random.choice([0.2, 2.0, 9_000.0])
    broker.tell(given, "dispatched", number, attempt=1, worker=worker.name)
    worker.tell(given + 0.01, "delivered", number, attempt=1, worker=worker.name, deadline=deadline)
    worker.tell(given + 0.02, "started", number, attempt=1, worker=worker.name)
    if fate < 0.75:
        broker.tell(given + 1, "redelivered", number, attempt=1, worker=worker.name)
        worker = random.choice(workers)
        given += 2
        broker.tell(given, "dispatched", number, attempt=2, worker=worker.name)
        worker.tell(given + 0.01, "started", number, attempt=2, worker=worker.name)
    attempt = 2 if fate < 0.75 else 1
    ended = given + random.choice([0.1, 40.0, 40_000.0])
    names = {"attempt": attempt, "worker": worker.name}
    outcome = random.choice(["OK", "OK", "FAILED"])
    error = {} if outcome == "OK" else {"error_class": "RemoteFailure", "reason": f"no {number}"}
    worker.tell(ended, "finished", number, outcome=outcome, **names)
    broker.tell(ended + 0.01, "answered", number, outcome=outcome, **names, **error)
    if fate < 0.95:
        client.tell(ended + 0.02, "answered", number, outcome=outcome, **error)
    if fate > 0.97:
        broker.tell(ended + 5_000, "answered", number, outcome=outcome, **names)


def run(spark: SparkSession, folder: Path, slices: Iterator[list[Event]]) -> RunSummary:
    """Bring a lake up to date after each slice; return the last summary."""
    (folder / "journal").mkdir(parents=True)
    story = Story()
    for events in slices:
        story.events += events
        story.write_source(folder / "journal")
        summary = runner.run(spark, folder / "journal", folder / "lake", open_source=Written)
    return summary


def tables_of(spark: SparkSession, root: Path) -> dict[str, list[str]]:
    lake = Lake.at(spark, root)
    return {name: sorted(map(repr, collect(lake.table(name)))) for name in TABLES}


def require_equal(spark: SparkSession, folder: Path, seed: int, *slicings: Slicing) -> None:
    whole = run(spark, folder / "whole", told(seed).whole())
    expected = tables_of(spark, folder / "whole" / "lake")
    assert len(expected["audit_verdicts"]) > 50
    for slicing in slicings:
        place = folder / slicing.__name__
        summary = run(spark, place, slicing(told(seed)))
        assert summary.audit == whole.audit
        found = tables_of(spark, place / "lake")
        for name in TABLES:
            assert found[name] == expected[name], (slicing.__name__, name)


def test_any_slicing_gives_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    require_equal(spark, tmp_path, 1, Journal.by_chance)


@pytest.mark.long
def test_days_that_are_made_anew_are_the_same_as_what_is_merged(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "KNOWN_MAX", 10)
    require_equal(spark, tmp_path, 1, Journal.by_chance)


def test_of_very_many_known_requests_all_days_are_named(
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
