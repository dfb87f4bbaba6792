"""The rows that engines write into their chronicles."""

from __future__ import annotations

from math import inf

import pytest
from tests.spec.requirement import requirement
from tests.support.broker import ORIGIN as BROKER
from tests.support.broker import BrokerBench
from tests.support.builds import constant_replaced
from tests.support.client import ORIGIN as CLIENT
from tests.support.client import ClientBench
from tests.support.worker import INSTANCE, WorkerBench

from requite.chronicle import (
    NO_CALL,
    NO_OUTCOME,
    NOT_IDEMPOTENT,
    PRESS_ROWS,
    SWEEP_EVERY_S,
    Chronicle,
    Kind,
    Span,
    SpanRow,
)
from requite.engine import Started
from requite.protocols.majordomo.wire import NOT_IDEMPOTENT as NOT_IDEMPOTENT_FLAG
from requite.protocols.majordomo.wire import ClientCancel, ClientRequest, WorkerPartial
from requite.request import Status

CALL = b"a-client-call-17"
WORKER = b"worker-1"


def kinds(chronicle: Chronicle, call_id: bytes | None = None) -> list[str]:
    """Return the kinds of all event rows in order, or of those of one call."""
    return [
        Kind(each.kind).name
        for each in chronicle.event_rows
        if call_id is None or each.call_id == call_id
    ]


@pytest.fixture
def chronicle() -> Chronicle:
    return Chronicle()


@pytest.fixture
def broker(chronicle: Chronicle) -> BrokerBench:
    bench = BrokerBench(chronicle=chronicle)
    bench.worker("w", instance=WORKER)
    chronicle.take()
    return bench


# --- the broker -----------------------------------------------------------------------------------
def test_an_uneventful_request_is_one_span(broker, chronicle):
    begun = broker.now
    broker.request("c", 7, b"hello", timeout_ms=2500, call_id=CALL)
    broker.advance(SWEEP_EVERY_S / 2)
    broker.final("w", b"ok")
    _, spans, event_rows = chronicle.take()
    assert [Span(*row) for row in spans] == [
        Span(begun, begun, broker.now, begun + 2.5, CALL, b"echo", WORKER, 5, 2)
    ]
    assert event_rows == []


def test_a_request_that_is_not_idempotent_is_recorded_as_events_with_a_reason(broker, chronicle):
    broker.request("c", 7, flags=NOT_IDEMPOTENT_FLAG, call_id=CALL)
    broker.final("w", b"ok")
    assert chronicle.spans == []
    assert kinds(chronicle) == ["ACCEPTED", "DISPATCHED", "ANSWERED"]
    assert chronicle.event_rows[0].reason == NOT_IDEMPOTENT


def test_a_queued_request_is_dispatched_later_than_accepted(broker, chronicle):
    broker.request("c", 1, call_id=CALL)
    broker.request("c", 2, call_id=CALL[:-1] + b"8")
    broker.advance(SWEEP_EVERY_S / 4)
    broker.final("w")
    broker.final("w")
    (first, second) = (Span(*row) for row in chronicle.take()[1])
    assert first.first_at == first.second_at
    assert second.second_at == second.first_at + SWEEP_EVERY_S / 4


def test_pending_requests_are_recorded_at_the_next_sweep(broker, chronicle):
    broker.request("c", 1, b"abc", timeout_ms=5000, call_id=CALL)
    broker.request("c", 2, call_id=CALL[:-1] + b"8")
    begun = broker.now
    broker.advance(2 * SWEEP_EVERY_S)
    assert kinds(chronicle, CALL) == ["ACCEPTED", "DISPATCHED"]
    assert kinds(chronicle, CALL[:-1] + b"8") == ["ACCEPTED", "QUEUED"]
    accepted, dispatched = (each for each in chronicle.event_rows if each.call_id == CALL)
    assert (accepted.at, accepted.value, accepted.size) == (begun, begun + 5, 3)
    assert (dispatched.worker, dispatched.attempt) == (WORKER, 1)
    broker.final("w", b"yes")
    assert kinds(chronicle, CALL)[2:] == ["ANSWERED"]
    assert chronicle.spans == []


def test_a_long_request_is_recorded_once(broker, chronicle):
    broker.request("c", 1, call_id=CALL)
    broker.advance(10 * SWEEP_EVERY_S)
    assert kinds(chronicle, CALL) == ["ACCEPTED", "DISPATCHED"]


