"""Stories of single requests: the verdict, what the caller was told, and the words."""

from __future__ import annotations

import pytest
from tests.spark.events import EventBuilder, Log, call_id, instant
from tests.story.events import findings_of

from requite.chronicle import NOT_IDEMPOTENT
from requite.story.steps import phrase, steps
from requite.story.telling import Story, tell
from requite.story.vocabulary import Contradiction, Verdict
from requite.story.words import CONTRADICTIONS, MEANINGS

NOW = instant(100.0)


def told(builder: EventBuilder, number: int = 1, **options) -> Story:
    story = tell(findings_of(builder, NOW, **options), call_id(number))
    assert story is not None
    return story


@pytest.fixture
def builder() -> EventBuilder:
    return EventBuilder()


def test_a_request_in_order(builder):
    b, c, w = builder.broker(), builder.client(), builder.worker()
    builder.call(1, 0.0, broker=b, client=c, worker=w)
    story = told(builder)
    assert (story.verdict, story.contradictions) == (Verdict.EXACTLY_ONE, ())
    assert story.sentences == ("Its caller got the reply (0 B) after 10.0 ms.",)
    assert story.end is not None
    assert story.end.role == "client"
    # At one instant, logs are in the order of their names.
    worker = f"worker {w.name[:8]}"
    assert [(step.who.split()[0], step.what) for step in steps(story.events)] == [
        ("broker", "accepts it: 10 B, due in 5 s"),
        ("broker", f"gives it to {worker}"),
        ("client", "takes the call: due in 5 s"),
        ("client", "sends it"),
        ("worker", "receives it"),
        ("worker", "starts its handler"),
        ("broker", f"sends the reply of {worker}: 12 B"),
        ("client", "gives its caller the reply: 0 B"),
        ("worker", "its handler ends: 0 B"),
    ]


def test_a_request_whose_worker_was_lost(builder):
    b, c = builder.broker(), builder.client()
    c.add(0.0, "accepted", 1, deadline=5.0)
    c.add(0.0, "sent", 1, attempt=1)
    b.add(0.1, "accepted", 1, deadline=5.0)
    b.add(0.1, "dispatched", 1, worker="aa" * 8, attempt=1)
    b.add(1.0, "redelivered", 1, worker="aa" * 8, attempt=1, reason="the worker was lost")
    b.add(1.0, "dispatched", 1, worker="bb" * 8, attempt=2)
    b.add(1.2, "answered", 1, worker="bb" * 8, attempt=2, outcome="OK", bytes=7)
    c.add(1.3, "answered", 1, attempt=1, outcome="OK", bytes=7)
    story = told(builder)
    assert story.verdict is Verdict.EXACTLY_ONE
    assert story.sentences == (
        "Its caller got the reply (7 B) after 1.3 s.",
        "Brokers gave it to workers 2 times.",
        f"1 attempt was lost or given up and retried: broker {b.name[:8]}: the worker was lost.",
        "No journal of worker aaaaaaaa is here.",
    )
    Log("worker", "aa" * 8, builder.events).add(0.0, "opened")
    assert told(builder).sentences[-1] == (
        "The journal of worker aaaaaaaa has no event of it: the worker did not get it, or was"
        " killed within 0.05 s."
    )
    whats = [step.what for step in steps(story.events)]
    assert "takes it back from worker aaaaaaaa: the worker was lost; queues it again" in whats
    assert "gives it to worker bbbbbbbb, attempt 2" in whats


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (
            {"kind": "expired", "outcome": "EXPIRED", "error_class": "CallTimeout"},
            "Its caller got CallTimeout after 5 s.",
        ),
        (
            {"kind": "cancelled", "outcome": "CANCELLED", "reason": "the caller cancelled it"},
            "Its caller got CANCELLED after 5 s: the caller cancelled it.",
        ),
        (
            {
                "kind": "answered",
                "outcome": "DENIED",
                "error_class": "Denied",
                "reason": "shop may not call pay.",
            },
            "Its caller got Denied after 5 s: shop may not call pay.",
        ),
        ({"kind": "answered", "error_class": "TransportError"}, "Its caller got TransportError"),
    ],
)
def test_what_the_caller_was_told(builder, end, expected):
    c = builder.client()
    c.add(0.0, "accepted", 1, deadline=5.0)
    c.add(5.0, end.pop("kind"), 1, attempt=1, **end)
    story = told(builder)
    assert story.verdict is Verdict.EXACTLY_ONE
    assert story.sentences[0].startswith(expected)


def test_without_a_journal_of_the_client_it_is_unknown_what_the_caller_got(builder):
    builder.call(1, 0.0, broker=builder.broker())
    assert told(builder).sentences == (
        "The broker sent the reply (12 B) after 10.0 ms; no journal here shows what its client"
        " got.",
    )
    other = EventBuilder()
    builder.call(2, 0.0, broker=other.broker(), outcome="FAILED", reason="no such account")
    other.events += builder.events
    assert told(other, 2).sentences[0] == (
        "The broker ended it with FAILED after 10.0 ms: no such account; no journal here shows"
        " what its client got."
    )


