"""The runner: what is new, once; late replies, damage, and time that goes on."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession
from tests.spark.events import Log, call_id, damaged_row, instance, instant
from tests.spark.pipeline.following import Pipeline
from tests.spark.pipeline.test_aliases import call as old_call
from tests.spark.pipeline.test_skew import tell

from requite.errors import ConfigurationError
from requite.spark.clock import instant_us
from requite.spark.new_rows import EARLIEST, LATEST
from requite.spark.refresh import Progress, Refresh
from requite.spark.runner import RunSummary

pytestmark = pytest.mark.timeout(300)

DAY_S = 86400


def test_runs_follow_a_growing_journal(pipeline: Pipeline) -> None:
    story = pipeline.story
    broker, client, worker = story.broker(), story.client(), story.worker()
    story.call(1, 0.0, broker=broker, client=client, worker=worker)
    story.call(2, 1.0, broker=broker, outcome="FAILED", error_class="RemoteFailure", reason="no")
    client.tell(2.0, "accepted", 3, deadline=12.0)
    broker.tell(2.0, "heartbeat", worker=worker.name, gap_s=0.5, busy=1, capacity=4)
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

    # Nothing new: nothing is computed, and the verdict is the same.
    second = pipeline.run()
    assert (second.new_events, second.days, second.tables) == (0, 0, {})
    assert second.audit == first.audit

    # Only what is new is read, and what it completes is judged anew.
    story.call(4, 3.0, broker=broker)
    client.tell(4.0, "answered", 3, outcome="OK")
    pipeline.write()
    third = pipeline.run()
    assert third.new_events == 4
    assert third.audit.exactly_one == third.audit.accepted == 4
    assert len(pipeline.rows("bronze_events")) == first.new_events + third.new_events


def test_a_late_reply_changes_the_day_of_its_request(pipeline: Pipeline) -> None:
    midnight = DAY_S / 2
    broker = pipeline.story.broker()
    today, tomorrow = instant(0).date(), instant(DAY_S).date()
    pipeline.story.call(1, 0.0, broker=broker)
    broker.tell(midnight - 10, "accepted", 2, deadline=midnight + 30)
    broker.tell(midnight - 5, "heartbeat", worker="w", gap_s=0.1, busy=0, capacity=1)
    # The other broker's log is of a machine that is read later.
    pipeline.story.broker("b2").tell(midnight + 20, "answered", 3, outcome="OK")
    pipeline.write()
    first = pipeline.run(as_of=instant(midnight + 5))
    assert pipeline.verdicts() == {
        call_id(1): ("EXACTLY_ONE", today),
        call_id(2): ("IN_FLIGHT", today),
        call_id(3): ("ORPHAN", tomorrow),
    }
    assert not first.audit.ok

    broker.tell(midnight + 20, "answered", 2, outcome="OK")
    pipeline.story.broker("b2").tell(midnight - 3, "accepted", 3, deadline=midnight + 30)
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


def test_time_alone_turns_what_is_in_flight_into_a_violation(judging: Pipeline) -> None:
    judging.story.broker().tell(0.0, "accepted", 1, deadline=5.0)
    judging.write()
    early = judging.run(as_of=instant(5.9).replace(tzinfo=None))
    assert early.audit.in_flight == 1
    late = judging.run(as_of=instant(6.1))
    assert (late.audit.missing, late.audit.in_flight, late.audit.ok) == (1, 0, False)
    assert late.new_events == 0
    again = judging.run(as_of=instant(6.1))
    assert (again.days, again.audit) == (0, late.audit)


def test_only_the_minutes_that_news_is_about_are_told_anew(
    judging: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[list[range]] = []

    def noted(_refresh: Refresh, _days: list[date], within: list[range]) -> None:
        told.append([range(each.start // 60_000_000, each.stop // 60_000_000) for each in within])

    monkeypatch.setattr(Refresh, "gold", noted)
    broker, worker = judging.story.broker(), judging.story.worker()
    judging.story.call(1, 0.0, broker=broker, worker=worker)
    judging.story.call(2, 3_600.0, broker=broker, worker=worker)
    judging.write()
    judging.run()
    noon = instant_us(instant(0)) // 60_000_000
    assert [len(each) for each in told[0]] == [2 * 24 * 60]  # whole days
    judging.story.call(3, 5_400.0, broker=broker, worker=worker)
    judging.write()
    judging.run()
    # From the newest instant before to the newest one now; nothing of the first hour.
    assert told[1:] == [[range(noon + 60, noon + 100)]]


def test_what_is_open_in_a_copy_that_may_lack_its_end_is_not_missing(judging: Pipeline) -> None:
    story, behind = judging.story, judging.journal / "behind"
    client, broker = story.client("c1"), story.broker("b1")
    client.tell(0.0, "accepted", 1, deadline=5.0)
    client.tell(0.0, "accepted", 2, deadline=5.0)
    client.tell(0.5, "answered", 2, outcome="OK")
    broker.tell(0.0, "accepted", call_id(1, "c2"), deadline=5.0)  # its client is yet to tell
    broker.tell(0.0, "accepted", call_id(1, "c3"), deadline=5.0)
    story.client("c2").tell(1.0, "sent", call_id(2, "c2"))
    story.call(9, 100.0, broker=broker)
    judging.write()
    behind.write_text(f"{client.log} client-{instance('c2')}")
    early = judging.run()
    assert (early.audit.in_flight, early.audit.missing) == (2, 1)
    assert (judging.run().days, judging.verdicts()[call_id(1, "c3")][0]) == (0, "MISSING")
    client.tell(4.0, "answered", 1, outcome="OK")
    judging.write()
    behind.unlink()
    late = judging.run()
    assert (late.audit.in_flight, late.audit.missing, late.audit.exactly_one) == (0, 2, 3)


class Twice(NamedTuple):
    """A run over a journal in which all is over, and one an hour later over nothing new."""

    pipeline: Pipeline
    first: RunSummary
    liveness: list[dict[str, Any]]
    second: RunSummary


@pytest.fixture(scope="module")
def twice(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Twice:
    """Damage, lost events, a clock that went back, and a worker that falls silent, in one."""
    pipeline = Pipeline(spark, tmp_path_factory.mktemp("twice"))
    broker = pipeline.story.broker()
    pipeline.story.call(1, 0.0, broker=broker)
    broker.tell(0.5, "dropped", dropped=12)
    broker.tell(10.0, "accepted", 2, deadline=15.0)
    broker.tell(10.0, "dispatched", 2, attempt=1, worker="w")
    broker.tell(7.0, "answered", 2, attempt=1, worker="w", outcome="OK")
    pipeline.story.call(3, 11.0, broker=broker)
    broker.tell(11.0, "heartbeat", worker=instance("w1"), gap_s=0.1, busy=0, capacity=1)
    bad = [damaged_row(broker, 4096, "its checksum does not match"), damaged_row(broker, 8192)]
    pipeline.write(bad)
    first = pipeline.run()
    liveness = pipeline.rows("gold_worker_liveness")
    return Twice(pipeline, first, liveness, pipeline.run(as_of=instant(3600)))


def test_a_broker_whose_clock_is_wrong_changes_no_verdict(judging: Pipeline) -> None:
    hours_ahead, story = 5 * 3600.0, judging.story
    _, broker, _ = tell(story, 60, broker_ahead_s=hours_ahead, begin_s=17_000.0, every_s=400.0)
    by_broker = [event for event in story.events if event["role"] == "broker"]
    story.events[:] = [event for event in story.events if event["role"] != "broker"]
    judging.write()
    judging.run()
    story.events += by_broker
    judging.write()
    found = judging.run()  # the broker's log came a day later
    assert (found.audit.accepted, found.audit.exactly_one) == (60, 60)
    assert found.audit.contradictions == 0
    assert found.as_of < instant(17_000.0 + 61 * 400.0)
    (bound,) = (row for row in judging.rows("silver_clocks") if row["log"] == broker.log)
    assert bound["at_least_us"] <= hours_ahead * 1e6 <= bound["at_most_us"]


def test_a_call_that_its_broker_knows_by_another_name_counts_once(judging: Pipeline) -> None:
    client, broker = judging.story.client(), judging.story.broker()
    for number in range(1, 4):
        old_call(client, broker, number, float(number), size=10)
    judging.story.call(9, 5.0, client=client, broker=broker)
    judging.write()
    found = judging.run().audit
    assert (found.accepted, found.exactly_one, found.contradictions) == (4, 4, 0)
    requests = judging.rows("silver_requests")
    assert [row["queue_ms"] for row in requests] == [0.0] * 4  # which only the broker tells


def test_what_does_not_decode_is_kept_apart_and_told(twice: Twice) -> None:
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


def test_time_alone_makes_workers_silent(twice: Twice) -> None:
    assert [row["status"] for row in twice.liveness] == ["alive"]
    assert twice.second.days == 0
    assert twice.second.tables["gold_worker_liveness"] == 1
    silent = twice.pipeline.rows("gold_worker_liveness")
    assert [row["status"] for row in silent] == ["silent"]


def test_a_batch_in_which_nothing_decodes_is_kept_apart(pipeline: Pipeline) -> None:
    pipeline.write([damaged_row(pipeline.story.broker(), 4096, "crc")])
    summary = pipeline.run()
    assert (summary.new_events, summary.quarantined, summary.as_of) == (0, 1, None)
    assert pipeline.rows("bronze_events") == []


def test_a_journal_with_nothing_in_it_is_no_failure(pipeline: Pipeline) -> None:
    pipeline.write()
    summary = pipeline.run()
    assert (summary.new_events, summary.as_of, summary.audit.accepted) == (0, None, 0)
    assert summary.audit.ok
    for name in ("silver_requests", "audit_verdicts", "gold_capacity", "gold_failures"):
        assert pipeline.rows(name) == []


def run_to_the_end_of_the_calendar(pipeline: Pipeline) -> Log:
    """Run over a call at the end of time, and over one that has until then; return its log."""
    end = (LATEST - instant(0)).total_seconds() - 1
    broker = pipeline.story.broker()
    pipeline.story.call(1, 0.0, broker=broker)
    broker.tell(1.0, "accepted", 2, deadline=end)  # as with a timeout of 8,000 years
    pipeline.story.call(3, end, broker=pipeline.story.broker("b2"), timeout_s=0.5)
    pipeline.write()
    summary = pipeline.run(as_of=instant(10))
    assert (summary.audit.exactly_one, summary.audit.in_flight) == (2, 1)
    assert summary.days == 2
    return broker


def test_times_at_the_end_of_the_calendar_break_nothing(pipeline: Pipeline) -> None:
    run_to_the_end_of_the_calendar(pipeline)
    with pytest.raises(ConfigurationError, match="since 1970"):
        pipeline.run(as_of=datetime(1, 1, 1))


@pytest.mark.long
def test_what_ends_is_judged_at_the_beginning_of_the_calendar(pipeline: Pipeline) -> None:
    broker = run_to_the_end_of_the_calendar(pipeline)
    broker.tell(2.0, "answered", 2, outcome="OK")
    pipeline.write()
    assert pipeline.run(as_of=EARLIEST).audit.exactly_one == 3


def test_a_reply_that_comes_days_later_ends_its_request(judging: Pipeline) -> None:
    broker = judging.story.broker()
    broker.tell(0.0, "accepted", 1, deadline=2.5 * DAY_S)
    judging.write()
    assert judging.run().audit.in_flight == 1
    broker.tell(2 * DAY_S, "answered", 1, outcome="OK")
    judging.write()
    summary = judging.run()
    assert summary.audit.exactly_one == summary.audit.accepted == 1
    (row,) = judging.rows("silver_requests")
    assert row["finished_at"] - row["accepted_at"] == timedelta(days=2)