def test_a_lost_worker_and_the_redelivery_are_recorded(broker, chronicle):
    broker.request("c", 1, call_id=CALL)
    broker.lose("w")
    broker.worker("v", instance=b"worker-2")
    broker.final("v")
    assert kinds(chronicle, CALL) == [
        "ACCEPTED",
        "DISPATCHED",
        "REDELIVERED",
        "DISPATCHED",
        "ANSWERED",
    ]
    rows = [each for each in chronicle.event_rows if each.call_id == CALL]
    assert [row.worker for row in rows] == [b"", WORKER, WORKER, b"worker-2", b"worker-2"]
    assert [row.attempt for row in rows] == [0, 1, 1, 2, 2]
    assert "WORKER_LOST" in kinds(chronicle)
    assert "WORKER_JOINED" in kinds(chronicle)


@pytest.mark.parametrize("held", [True, False], ids=["at a worker", "in the queue"])
def test_an_expired_request_is_recorded(broker, chronicle, held):
    if not held:
        broker.request("other", 9)
    broker.request("c", 1, timeout_ms=50, call_id=CALL)
    broker.advance(0.06)
    end = next(each for each in chronicle.event_rows if each.kind == Kind.EXPIRED)
    assert (end.call_id, end.outcome, end.error) == (CALL, Status.EXPIRED, "CallTimeout")
    assert kinds(chronicle, CALL)[-1] == "EXPIRED"


def test_a_cancelled_request_is_recorded(broker, chronicle):
    broker.request("c", 1, call_id=CALL)
    broker.say("c", ClientCancel, 1)
    assert kinds(chronicle, CALL) == ["ACCEPTED", "DISPATCHED", "CANCELLED"]


def test_a_failed_request_is_recorded_with_its_reason(broker, chronicle):
    broker.request("c", 1, call_id=CALL)
    broker.final("w", b"ValueError: 17", status=1)
    end = chronicle.event_rows[-1]
    assert (end.kind, end.outcome) == (Kind.ANSWERED, Status.FAILED)
    assert (end.error, end.reason) == ("RemoteFailure", "ValueError: 17")


def test_partial_replies_are_recorded(broker, chronicle):
    broker.request("c", 1, call_id=CALL)
    broker.say("w", WorkerPartial, b"", [b"part"], 1)
    broker.final("w")
    assert kinds(chronicle, CALL) == ["ACCEPTED", "DISPATCHED", "PARTIAL", "ANSWERED"]


def test_a_refused_request_is_recorded_without_acceptance(chronicle):
    broker = BrokerBench(chronicle=chronicle, client_pending_max=1)
    broker.request("c", 1)
    broker.request("c", 2, call_id=CALL)
    assert kinds(chronicle, CALL) == ["REFUSED"]
    assert chronicle.event_rows[-1].outcome == Status.OVERLOADED


def test_worker_heartbeats_are_recorded_once_per_interval(broker, chronicle):
    broker.request("c", 1)
    broker.advance(1.5)
    beat = next(each for each in chronicle.event_rows if each.kind == Kind.HEARTBEAT)
    assert (beat.worker, beat.service, beat.busy, beat.capacity) == (WORKER, b"echo", 1, 1)
    assert beat.value == pytest.approx(1.0)


@requirement("mdp03:call-id")
@pytest.mark.parametrize("version", ["0.1", "0.2", "0.3"])
def test_requests_without_a_call_id_get_one(version, broker, chronicle):
    for name in ("a", "b"):
        broker.client(name, version)
        broker.say(name, ClientRequest, b"echo", [b"x"], 1, 0, 0, b"")
        broker.final("w")
    ids = [Span(*row).call_id for row in chronicle.spans]
    assert len(set(ids)) == 2
    assert all(len(each) == 16 and each[1:4] == BROKER[1:4] for each in ids)
    assert all(each[0] == BROKER[0] | 0x80 for each in ids)
    assert [sent.call_id for sent in broker.requests("w")] == ids


@requirement("mdp03:call-id")
def test_each_worker_gets_the_call_id_unchanged(broker):
    broker.request("c", 1, call_id=CALL)
    broker.lose("w")
    broker.worker("v")
    assert broker.requests("v")[0].call_id == broker.requests("w")[0].call_id == CALL


