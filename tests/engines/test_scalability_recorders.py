"""The rows that the SP engines write into their chronicles."""

from __future__ import annotations

from math import inf

import pytest
from tests.support.builds import constant_replaced
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


def kinds(chronicle: Chronicle, call_id: bytes | None = None) -> list[str]:
    """Return the kinds of all event rows in order, or of those of one call."""
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
    assert kinds(chronicle) == []
    client.advance(1)
    assert kinds(chronicle) == []


def test_the_span_of_a_waiting_call_has_its_time_of_sending(client, chronicle):
    client.block("a")
    client.submit(1)
    client.advance(SWEEP_EVERY_S / 2)
    client.unblock("a")
    client.answer(client.sent[0])
    (span,) = spans(chronicle)
    assert span.second_at == span.first_at + SWEEP_EVERY_S / 2


def test_calls_are_numbered_in_order_of_submission(client, chronicle):
    for token in range(3):
        client.submit(token)
    for sent in reversed(client.sent):
        client.answer(sent)
    assert [span.call_id[:8] for span in spans(chronicle)] == [ORIGIN] * 3
    assert [span.call_id[-1] for span in spans(chronicle)] == [3, 2, 1]


def test_pending_calls_are_recorded_at_the_next_sweep(client, chronicle):
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
    assert kinds(chronicle, FIRST) == ["ACCEPTED", "SENT", "ANSWERED"]
    assert chronicle.event_rows[-1].outcome == Status.OK
    assert chronicle.spans == []


def test_every_attempt_is_recorded(client, chronicle):
    client.submit(1)
    client.advance(5.5)
    client.lose("a", "reset")
    client.join("b")
    client.answer(client.sent[-1])
    assert kinds(chronicle, FIRST) == [
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
def test_a_failed_call_is_recorded_as_events(client, chronicle, how, kind, outcome, error):
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
    assert kinds(chronicle, FIRST) == ["ACCEPTED", "SENT", kind.name]
    end = chronicle.event_rows[-1]
    assert (end.outcome, end.error) == (outcome, error)


def test_a_refused_call_is_recorded(chronicle):
    client = ReqBench(chronicle=chronicle, hold=False)
    client.submit(1)
    (refused,) = chronicle.event_rows
    assert (refused.kind, refused.call_id, refused.error) == (Kind.REFUSED, NO_CALL, "Overloaded")


def test_stray_and_malformed_replies_are_counted(client, chronicle):
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
def test_an_uneventful_request_is_one_span(worker, chronicle):
    job = worker.request(body=b"hello")
    worker.feed(Started(job))
    worker.advance(SWEEP_EVERY_S / 2)
    worker.finish(job, b"ok")
    call_id = INSTANCE + (1).to_bytes(8, "big")
    assert spans(chronicle) == [
        Span(100.0, 100.0, worker.now, inf, call_id, b"echo", INSTANCE, 5, 2)
    ]


def test_a_running_request_is_recorded_at_the_next_sweep(worker, chronicle):
    job = worker.request()
    worker.feed(Started(job))
    worker.advance(SWEEP_EVERY_S)
    worker.finish(job)
    assert kinds(chronicle) == ["DELIVERED", "STARTED", "FINISHED"]
    assert {each.worker for each in chronicle.event_rows} == {INSTANCE}


def test_a_failed_request_is_recorded_with_its_reason(worker, chronicle):
    job = worker.request()
    worker.feed(Started(job))
    worker.finish(job, b"ValueError: no", status=Status.FAILED)
    assert kinds(chronicle) == ["DELIVERED", "STARTED", "FINISHED"]
    end = chronicle.event_rows[-1]
    assert (end.outcome, end.error, end.reason) == (
        Status.FAILED,
        "RemoteFailure",
        "ValueError: no",
    )


def test_an_abandoned_request_is_recorded(worker, chronicle):
    job = worker.request()
    worker.feed(Started(job))
    worker.produce(job, b"part")
    worker.lose("c")
    worker.finish(job, status=Status.CANCELLED)
    assert kinds(chronicle) == ["DELIVERED", "STARTED", "PARTIAL", "ABANDONED", "FINISHED"]
    assert chronicle.event_rows[3].reason == "reset"


def test_a_late_start_is_recorded_separately(worker, chronicle):
    job = worker.request()
    worker.worker.jobs.flush_open_spans(worker.now)
    worker.feed(Started(job))
    worker.finish(job)
    assert kinds(chronicle) == ["DELIVERED", "STARTED", "FINISHED"]


def test_dropped_requests_are_counted(worker, chronicle):
    worker.say("c", b"?", way(*range(8)) + tag(1), way(*range(8)) + tag(1))
    worker.advance(SWEEP_EVERY_S)
    assert [(each.kind, each.reason) for each in chronicle.event_rows] == [
        (Kind.REFUSED, "1 dropped: malformed"),
        (Kind.REFUSED, "2 dropped: hops"),
    ]


# --- the device -----------------------------------------------------------------------------------
def test_a_device_records_only_the_numbers_of_messages(device, chronicle):
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


def test_a_device_records_joined_and_lost_channels(device, chronicle):
    device.front("d")
    device.lose("s")
    assert [(Kind(each.kind).name, each.reason) for each in chronicle.event_rows] == [
        ("WORKER_JOINED", "a channel to the front"),
        ("WORKER_LOST", "a channel to the back: reset"),
    ]


# --- all engines ----------------------------------------------------------------------------------
@constant_replaced
def test_a_chronicle_without_a_reader_is_bounded(monkeypatch, client, chronicle):
    monkeypatch.setattr("requite.chronicle.ROWS_MAX", 10)
    for token in range(20):
        client.submit(token)
        client.answer(client.sent[-1])
    client.submit("last")
    client.advance(2 * SWEEP_EVERY_S)
    assert chronicle.dropped >= 20


class CompressedSpans:
    """Compressed spans."""

    def __init__(self, rows: list[object]) -> None:
        self.rows = len(rows)


@pytest.mark.parametrize("bench", [ReqBench, RepBench])
def test_many_spans_are_compressed_by_the_engine(bench):
    chronicle = Chronicle(CompressedSpans)
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