def test_a_refused_request(builder):
    b = builder.broker()
    why = {"error_class": "Overloaded", "reason": "the queue is full"}
    b.add(0.0, "refused", 1, outcome="OVERLOADED", **why)
    story = told(builder)
    assert story.verdict is None
    assert story.sentences == ("The broker refused it with Overloaded: the queue is full.",)


def test_a_refusal_before_a_reply_is_told(builder):
    b, c = builder.broker(), builder.client()
    b.add(0.1, "refused", 1, outcome="OVERLOADED", error_class="Overloaded", reason="full")
    builder.call(1, 0.2, broker=b, client=c)
    assert told(builder).sentences[1] == (
        f"It was refused 1 time before that: broker {b.name[:8]}: Overloaded: full."
    )


def test_a_request_that_is_open(builder):
    b = builder.broker()
    b.add(98.0, "accepted", 1, deadline=104.0)
    b.add(98.0, "dispatched", 1, worker="aa" * 8, attempt=1)
    b.add(50.0, "accepted", 2, deadline=60.0)
    story, missing = told(builder), told(builder, 2)
    assert (story.verdict, missing.verdict) == (Verdict.IN_FLIGHT, Verdict.MISSING)
    assert story.sentences == (
        "It has no outcome yet; 4 s of its time are left, as of the newest event in the journals.",
        f"The newest event of it: broker {b.name[:8]} gives it to worker aaaaaaaa.",
        "No journal of worker aaaaaaaa is here.",
    )
    assert missing.sentences[0] == (
        "It has no outcome; its time was over 40 s before the newest event in the journals."
    )


def test_a_copy_that_is_behind_makes_no_request_missing(builder):
    b, c = builder.broker(), builder.client()
    c.add(10.0, "accepted", 1, deadline=15.0)
    b.add(10.0, "accepted", 2, deadline=15.0)
    assert told(builder).verdict is Verdict.MISSING
    assert told(builder, behind=[c.log]).verdict is Verdict.IN_FLIGHT
    assert told(builder, behind=[b.log]).verdict is Verdict.MISSING
    assert told(builder, 2, behind=[c.log]).verdict is Verdict.IN_FLIGHT
    assert told(builder, 2, behind=[b.log]).verdict is Verdict.IN_FLIGHT


def test_a_request_that_only_a_worker_journals(builder):
    w = builder.worker()
    w.add(1.0, "started", 1, attempt=1, worker=w.name)
    story = told(builder)
    assert (story.verdict, story.end) == (None, None)
    assert story.sentences[0].startswith("No verdict: no client or broker with a journal here")


def test_contradictions_are_told(builder):
    b = builder.broker()
    builder.call(1, 0.0, broker=b)
    b.add(0.5, "answered", 1, outcome="OK")
    story = told(builder)
    assert story.verdict is Verdict.DUPLICATE_OUTCOME
    assert Contradiction.BROKER_ENDED_TWICE in story.contradictions
    kind = Contradiction.BROKER_ENDED_TWICE
    assert f"{kind.value}: {CONTRADICTIONS[kind]}." in story.sentences


def test_an_id_that_a_broker_made_up_is_explained(builder):
    b = builder.broker()
    made_up = "8" + "0" * 30 + "1"
    b.add(0.0, "accepted", made_up, deadline=5.0)
    story = tell(findings_of(builder, NOW), made_up)
    assert story is not None
    assert "MDP 0.1 or 0.2" in story.sentences[-1]


def test_partial_replies_in_a_row_are_one_line(builder):
    c = builder.client()
    c.add(0.0, "accepted", 1, deadline=5.0, reason=NOT_IDEMPOTENT)
    for number in range(3):
        c.add(0.1 * number, "partial", 1, bytes=1000)
    c.add(1.0, "answered", 1, outcome="OK", bytes=0)
    story = told(builder)
    assert [step.what for step in steps(story.events)] == [
        "takes the call: due in 5 s, must not run twice",
        "gets 3 partial replies, 3.0 kB in all",
        "gives its caller the reply: 0 B",
    ]
    assert len(story.record()["events"]) == 5


def test_an_event_that_cannot_be_read_is_shown_and_does_not_count(builder):
    b = builder.broker()
    builder.call(1, 0.0, broker=b)
    b.add(0.5, "unknown:77", 1, raw=b"\xff" * 64, reason="unknown kind 77")
    story = told(builder)
    assert story.verdict is Verdict.EXACTLY_ONE
    assert phrase(story.events[-1]) == (
        "recorded an event that this version cannot read: unknown kind 77"
    )


def test_nothing_is_told_of_an_unknown_request(builder):
    builder.call(1, 0.0, broker=builder.broker())
    assert tell(findings_of(builder), call_id(2)) is None


def test_every_verdict_and_contradiction_has_a_meaning():
    assert set(MEANINGS) == set(Verdict)
    assert set(CONTRADICTIONS) == set(Contradiction)