@requirement("mdp03:instance")
def test_a_worker_without_an_instance_is_recorded_by_its_address(chronicle):
    broker = BrokerBench(chronicle=chronicle)
    broker.worker("w")
    broker.worker("v", instance=WORKER)
    assert [each.worker for each in chronicle.event_rows] == [b"w", WORKER]


def test_the_journals_timer_ends_with_the_last_peer(broker):
    broker.request("c", 1)
    broker.lose("c")
    broker.lose("w")
    broker.advance(100)
    assert broker.broker.deadline() is None


# --- the client -----------------------------------------------------------------------------------
def test_a_call_is_one_span(chronicle):
    bench = ClientBench(chronicle=chronicle)
    begun = bench.now
    bench.submit("a", b"hi", timeout=2.5)
    bench.advance(SWEEP_EVERY_S / 4)
    bench.join()
    bench.advance(SWEEP_EVERY_S / 4)
    bench.answer(bench.sent[-1], b"you")
    (span,) = (Span(*row) for row in chronicle.spans)
    call_id = CLIENT + (1).to_bytes(8, "big")
    sent_at = begun + SWEEP_EVERY_S / 4
    assert span == Span(begun, sent_at, bench.now, begun + 2.5, call_id, b"echo", b"", 2, 3)
    assert chronicle.event_rows == []
    bench.advance(10)
    assert bench.client.deadline() is None


@requirement("mdp03:call-id")
def test_all_attempts_of_a_call_have_its_call_id(chronicle):
    bench = ClientBench(chronicle=chronicle)
    bench.submit("a")
    bench.join()
    bench.submit("b")
    bench.lose(bench.links[0])
    bench.advance(10)
    bench.join()
    ids = [sent.command.call_id for sent in bench.requests]
    assert ids == [ids[0], ids[1], ids[0], ids[1]]
    assert ids[0] != ids[1]
    for sent in bench.requests[2:]:
        bench.answer(sent, b"at last")
    assert kinds(chronicle, ids[0]) == ["ACCEPTED", "SENT", "SENT", "ANSWERED"]
    assert [each.attempt for each in chronicle.event_rows if each.call_id == ids[0]] == [0, 1, 2, 2]


@pytest.mark.parametrize(
    ("end", "kind", "error"),
    [
        (lambda bench: bench.cancel("a"), Kind.CANCELLED, "Cancelled"),
        (lambda bench: bench.advance(6), Kind.EXPIRED, "CallTimeout"),
        (lambda bench: bench.drain(), Kind.CANCELLED, "Cancelled"),
    ],
    ids=["cancelled", "expired", "closed"],
)
def test_the_end_of_a_call_is_recorded_with_its_error(chronicle, end, kind, error):
    bench = ClientBench(chronicle=chronicle)
    bench.submit("a", timeout=5)
    end(bench)
    last = chronicle.event_rows[-1]
    assert (last.kind, last.error) == (kind, error)
    assert kinds(chronicle)[0] == "ACCEPTED"
    assert last.reason == str(bench.errors["a"])


@pytest.mark.parametrize(("version", "reason"), [("0.3", NOT_IDEMPOTENT), ("0.2", "")])
def test_a_call_that_is_not_idempotent_is_recorded_with_a_reason_in_0_3(chronicle, version, reason):
    bench = ClientBench(version, chronicle=chronicle)
    bench.submit("a", idempotent=False)
    bench.join()
    bench.answer(bench.sent[-1])
    assert chronicle.spans == []
    assert kinds(chronicle) == ["ACCEPTED", "SENT", "ANSWERED"]
    assert chronicle.event_rows[0].reason == reason


def test_a_lost_connection_has_no_status(chronicle):
    bench = ClientBench(chronicle=chronicle)
    bench.submit("a", idempotent=False)
    bench.join()
    bench.lose(bench.links[0])
    last = chronicle.event_rows[-1]
    assert (last.kind, last.outcome, last.error) == (Kind.ANSWERED, NO_OUTCOME, "TransportError")


def test_a_call_without_a_slot_is_recorded_as_refused(chronicle):
    bench = ClientBench(chronicle=chronicle, slots=1)
    bench.submit("a")
    bench.submit("b")
    (refused,) = chronicle.event_rows
    assert (refused.kind, refused.error, refused.call_id) == (Kind.REFUSED, "Overloaded", NO_CALL)


