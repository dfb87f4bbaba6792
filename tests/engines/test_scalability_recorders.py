"""The rows that the SP engines write into their chronicles."""

from __future__ import annotations

from math import inf

import pytest
from tests.support.sp_engines import (
    INSTANCE,
    ORIGIN,
    DeviceBench,
    RepBench,
    ReqBench,
    tag,
    way,
)

from requite.chronicle import NO_CALL, PRESS_ROWS, SWEEP_EVERY_S, Chronicle, Kind, Span
from requite.engine import Started
from requite.errors import CallError
from requite.request import Status

FIRST = ORIGIN + (1).to_bytes(8, "big")


def told(chronicle: Chronicle, call_id: bytes | None = None) -> list[str]:
    """Return the names of all event rows, or of those of one request, in order."""
    return [
        Kind(each.kind).name
        for each in chronicle.event_rows
        if call_id is None or each.call_id == call_id
    ]


def spans(chronicle: Chronicle) -> list[Span]:
    return [Span(*row) for row in chronicle.spans]


@pytest.fixture
def chronicle() -> Chronicle:
    return Chronicle()


@pytest.fixture
def client(chronicle: Chronicle) -> ReqBench:
    bench = ReqBench(chronicle=chronicle, attempt_timeout=5.0)
    bench.join("a")
    return bench


@pytest.fixture
def worker(chronicle: Chronicle) -> RepBench:
    bench = RepBench(chronicle=chronicle)
    bench.join("c")
    return bench


@pytest.fixture
def device(chronicle: Chronicle) -> DeviceBench:
    bench = DeviceBench(chronicle=chronicle)
    bench.front("c")
    bench.back("s")
    chronicle.take()
    return bench


# --- the client -----------------------------------------------------------------------------------
def test_an_uneventful_call_is_one_span(client, chronicle):
    client.submit(1, b"hello", timeout=30)
    client.advance(SWEEP_EVERY_S / 2)
    client.answer(client.sent[0], b"ok")
    assert spans(chronicle) == [Span(100.0, 100.0, client.now, 130.0, FIRST, b"echo", b"", 5, 2)]
    assert told(chronicle) == []
    client.advance(1)
    assert told(chronicle) == []


def test_a_call_that_waits_for_a_channel_leaves_later_than_it_was_made(client, chronicle):
    client.block("a")
    client.submit(1)
    client.advance(SWEEP_EVERY_S / 2)
    client.unblock("a")
    client.answer(client.sent[0])
    (span,) = spans(chronicle)
    assert span.second_at == span.first_at + SWEEP_EVERY_S / 2


def test_calls_are_numbered_in_the_order_in_which_they_were_made(client, chronicle):
    for token in range(3):
        client.submit(token)
    for sent in reversed(client.sent):
        client.answer(sent)
    assert [span.call_id[:8] for span in spans(chronicle)] == [ORIGIN] * 3
    assert [span.call_id[-1] for span in spans(chronicle)] == [3, 2, 1]


def test_what_is_under_way_is_told_before_it_ends(client, chronicle):
    client.submit(1, b"abc", timeout=4)
    client.advance(SWEEP_EVERY_S)
    accepted, sent = chronicle.event_rows
    assert (accepted.kind, accepted.at, accepted.size, accepted.value) == (
        Kind.ACCEPTED,
        100.0,
        3,
        104.0,
    )
    assert (sent.kind, sent.attempt) == (Kind.SENT, 1)
    client.advance(1)
    client.answer(client.sent[0], b"ok")
    assert told(chronicle, FIRST) == ["ACCEPTED", "SENT", "ANSWERED"]
    assert chronicle.event_rows[-1].outcome == Status.OK
    assert chronicle.spans == []


def test_every_try_is_told(client, chronicle):
    client.submit(1)
    client.advance(5.5)
    client.lose("a", "reset")
    client.join("b")
    client.answer(client.sent[-1])
    assert told(chronicle, FIRST) == [
        "ACCEPTED",
        "SENT",
        "REDELIVERED",
        "SENT",
        "REDELIVERED",
        "SENT",
        "ANSWERED",
    ]
    reasons = [each.reason for each in chronicle.event_rows if each.kind == Kind.REDELIVERED]
    assert reasons == ["no reply within 5 s", "its connection was lost: reset"]
    attempts = [each.attempt for each in chronicle.event_rows if each.kind == Kind.SENT]
    assert attempts == [1, 2, 3]


@pytest.mark.parametrize(
    ("how", "kind", "outcome", "error"),
    [
        ("expire", Kind.EXPIRED, Status.EXPIRED, "CallTimeout"),
        ("cancel", Kind.CANCELLED, Status.CANCELLED, "Cancelled"),
        ("lose", Kind.ANSWERED, 255, "TransportError"),
        ("drain", Kind.CANCELLED, Status.CANCELLED, "Cancelled"),
        ("abandon_all", Kind.ANSWERED, 255, "CallError"),
    ],
)
def test_a_failed_call_is_told_event_by_event(client, chronicle, how, kind, outcome, error):
    client.submit(1, timeout=2, idempotent=False)
    match how:
        case "expire":
            client.freeze(2)
        case "cancel":
            client.cancel(1)
        case "lose":
            client.lose("a")
        case "drain":
            client.drain()
        case "abandon_all":
            client.client.calls.abandon_all(CallError("interrupted"), client.now)
    assert told(chronicle, FIRST) == ["ACCEPTED", "SENT", kind.name]
    end = chronicle.event_rows[-1]
    assert (end.outcome, end.error) == (outcome, error)


