"""The runner: incremental runs, late replies, damage, clocks, and the passage of time."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession
from tests.spark.events import Log, call_id, damaged_row, instance, instant
from tests.spark.pipeline.harness import Pipeline
from tests.spark.pipeline.test_aliases import call as old_call
from tests.spark.pipeline.test_skew import add_calls

from requite.errors import ConfigurationError
from requite.spark.clock import instant_us
from requite.spark.new_rows import EARLIEST, LATEST
from requite.spark.refresh import Progress, Refresh
from requite.spark.runner import RunSummary

pytestmark = pytest.mark.timeout(300)

DAY_S = 86400


def test_runs_follow_a_growing_journal(pipeline: Pipeline) -> None:
    builder = pipeline.builder
    broker, client, worker = builder.broker(), builder.client(), builder.worker()
    builder.call(1, 0.0, broker=broker, client=client, worker=worker)
    builder.call(2, 1.0, broker=broker, outcome="FAILED", error_class="RemoteFailure", reason="no")
    client.add(2.0, "accepted", 3, deadline=12.0)
    broker.add(2.0, "heartbeat", worker=worker.name, gap_s=0.5, busy=1, capacity=4)
    pipeline.write()

    first = pipeline.run()
    assert first.new_events == 14
    assert (first.audit.accepted, first.audit.exactly_one, first.audit.in_flight) == (3, 2, 1)
    assert first.as_of == instant(2.0)
    assert first.days == 1
    assert {name for name, rows in first.tables.items() if rows} == {
        "silver_requests",
        "silver_attempts",
        "silver_waits",
        "silver_heartbeats",
        "gold_service_minute",
        "gold_latency_histogram",
        "gold_queue_depth",
        "gold_worker_liveness",
        "gold_capacity",
        "gold_rightsizing",
        "audit_verdicts",
        "gold_failures",
    }
    finished = [step for step in pipeline.steps if step.rows is not None]
    assert finished[0] == Progress("journal", 14)
    assert finished[-1] == Progress("audit", 3)

    # Without new events nothing is computed, and the audit is the same.
    second = pipeline.run()
    assert (second.new_events, second.days, second.tables) == (0, 0, {})
    assert second.audit == first.audit

    # Only new events are read, and the requests that they complete are judged again.
    builder.call(4, 3.0, broker=broker)
    client.add(4.0, "answered", 3, outcome="OK")
    pipeline.write()
    third = pipeline.run()
    assert third.new_events == 4
    assert third.audit.exactly_one == third.audit.accepted == 4
    assert len(pipeline.rows("bronze_events")) == first.new_events + third.new_events


def test_a_late_reply_changes_the_day_of_its_request(pipeline: Pipeline) -> None:
    midnight = DAY_S / 2
    broker = pipeline.builder.broker()
    today, tomorrow = instant(0).date(), instant(DAY_S).date()
    pipeline.builder.call(1, 0.0, broker=broker)
    broker.add(midnight - 10, "accepted", 2, deadline=midnight + 30)
    broker.add(midnight - 5, "heartbeat", worker="w", gap_s=0.1, busy=0, capacity=1)
    # The acceptance of 3, by the other broker, is read by the second run.
    pipeline.builder.broker("b2").add(midnight + 20, "answered", 3, outcome="OK")
    pipeline.write()
    first = pipeline.run(as_of=instant(midnight + 5))
    assert pipeline.verdicts() == {
        call_id(1): ("EXACTLY_ONE", today),
        call_id(2): ("IN_FLIGHT", today),
        call_id(3): ("ORPHAN", tomorrow),
    }
    assert not first.audit.ok

    broker.add(midnight + 20, "answered", 2, outcome="OK")
    pipeline.builder.broker("b2").add(midnight - 3, "accepted", 3, deadline=midnight + 30)
    pipeline.write()
    second = pipeline.run()
    assert second.days == 2
    assert pipeline.verdicts() == {
        call_id(1): ("EXACTLY_ONE", today),
        call_id(2): ("EXACTLY_ONE", today),
        call_id(3): ("EXACTLY_ONE", today),
    }
    requests = {row["request_id"]: row for row in pipeline.rows("silver_requests")}
    assert requests[call_id(2)]["total_ms"] == 30_000
    assert requests[call_id(2)]["date"] == today
    minutes = {row["minute"]: row["accepted"] for row in pipeline.rows("gold_service_minute")}
    assert minutes == {instant(0): 1, instant(midnight - 60): 2}
    assert second.audit.ok


def test_an_open_request_becomes_missing_without_new_events(audit_only: Pipeline) -> None:
    audit_only.builder.broker().add(0.0, "accepted", 1, deadline=5.0)
    audit_only.write()
    early = audit_only.run(as_of=instant(5.9).replace(tzinfo=None))
    assert early.audit.in_flight == 1
    late = audit_only.run(as_of=instant(6.1))
    assert (late.audit.missing, late.audit.in_flight, late.audit.ok) == (1, 0, False)
    assert late.new_events == 0
    again = audit_only.run(as_of=instant(6.1))
    assert (again.days, again.audit) == (0, late.audit)


def test_only_the_minutes_of_new_events_are_recomputed(
    audit_only: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    recomputed: list[list[range]] = []

    def record(_refresh: Refresh, _days: list[date], within: list[range]) -> None:
        recomputed.append(
            [range(each.start // 60_000_000, each.stop // 60_000_000) for each in within]
        )

    monkeypatch.setattr(Refresh, "gold", record)
    broker, worker = audit_only.builder.broker(), audit_only.builder.worker()
    audit_only.builder.call(1, 0.0, broker=broker, worker=worker)
    audit_only.builder.call(2, 3_600.0, broker=broker, worker=worker)
    audit_only.write()
    audit_only.run()
    noon = instant_us(instant(0)) // 60_000_000
    assert [len(each) for each in recomputed[0]] == [2 * 24 * 60]  # whole days
    audit_only.builder.call(3, 5_400.0, broker=broker, worker=worker)
    audit_only.write()
    audit_only.run()
    # From the newest event of the run before to the newest one now, without the first hour.
    assert recomputed[1:] == [[range(noon + 60, noon + 100)]]


def test_open_requests_of_an_incomplete_copy_are_not_missing(audit_only: Pipeline) -> None:
    builder, behind = audit_only.builder, audit_only.journal / "behind"
    client, broker = builder.client("c1"), builder.broker("b1")
    client.add(0.0, "accepted", 1, deadline=5.0)
    client.add(0.0, "accepted", 2, deadline=5.0)
    client.add(0.5, "answered", 2, outcome="OK")
    # The log of its client is incomplete.
    broker.add(0.0, "accepted", call_id(1, "c2"), deadline=5.0)
    broker.add(0.0, "accepted", call_id(1, "c3"), deadline=5.0)
    builder.client("c2").add(1.0, "sent", call_id(2, "c2"))
    builder.call(9, 100.0, broker=broker)
    audit_only.write()
    behind.write_text(f"{client.log} client-{instance('c2')}")
    early = audit_only.run()
    assert (early.audit.in_flight, early.audit.missing) == (2, 1)
    assert (audit_only.run().days, audit_only.verdicts()[call_id(1, "c3")][0]) == (0, "MISSING")
    client.add(4.0, "answered", 1, outcome="OK")
    audit_only.write()
    behind.unlink()
    late = audit_only.run()
    assert (late.audit.in_flight, late.audit.missing, late.audit.exactly_one) == (0, 2, 3)


class Twice(NamedTuple):
    """A run over a journal of ended requests, and one an hour later over nothing new."""

    pipeline: Pipeline
    first: RunSummary
    liveness: list[dict[str, Any]]
    second: RunSummary


@pytest.fixture(scope="module")
def twice(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Twice:
    """A journal with damage, dropped events, a clock that went back, and a silent worker."""
    pipeline = Pipeline(spark, tmp_path_factory.mktemp("twice"))
    broker = pipeline.builder.broker()
    pipeline.builder.call(1, 0.0, broker=broker)
    broker.add(0.5, "dropped", dropped=12)
    broker.add(10.0, "accepted", 2, deadline=15.0)
    broker.add(10.0, "dispatched", 2, attempt=1, worker="w")
    broker.add(7.0, "answered", 2, attempt=1, worker="w", outcome="OK")
    pipeline.builder.call(3, 11.0, broker=broker)
    broker.add(11.0, "heartbeat", worker=instance("w1"), gap_s=0.1, busy=0, capacity=1)
    bad = [damaged_row(broker, 4096, "its checksum does not match"), damaged_row(broker, 8192)]
    pipeline.write(bad)
    first = pipeline.run()
    liveness = pipeline.rows("gold_worker_liveness")
    return Twice(pipeline, first, liveness, pipeline.run(as_of=instant(3600)))


def test_a_broker_whose_clock_is_wrong_changes_no_verdict(audit_only: Pipeline) -> None:
    hours_ahead, builder = 5 * 3600.0, audit_only.builder
    _, broker, _ = add_calls(
        builder, 60, broker_ahead_s=hours_ahead, begin_s=17_000.0, every_s=400.0
    )
    by_broker = [event for event in builder.events if event["role"] == "broker"]
    builder.events[:] = [event for event in builder.events if event["role"] != "broker"]
    audit_only.write()
    audit_only.run()
    builder.events += by_broker
    audit_only.write()
    found = audit_only.run()  # the broker's log arrived after the other logs were read
    assert (found.audit.accepted, found.audit.exactly_one) == (60, 60)
    assert found.audit.contradictions == 0
    assert found.as_of < instant(17_000.0 + 61 * 400.0)
    (bound,) = (row for row in audit_only.rows("silver_clocks") if row["log"] == broker.log)
    assert bound["at_least_us"] <= hours_ahead * 1e6 <= bound["at_most_us"]


def test_a_call_for_which_its_broker_generated_an_id_counts_once(audit_only: Pipeline) -> None:
    client, broker = audit_only.builder.client(), audit_only.builder.broker()
    for number in range(1, 4):
        old_call(client, broker, number, float(number), size=10)
    audit_only.builder.call(9, 5.0, client=client, broker=broker)
    audit_only.write()
    found = audit_only.run().audit
    assert (found.accepted, found.exactly_one, found.contradictions) == (4, 4, 0)
    requests = audit_only.rows("silver_requests")
    assert [row["queue_ms"] for row in requests] == [0.0] * 4  # known only from the broker


def test_undecodable_rows_are_quarantined_and_reported(twice: Twice) -> None:
    summary = twice.first
    assert summary.quarantined == 2
    assert (summary.audit.damaged, summary.audit.dropped_events) == (2, 12)
    assert summary.audit.ok
    assert not summary.audit.complete
    assert "the journal is incomplete" in summary.audit.sentence()
    rows = twice.pipeline.rows("bronze_quarantine")
    (first, _) = sorted(rows, key=lambda row: row["byte_offset"])
    assert first["reason"] == "its checksum does not match"
    assert bytes(first["raw"]) == b"\xff" * 8
    assert twice.second.quarantined == 0
    assert twice.second.audit == summary.audit


def test_a_clock_that_went_back_is_counted(twice: Twice) -> None:
    assert twice.first.clock_went_back == 1
    assert twice.first.audit.exactly_one == twice.first.audit.accepted == 3
    durations = ("queue_ms", "service_ms", "total_ms")
    requests = twice.pipeline.rows("silver_requests")
    assert len(requests) == 3
    assert all(row[name] >= 0 for row in requests for name in durations)


def test_workers_become_silent_without_new_events(twice: Twice) -> None:
    assert [row["status"] for row in twice.liveness] == ["alive"]
    assert twice.second.days == 0
    assert twice.second.tables["gold_worker_liveness"] == 1
    silent = twice.pipeline.rows("gold_worker_liveness")
    assert [row["status"] for row in silent] == ["silent"]


def test_a_batch_without_decodable_rows_is_quarantined(pipeline: Pipeline) -> None:
    pipeline.write([damaged_row(pipeline.builder.broker(), 4096, "crc")])
    summary = pipeline.run()
    assert (summary.new_events, summary.quarantined, summary.as_of) == (0, 1, None)
    assert pipeline.rows("bronze_events") == []


def test_an_empty_journal_is_no_failure(pipeline: Pipeline) -> None:
    pipeline.write()
    summary = pipeline.run()
    assert (summary.new_events, summary.as_of, summary.audit.accepted) == (0, None, 0)
    assert summary.audit.ok
    for name in ("silver_requests", "audit_verdicts", "gold_capacity", "gold_failures"):
        assert pipeline.rows(name) == []


def run_up_to_the_latest_instant(pipeline: Pipeline) -> Log:
    """Run over a call at the latest instant, and one with a deadline then; return its log."""
    end = (LATEST - instant(0)).total_seconds() - 1
    broker = pipeline.builder.broker()
    pipeline.builder.call(1, 0.0, broker=broker)
    broker.add(1.0, "accepted", 2, deadline=end)  # as with a timeout of 8,000 years
    pipeline.builder.call(3, end, broker=pipeline.builder.broker("b2"), timeout_s=0.5)
    pipeline.write()
    summary = pipeline.run(as_of=instant(10))
    assert (summary.audit.exactly_one, summary.audit.in_flight) == (2, 1)
    assert summary.days == 2
    return broker


def test_instants_at_the_end_of_the_calendar_are_supported(pipeline: Pipeline) -> None:
    run_up_to_the_latest_instant(pipeline)
    with pytest.raises(ConfigurationError, match="since 1970"):
        pipeline.run(as_of=datetime(1, 1, 1))


@pytest.mark.long
def test_ended_requests_are_judged_as_of_the_earliest_instant(pipeline: Pipeline) -> None:
    broker = run_up_to_the_latest_instant(pipeline)
    broker.add(2.0, "answered", 2, outcome="OK")
    pipeline.write()
    assert pipeline.run(as_of=EARLIEST).audit.exactly_one == 3


def test_a_reply_days_later_ends_its_request(audit_only: Pipeline) -> None:
    broker = audit_only.builder.broker()
    broker.add(0.0, "accepted", 1, deadline=2.5 * DAY_S)
    audit_only.write()
    assert audit_only.run().audit.in_flight == 1
    broker.add(2 * DAY_S, "answered", 1, outcome="OK")
    audit_only.write()
    summary = audit_only.run()
    assert summary.audit.exactly_one == summary.audit.accepted == 1
    (row,) = audit_only.rows("silver_requests")
    assert row["finished_at"] - row["accepted_at"] == timedelta(days=2)