def test_pending_calls_are_recorded_at_the_next_sweep(chronicle):
    bench = ClientBench(chronicle=chronicle)
    bench.submit("a")
    bench.advance(2 * SWEEP_EVERY_S)
    assert kinds(chronicle) == ["ACCEPTED"]
    assert chronicle.event_rows[0].value == inf


# --- the worker -----------------------------------------------------------------------------------
@pytest.fixture
def worker(chronicle: Chronicle) -> WorkerBench:
    bench = WorkerBench(chronicle=chronicle, capacity=4)
    bench.start()
    return bench


def test_a_job_is_one_span(worker, chronicle):
    begun = worker.now
    job = worker.request(b"hello", timeout_ms=1000, call_id=CALL)
    worker.advance(0.02)
    worker.feed(Started(job))
    worker.advance(0.02)
    worker.finish(job, b"done")
    (span,) = (Span(*row) for row in chronicle.spans)
    assert span == Span(begun, begun + 0.02, worker.now, begun + 1, CALL, b"echo", INSTANCE, 5, 4)


def test_a_running_job_is_recorded_at_the_next_sweep(worker, chronicle):
    job = worker.request(call_id=CALL)
    worker.feed(Started(job))
    worker.advance_alive(2 * SWEEP_EVERY_S, SWEEP_EVERY_S)
    assert kinds(chronicle) == ["DELIVERED", "STARTED"]
    worker.finish(job)
    assert kinds(chronicle) == ["DELIVERED", "STARTED", "FINISHED"]


def test_a_failed_job_is_recorded_with_its_error(worker, chronicle):
    job = worker.request(call_id=CALL, attempt=2)
    worker.feed(Started(job))
    worker.finish(job, b"KeyError: 'x'", Status.FAILED)
    last = chronicle.event_rows[-1]
    assert (last.kind, last.outcome, last.attempt) == (Kind.FINISHED, Status.FAILED, 2)
    assert (last.error, last.reason) == ("RemoteFailure", "KeyError: 'x'")


def test_a_cancelled_job_is_recorded_as_abandoned(worker, chronicle):
    job = worker.request(call_id=CALL)
    worker.cancel(job)
    worker.finish(job, status=Status.CANCELLED)
    assert kinds(chronicle) == ["DELIVERED", "ABANDONED", "FINISHED"]


def test_each_part_of_a_stream_is_recorded(worker, chronicle):
    job = worker.request(call_id=CALL)
    worker.feed(Started(job))
    worker.produce(job, b"one")
    worker.finish(job)
    assert kinds(chronicle) == ["DELIVERED", "STARTED", "PARTIAL", "FINISHED"]


# --- the chronicle itself -------------------------------------------------------------------------
@constant_replaced
def test_a_chronicle_without_a_reader_is_bounded(monkeypatch, broker, chronicle):
    monkeypatch.setattr("requite.chronicle.ROWS_MAX", 10)
    for number in range(20):
        broker.request("c", number)
        broker.final("w")
    broker.advance(2 * SWEEP_EVERY_S)
    assert chronicle.dropped >= 20
    assert len(chronicle.spans) + len(chronicle.event_rows) <= 10


class StoredSpans:
    """Compressed spans, kept as they were."""

    def __init__(self, spans: list[SpanRow]) -> None:
        self.spans = spans
        self.rows = len(spans)


def test_many_spans_are_compressed_by_the_engine():
    chronicle = Chronicle(StoredSpans)
    broker = BrokerBench(chronicle=chronicle)
    broker.worker("w", instance=WORKER)
    for number in range(PRESS_ROWS + 3):
        broker.request("c", number)
        broker.final("w")
    pressed, spans, _ = chronicle.take()
    assert [each.rows for each in pressed] == [PRESS_ROWS]
    ids = [Span(*row).call_id for row in [*pressed[0].spans, *spans]]
    assert len(set(ids)) == PRESS_ROWS + 3
    assert ids == sorted(ids)


@constant_replaced
def test_compressed_spans_count_towards_the_limit(monkeypatch):
    monkeypatch.setattr("requite.chronicle.ROWS_MAX", 10)
    chronicle = Chronicle(StoredSpans)
    chronicle.spans += [(0.0, 0.0, 0.0, inf, CALL, b"echo", WORKER, 1, 1)] * 11
    chronicle.press()
    chronicle.trim()
    assert (chronicle.dropped, chronicle.pressed) == (11, [])