def test_what_was_not_taken_on_is_told(chronicle):
    client = ReqBench(chronicle=chronicle, hold=False)
    client.submit(1)
    (refused,) = chronicle.event_rows
    assert (refused.kind, refused.call_id, refused.error) == (Kind.REFUSED, NO_CALL, "Overloaded")


def test_replies_to_nothing_are_counted(client, chronicle):
    for _ in range(100):
        client.say("a", tag(77) + b"y", tag(78), b"?")
    assert chronicle.event_rows == []
    client.advance(SWEEP_EVERY_S)
    assert [(each.kind, each.call_id, each.reason) for each in chronicle.event_rows] == [
        (Kind.REFUSED, NO_CALL, "200 dropped: late, repeated or stray replies"),
        (Kind.REFUSED, NO_CALL, "100 dropped: malformed replies"),
    ]
    client.advance(1)
    assert len(chronicle.event_rows) == 2


# --- the worker -----------------------------------------------------------------------------------
def test_an_uneventful_request_is_one_span_of_the_workers_own(worker, chronicle):
    job = worker.request(body=b"hello")
    worker.feed(Started(job))
    worker.advance(SWEEP_EVERY_S / 2)
    worker.finish(job, b"ok")
    call_id = INSTANCE + (1).to_bytes(8, "big")
    assert spans(chronicle) == [
        Span(100.0, 100.0, worker.now, inf, call_id, b"echo", INSTANCE, 5, 2)
    ]


def test_a_request_that_is_under_way_is_told_before_it_ends(worker, chronicle):
    job = worker.request()
    worker.feed(Started(job))
    worker.advance(SWEEP_EVERY_S)
    worker.finish(job)
    assert told(chronicle) == ["DELIVERED", "STARTED", "FINISHED"]
    assert {each.worker for each in chronicle.event_rows} == {INSTANCE}


def test_a_failed_request_is_told_with_its_reason(worker, chronicle):
    job = worker.request()
    worker.feed(Started(job))
    worker.finish(job, b"ValueError: no", status=Status.FAILED)
    assert told(chronicle) == ["DELIVERED", "STARTED", "FINISHED"]
    end = chronicle.event_rows[-1]
    assert (end.outcome, end.error, end.reason) == (
        Status.FAILED,
        "RemoteFailure",
        "ValueError: no",
    )


def test_an_abandoned_request_is_told(worker, chronicle):
    job = worker.request()
    worker.feed(Started(job))
    worker.produce(job, b"part")
    worker.lose("c")
    worker.finish(job, status=Status.CANCELLED)
    assert told(chronicle) == ["DELIVERED", "STARTED", "PARTIAL", "ABANDONED", "FINISHED"]
    assert chronicle.event_rows[3].reason == "reset"


def test_a_start_that_comes_late_is_told_by_itself(worker, chronicle):
    job = worker.request()
    worker.worker.jobs.flush_open_spans(worker.now)
    worker.feed(Started(job))
    worker.finish(job)
    assert told(chronicle) == ["DELIVERED", "STARTED", "FINISHED"]


def test_requests_that_are_dropped_are_counted(worker, chronicle):
    worker.say("c", b"?", way(*range(8)) + tag(1), way(*range(8)) + tag(1))
    worker.advance(SWEEP_EVERY_S)
    assert [(each.kind, each.reason) for each in chronicle.event_rows] == [
        (Kind.REFUSED, "1 dropped: malformed"),
        (Kind.REFUSED, "2 dropped: hops"),
    ]


# --- the device -----------------------------------------------------------------------------------
def test_a_device_tells_of_no_request_but_how_many_there_were(device, chronicle):
    device.say("c", *(tag(i) + b"x" for i in range(5)))
    device.say("s", *(way(446) + tag(i) + b"y" for i in range(3)), way(9) + tag(1))
    device.advance(SWEEP_EVERY_S)
    assert chronicle.spans == []
    assert [(each.kind, each.call_id, each.reason) for each in chronicle.event_rows] == [
        (Kind.HEARTBEAT, NO_CALL, "forwarded 5 requests and 3 replies"),
        (Kind.REFUSED, NO_CALL, "1 dropped: stray"),
    ]
    device.advance(10)
    assert len(chronicle.event_rows) == 2


def test_a_device_tells_who_comes_and_goes(device, chronicle):
    device.front("d")
    device.lose("s")
    assert [(Kind(each.kind).name, each.reason) for each in chronicle.event_rows] == [
        ("WORKER_JOINED", "a channel to the front"),
        ("WORKER_LOST", "a channel to the back: reset"),
    ]


# --- all ------------------------------------------------------------------------------------------
def test_a_chronicle_that_nobody_reads_stays_small(monkeypatch, client, chronicle):
    monkeypatch.setattr("requite.chronicle.ROWS_MAX", 10)
    for token in range(20):
        client.submit(token)
        client.answer(client.sent[-1])
    client.submit("last")
    client.advance(2 * SWEEP_EVERY_S)
    assert chronicle.dropped >= 20


class Sheaf:
    """Spans that were pressed."""

    def __init__(self, rows: list[object]) -> None:
        self.rows = len(rows)


@pytest.mark.parametrize("bench", [ReqBench, RepBench])
def test_many_spans_are_pressed_by_the_engine(bench):
    chronicle = Chronicle(Sheaf)
    made = bench(chronicle=chronicle)
    made.join("p")
    for number in range(PRESS_ROWS + 3):
        if isinstance(made, ReqBench):
            made.submit(number)
            made.answer(made.sent[-1])
        else:
            job = made.request("p")
            made.feed(Started(job))
            made.finish(job)
    pressed, left, _ = chronicle.take()
    assert [each.rows for each in pressed] == [PRESS_ROWS]
    assert len(left) == 3
