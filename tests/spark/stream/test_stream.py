"""The streaming audit as a running query: it raises alerts, and removes its state."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from queue import Queue
from threading import Event
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.events import NOON, EventBuilder, call_id, instant
from tests.support.live import eventually

from requite.chronicle import EventRow, Kind, WriterRole
from requite.errors import RequiteError
from requite.journal import Journal as RequestJournal
from requite.spark import register, schemas
from requite.spark.watch.alerts import alerts
from requite.spark.watch.watched_request import Patience
from requite.spark.watch.watching import Watching

QUICK = Patience(grace_s=0.2, settle_s=0.2, remember_s=1.0)


class Journal:
    """A folder of events that grows and is read as a stream."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder / "events"
        self._folder.mkdir()
        self.builder = EventBuilder()

    def write(self) -> None:
        """Write the events that were added since the last write."""
        self.builder.write(self._folder)

    def read(self) -> Any:
        reader = self._spark.readStream.schema(schemas.BRONZE_EVENTS)
        return reader.parquet(str(self._folder))


@pytest.fixture
def journal(spark: SparkSession, tmp_path: Path) -> Journal:
    return Journal(spark, tmp_path)


@contextmanager
def watching(
    journal: Journal, folder: Path, monkeypatch: pytest.MonkeyPatch, **given: Any
) -> Iterator[tuple[Watching, Queue[Any]]]:
    """Watch a journal, with short waiting times; yield the watch and the queue of its alerts."""
    found: Queue[Any] = Queue()
    monkeypatch.setattr("requite.spark.watch.watching.alerts", lambda events: alerts(events, QUICK))

    def put(rows: Any) -> None:
        for row in rows:
            found.put(row)

    run = Watching(journal.read(), put, checkpoint=folder / "checkpoint", every_s=0.2, **given)
    try:
        yield run, found
    finally:
        run.stop()


def now_after_noon() -> float:
    return time.time() - NOON.timestamp()


def until(run: Watching, holds: Callable[[int], bool]) -> int:
    """Wait until the number of rows in the state store satisfies `holds`; return it."""
    while True:
        progress = run.query.lastProgress
        if progress is not None and progress["stateOperators"]:
            rows: int = progress["stateOperators"][0]["numRowsTotal"]
            if holds(rows):
                return rows
        run.wait(Event(), 0.1)


def table(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.parquet(str(folder / "alerts"))


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_an_overdue_request_is_alerted_and_all_state_is_removed(
    spark: SparkSession, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = journal.builder.broker()
    start = now_after_noon()
    for number in range(20):
        journal.builder.call(number, start, broker=broker)
    journal.write()
    with watching(journal, tmp_path, monkeypatch, to=tmp_path / "out") as (run, found):
        until(run, lambda rows: rows > 0)
        now = now_after_noon()
        broker.add(now, "accepted", 99, deadline=now + 1.0)
        journal.write()
        alert = found.get(timeout=120)
        until(run, lambda rows: rows == 0)
    assert alert["request_id"] == call_id(99)
    assert alert["kind"] == "MISSED_DEADLINE"
    assert alert["deadline"] == instant(now + 1.0)
    assert alert["noticed_at"] >= alert["deadline"] + timedelta(seconds=0.2)
    assert found.empty()
    assert [row.request_id for row in table(spark, tmp_path / "out").collect()] == [call_id(99)]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_watch_resumes_where_it_was_stopped(
    spark: SparkSession, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, out = journal.builder.client(), tmp_path / "out"
    now = now_after_noon()
    client.add(now, "answered", 1)
    client.add(now, "accepted", 2, deadline=now + 900.0)  # open while the watch is stopped
    journal.write()
    with watching(journal, tmp_path, monkeypatch, to=out) as (_, found):
        assert found.get(timeout=120)["kind"] == "ORPHAN"
    client.add(now, "accepted", 2, deadline=now + 900.0)
    journal.write()
    with watching(journal, tmp_path, monkeypatch, to=out) as (_, found):
        assert found.get(timeout=120)["kind"] == "ACCEPTED_TWICE"
        assert found.empty()
    kinds = sorted(row.kind for row in table(spark, out).collect())
    assert kinds == ["ACCEPTED_TWICE", "ORPHAN"]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_journal_that_is_removed_ends_the_watch_with_a_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    register(spark)
    folder = tmp_path / "journal"
    with RequestJournal(folder, WriterRole.BROKER, b"broker-1") as journal:
        accepted = EventRow(time.monotonic(), Kind.ACCEPTED, call_id(1), b"echo")
        journal.chronicle.event_rows.append(accepted)
    events = spark.readStream.format("requite").load(str(folder))
    run = Watching(events, print, checkpoint=tmp_path / "checkpoint", every_s=0.2)
    try:
        eventually(lambda: run.query.lastProgress, "a batch has ended", within_s=90)
        shutil.rmtree(folder)
        with pytest.raises(RequiteError, match="journal") as failure:
            run.wait(Event(), 90)
        assert "\n" not in str(failure.value)
    finally:
        run.stop()
