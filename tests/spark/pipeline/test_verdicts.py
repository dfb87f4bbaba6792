"""The audit: every verdict with its evidence, and random events compared with the model."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.events import EventBuilder, call_id, collect, instant
from tests.spark.pipeline import model
from tests.story.events import findings_of

from requite.spark import audit
from requite.spark.lifecycle import lives
from requite.story.rules import USUAL, Terms
from requite.story.telling import tell
from requite.story.vocabulary import Verdict

NOW = instant(100)


def judge(frame: DataFrame, terms: Terms = USUAL) -> dict[str, dict[str, Any]]:
    return {row["request_id"]: row for row in collect(audit.verdicts(lives(frame), NOW, terms))}


@pytest.fixture(scope="module")
def builder() -> EventBuilder:
    """One request per situation, by number."""
    builder = EventBuilder()
    b1, b2, c1, w1 = builder.broker("b1"), builder.broker("b2"), builder.client(), builder.worker()
    builder.call(1, 0.0, broker=b1, client=c1, worker=w1)
    # 2: accepted and dispatched long ago, without an outcome.
    b1.add(1.0, "accepted", 2, deadline=5.0)
    b1.add(1.5, "dispatched", 2, attempt=1, worker=w1.name)
    # 3: open before its deadline; 4: open, past its deadline by less than the grace.
    b1.add(99.0, "accepted", 3, deadline=104.0)
    b1.add(98.0, "accepted", 4, deadline=99.5)
    # 5, 6: no deadline; accepted more, and less, than the longest deadline ago.
    b1.add(10.0, "accepted", 5)
    b1.add(90.0, "accepted", 6)
    # 7: two outcomes.
    builder.call(7, 2.0, broker=b1)
    b1.add(2.5, "expired", 7, outcome="EXPIRED")
    # 8: an outcome without an acceptance; 9: a dispatch without one; 10: only in a worker's log.
    b1.add(3.0, "answered", 8, outcome="OK")
    b1.add(3.0, "dispatched", 9, attempt=1, worker=w1.name)
    w1.add(3.0, "started", 10, attempt=1)
    # 11: accepted twice by one client without an outcome in between.
    c1.add(4.0, "accepted", 11, deadline=9.0)
    builder.call(11, 4.5, client=c1)
    # 12: lost with a broker, answered by the next; 13: the next one has not answered either.
    b1.add(5.0, "accepted", 12, deadline=10.0)
    builder.call(12, 6.0, broker=b2)
    b1.add(5.0, "accepted", 13, deadline=10.0)
    b2.add(6.0, "accepted", 13, deadline=10.0)
    # 14: refused as overloaded, sent again to the same broker, answered.
    b1.add(7.0, "accepted", 14, deadline=12.0)
    b1.add(7.1, "answered", 14, outcome="OVERLOADED")
    builder.call(14, 7.5, broker=b1)
    # 15: the broker answered, but the client has no outcome; 16: the other way round.
    c1.add(8.0, "accepted", 15, deadline=13.0)
    builder.call(15, 8.0, broker=b1)
    b1.add(8.0, "accepted", 16, deadline=13.0)
    builder.call(16, 8.0, client=c1)
    # 17: both brokers answered; the client took one.
    builder.call(17, 9.0, client=c1)
    builder.call(17, 9.0, broker=b1)
    builder.call(17, 9.5, broker=b2)
    # 18: refused, never accepted.
    b1.add(9.0, "refused", 18, outcome="OVERLOADED")
    # 19: the clock was set back by an hour between acceptance and answer.
    b1.add(50.0, "accepted", 19, deadline=55.0)
    b1.add(-3550.0, "answered", 19, outcome="OK")
    # 20: two acceptances and outcomes in one log, of which the later ones were written first.
    b1.add(11.5, "accepted", 20, deadline=20.0)
    b1.add(11.6, "answered", 20, outcome="OK")
    b1.add(11.0, "accepted", 20, deadline=20.0)
    b1.add(11.1, "answered", 20, outcome="OVERLOADED")
    # 21: cancelled by its caller.
    b1.add(12.0, "accepted", 21, deadline=17.0)
    b1.add(12.5, "cancelled", 21, outcome="CANCELLED")
    # 22: sent again before the broker noticed the lost client; 23: the second attempt is open.
    b1.add(13.0, "accepted", 22, deadline=18.0)
    b1.add(13.1, "accepted", 22, deadline=18.0)
    b1.add(13.2, "cancelled", 22, outcome="CANCELLED")
    b1.add(13.3, "answered", 22, outcome="OK")
    b1.add(14.0, "accepted", 23, deadline=19.0)
    b1.add(14.1, "accepted", 23, deadline=19.0)
    b1.add(14.2, "cancelled", 23, outcome="CANCELLED")
    # 24: answered by the manager of a pool, with the client's log; 25: only in a manager's log.
    m1 = builder.manager()
    builder.call(24, 15.0, client=c1, outcome="POISONED")
    m1.add(15.0, "queued", 24)
    m1.add(15.0, "answered", 24, outcome="POISONED")
    m1.add(15.0, "expired", 25, outcome="EXPIRED")
    # 26: ended an hour after a deadline of 30 s; 27: in time at the broker, too late at the client;
    # 28: ended within the grace; 29: late, and only in a broker's log.
    builder.call(26, -4000.0, client=c1, took_s=3630.0, timeout_s=30.0)
    builder.call(27, 20.0, client=c1, took_s=8.0)
    builder.call(27, 20.0, broker=b1)
    builder.call(28, 21.0, client=c1, took_s=5.9)
    builder.call(29, 22.0, broker=b1, took_s=6.1)
    # 30: ended much later by a slow broker, and answered in time by the next one.
    builder.call(30, 23.0, broker=b1, took_s=60.0)
    builder.call(30, 24.0, broker=b2)
    # 31: without a deadline, so not late; 32: late, and answered twice.
    b1.add(25.0, "accepted", 31)
    b1.add(95.0, "answered", 31, outcome="OK")
    builder.call(32, 26.0, broker=b1, took_s=10.0)
    b1.add(37.0, "answered", 32, outcome="OK")
    # 33: two attempts at one broker, of which one ended too late.
    b1.add(27.0, "accepted", 33, deadline=30.0)
    b1.add(28.0, "accepted", 33, deadline=30.0)
    b1.add(28.1, "cancelled", 33, outcome="CANCELLED")
    b1.add(31.5, "answered", 33, outcome="OK")
    return builder


@pytest.fixture(scope="module")
def judged(spark: SparkSession, builder: EventBuilder) -> dict[str, dict[str, Any]]:
    return judge(builder.frame(spark))


EXPECTED = {
    1: Verdict.EXACTLY_ONE,
    2: Verdict.MISSING,
    3: Verdict.IN_FLIGHT,
    4: Verdict.IN_FLIGHT,
    5: Verdict.MISSING,
    6: Verdict.IN_FLIGHT,
    7: Verdict.DUPLICATE_OUTCOME,
    8: Verdict.ORPHAN,
    9: Verdict.ORPHAN,
    10: None,
    11: Verdict.ACCEPTED_TWICE,
    12: Verdict.EXACTLY_ONE,
    13: Verdict.MISSING,
    14: Verdict.EXACTLY_ONE,
    15: Verdict.MISSING,
    16: Verdict.EXACTLY_ONE,
    17: Verdict.EXACTLY_ONE,
    18: None,
    19: Verdict.EXACTLY_ONE,
    20: Verdict.EXACTLY_ONE,
    21: Verdict.EXACTLY_ONE,
    22: Verdict.EXACTLY_ONE,
    23: Verdict.MISSING,
    24: Verdict.EXACTLY_ONE,
    25: None,
    26: Verdict.LATE,
    27: Verdict.LATE,
    28: Verdict.EXACTLY_ONE,
    29: Verdict.LATE,
    30: Verdict.EXACTLY_ONE,
    31: Verdict.EXACTLY_ONE,
    32: Verdict.DUPLICATE_OUTCOME,
    33: Verdict.LATE,
}


@pytest.mark.parametrize(("number", "expected"), EXPECTED.items())
def test_every_situation_has_its_verdict(
    judged: dict[str, dict[str, Any]], number: int, expected: Verdict | None
) -> None:
    row = judged.get(call_id(number))
    assert (row and row["verdict"]) == expected


def test_the_model_gives_the_same_verdicts(
    builder: EventBuilder, judged: dict[str, dict[str, Any]]
) -> None:
    grouped = model.by_request(builder.events)
    expected = {request_id: model.verdict(events, NOW) for request_id, events in grouped.items()}
    found = {request_id: row["verdict"] for request_id, row in judged.items()}
    assert found == {key: value for key, value in expected.items() if value}


def test_the_stories_of_all_situations_have_the_same_verdicts(builder: EventBuilder) -> None:
    findings = findings_of(builder, NOW)
    for number, expected in EXPECTED.items():
        story = tell(findings, call_id(number))
        assert story is not None
        assert story.verdict == expected, number


def test_a_violation_has_its_events_in_order_as_evidence(judged: dict[str, dict[str, Any]]) -> None:
    evidence = json.loads(judged[call_id(7)]["evidence"])
    assert [event["kind"] for event in evidence] == [
        "accepted",
        "dispatched",
        "answered",
        "expired",
    ]
    assert [event["ts"] for event in evidence] == sorted(event["ts"] for event in evidence)
    assert evidence[0]["ts"] == "2026-03-02T12:00:02.000000Z"
    assert evidence[1]["attempt"] == 1
    assert evidence[1]["worker"]
    assert evidence[2]["outcome"] == "OK"
    assert all({"log", "seq"} <= event.keys() for event in evidence)


def test_a_request_in_flight_has_its_newest_event_as_evidence(
    judged: dict[str, dict[str, Any]],
) -> None:
    (newest,) = json.loads(judged[call_id(3)]["evidence"])
    assert newest["kind"] == "accepted"
    assert judged[call_id(1)]["evidence"] is None


def test_a_verdict_belongs_to_the_day_of_the_acceptance(judged: dict[str, dict[str, Any]]) -> None:
    assert {row["date"] for row in judged.values()} == {instant(0).date()}


def test_a_late_request_has_its_events_as_evidence(judged: dict[str, dict[str, Any]]) -> None:
    evidence = json.loads(judged[call_id(26)]["evidence"])
    assert [event["kind"] for event in evidence] == ["accepted", "sent", "answered"]


def test_terms_determine_when_a_request_is_missing(spark: SparkSession) -> None:
    builder = EventBuilder()
    broker = builder.broker()
    broker.add(40.0, "accepted", 1)
    broker.add(40.0, "accepted", 2, deadline=95.0)
    hasty = judge(builder.frame(spark), Terms(longest_deadline_s=30.0, grace_s=10.0))
    assert hasty[call_id(1)]["verdict"] == Verdict.MISSING
    assert hasty[call_id(2)]["verdict"] == Verdict.IN_FLIGHT


def test_random_events_are_judged_as_by_the_model(spark: SparkSession) -> None:
    builder = random_events(random.Random(20260302), requests=400)
    found = {key: row["verdict"] for key, row in judge(builder.frame(spark)).items()}
    grouped = model.by_request(builder.events)
    expected = {request_id: model.verdict(events, NOW) for request_id, events in grouped.items()}
    assert found == {key: value for key, value in expected.items() if value}
    assert set(found.values()) == set(Verdict) - {Verdict.UNDECIDED, Verdict.ONE_SIDED}


def test_the_stories_of_requests_have_the_same_verdicts(spark: SparkSession) -> None:
    """`requite why` judges by the same rules, in plain Python: `requite.story`."""
    builder = random_events(random.Random(20261128), requests=600)
    findings = findings_of(builder)
    assert findings.newest is not None
    rows = collect(audit.verdicts(lives(builder.frame(spark)), findings.newest))
    found = {row["request_id"]: row["verdict"] for row in rows}
    stories = {each: tell(findings, each) for each in {e["request_id"] for e in builder.events}}
    told = {key: story and story.verdict for key, story in stories.items()}
    assert found == {key: verdict for key, verdict in told.items() if verdict}


def random_events(rng: random.Random, requests: int) -> EventBuilder:
    """Return requests with random events in random logs, by clocks that may go back."""
    builder = EventBuilder()
    logs = [builder.broker("b1"), builder.broker("b2"), builder.client(), builder.worker()]
    kinds = ["accepted", "accepted", "dispatched", "answered", "answered", "expired", "redelivered"]
    for number in range(requests):
        chosen = rng.sample(logs, rng.choice((1, 1, 2, 3)))
        at = rng.uniform(0, 100)
        for _ in range(rng.randrange(1, 7)):
            log = rng.choice(chosen)
            kind = "finished" if log.role == "worker" else rng.choice(kinds)
            deadline = (
                at + rng.uniform(-2, 10) if kind == "accepted" and rng.random() < 0.7 else None
            )
            log.add(at, kind, number, deadline=deadline)
            at += rng.choice((1.0, 1.0, 0.0, -0.5))
    return builder


def test_partial_replies_are_no_evidence(spark: SparkSession) -> None:
    builder = EventBuilder()
    broker = builder.broker()
    broker.add(0.0, "accepted", 1, deadline=5.0)
    for step in range(20):
        broker.add(0.1 * step, "partial", 1)
    row = judge(builder.frame(spark))[call_id(1)]
    assert row["verdict"] == Verdict.MISSING
    assert len(json.loads(row["evidence"])) == 1


def test_the_summary_counts_requests_and_violations() -> None:
    fine = audit.summarise({"EXACTLY_ONE": 1234, "IN_FLIGHT": 2})
    assert fine.ok
    assert fine.complete
    assert fine.sentence() == "1,236 accepted, 1,234 ended exactly once, 2 still in flight"
    every = audit.summarise({verdict.value: 1 for verdict in Verdict})
    assert every.accepted == 7
    assert every.violations == 5
    assert every.late == 1
    assert "1 ended too late" in every.sentence()
    assert not every.ok


def test_contradictions_are_no_violations_and_fail_the_audit() -> None:
    summary = audit.summarise({"EXACTLY_ONE": 3}, contradictions=2)
    assert summary.violations == 0
    assert not summary.ok
    assert summary.sentence() == "3 accepted, 3 ended exactly once; 2 contradictions"


def test_an_incomplete_journal_is_reported_as_incomplete() -> None:
    summary = audit.summarise({"EXACTLY_ONE": 3}, dropped_events=7, damaged=1)
    assert summary.ok
    assert not summary.complete
    assert "7 events dropped, 1 rows damaged" in summary.sentence()
    assert summary.record() == {
        "accepted": 3,
        "exactly_one": 3,
        "late": 0,
        "contradictions": 0,
        "undecided": 0,
        "one_sided": 0,
        "missing": 0,
        "duplicate": 0,
        "in_flight": 0,
        "orphan": 0,
        "accepted_twice": 0,
        "dropped_events": 7,
        "damaged": 1,
    }
