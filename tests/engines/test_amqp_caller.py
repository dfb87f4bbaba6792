"""The AMQP caller: slots, held calls, lost connections, negative and partial replies."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands
from tests.spec.requirement import requirement
from tests.support.amqp_engines import ORIGIN, SIDE, caller, lose_connection

from requite.engine import Cancel, Cause, Disconnect, Drain, PeerJoined, PeerLost, Stopped, Warn
from requite.errors import (
    CallError,
    CallTimeout,
    Cancelled,
    LocalViolation,
    Overloaded,
    Poisoned,
    RemoteFailure,
    TransportError,
    WorkerLost,
)
from requite.protocols.amqp import methods
from requite.protocols.amqp.policy import CallerPolicy
from requite.protocols.amqp.topology import Pool
from requite.request import Partial, Reply
from requite.trace_context import decode_traceparent


# --- one call -------------------------------------------------------------------------------------
@requirement("amqp:reply-to")
def test_a_call_and_its_reply() -> None:
    rabbit = caller()
    rabbit.get_ready()

    rabbit.submit("a", timeout_s=2.5)
    [(exchange, key, asked, body)] = rabbit.published()
    assert (exchange, key, body) == ("", "echo", b"body")
    assert asked.correlation_id == "0000000000000008"
    assert asked.reply_to == f"requite-reply-{ORIGIN.hex()}-1"
    assert asked.message_id == ORIGIN.hex() + "0000000000000001"
    assert asked.expiration == "2500"

    rabbit.now += 0.25
    rabbit.reply(asked, b"done", x_status="ok")
    assert rabbit.delivered() == [("a", Reply((b"done",), attempts=1, elapsed=0.25))]
    assert rabbit.engine.snapshot().sent == 0


def test_nothing_is_published_before_the_reply_queue_exists() -> None:
    rabbit = caller()
    rabbit.submit("early")
    assert not rabbit.sent()

    rabbit.connect()
    assert rabbit.sent() == ["CHANNEL_OPEN", "QUEUE_DECLARE", "BASIC_CONSUME"]
    rabbit.say(commands.Queue.DeclareOk("q", 0, 0))
    assert not rabbit.sent()

    rabbit.say(commands.Basic.ConsumeOk("replies"))
    assert rabbit.sent() == ["BASIC_PUBLISH"]


def test_direct_replies_need_no_queue() -> None:
    rabbit = caller(CallerPolicy(direct_reply=True))
    rabbit.connect()
    assert rabbit.sent() == ["CHANNEL_OPEN", "BASIC_CONSUME"]
    rabbit.say(commands.Basic.ConsumeOk("replies"))

    rabbit.submit("a")

    [(_, _, asked, _)] = rabbit.published()
    assert asked.reply_to == "amq.rabbitmq.reply-to"


def test_requests_to_a_pool_are_persistent_and_go_to_its_exchange() -> None:
    rabbit = caller(CallerPolicy(persistent=True), Pool("core").destination)
    rabbit.connect()
    assert rabbit.sent(SIDE) == ["CHANNEL_OPEN", "EXCHANGE_DECLARE"]
    rabbit.say(commands.Basic.ConsumeOk("replies"))
    rabbit.submit("a", "42")
    assert not rabbit.published()

    rabbit.say(commands.Exchange.DeclareOk(), SIDE)

    [(exchange, key, asked, _)] = rabbit.published()
    assert (exchange, key, asked.persistent) == ("core-req-xchg", "42", True)


def test_an_idempotency_key_is_sent_as_a_header() -> None:
    rabbit = caller()
    rabbit.get_ready()
    rabbit.submit("a", idempotency_key=b"\xff\0")
    [(_, _, asked, _)] = rabbit.published()
    assert asked.headers["x-idempotency-key"] == b"\xff\0"


def test_a_call_of_a_trace_sends_it_and_another_call_sends_none() -> None:
    rabbit = caller()
    rabbit.get_ready()
    text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    seen = []
    for token, trace in (("a", decode_traceparent(text)), ("b", b"")):
        rabbit.submit(token, trace=trace)
        [(_, _, asked, _)] = rabbit.published()
        seen.append(asked.headers.get("traceparent"))
    assert seen == [text, None]


# --- slots ----------------------------------------------------------------------------------------
@requirement("amqp:bounded")
def test_a_call_without_a_free_slot_is_refused() -> None:
    rabbit = caller(CallerPolicy(slots=1))
    rabbit.get_ready()
    rabbit.submit("a")
    rabbit.submit("b")
    [(token, error)] = rabbit.failed()
    assert (token, type(error), error.may_have_executed) == ("b", Overloaded, False)


@requirement("amqp:all-taken")
def test_the_slot_of_an_expired_call_is_reclaimed() -> None:
    rabbit = caller(CallerPolicy(slots=1))
    rabbit.get_ready()
    rabbit.submit("a", timeout_s=1.0)
    rabbit.now += 1.5  # the engine has not been woken yet

    rabbit.submit("b")

    [(token, error)] = rabbit.failed()
    assert (token, type(error)) == ("a", CallTimeout)
    assert len(rabbit.published()) == 1


@requirement("amqp:no-mismatch", "amqp:correlation-id")
def test_a_late_reply_does_not_match_the_next_call_of_its_slot() -> None:
    """The article's sequence of A and B: response A must not match request B."""
    rabbit = caller(CallerPolicy(slots=1))
    rabbit.get_ready()
    rabbit.submit("a", timeout_s=1.0)
    [(_, _, first, _)] = rabbit.published()
    rabbit.wake(1.0)
    rabbit.submit("b")
    [(_, _, second, _)] = rabbit.published()

    rabbit.reply(first, b"of a")
    assert not rabbit.delivered()
    assert rabbit.engine.snapshot().stray == 1

    rabbit.reply(second, b"of b")
    assert rabbit.outcome().body == b"of b"  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["", "x", "ffffffffffffffff", "0000000000000009", "é" * 8])
def test_replies_with_unknown_correlation_ids_are_ignored(name: str) -> None:
    rabbit = caller()
    rabbit.get_ready()
    rabbit.submit("a")
    rabbit.deliver(b"", correlation_id=name)
    assert not rabbit.delivered()
    assert not rabbit.failed()
    assert rabbit.engine.snapshot().stray == 1


def test_a_token_in_use_is_refused() -> None:
    rabbit = caller()
    rabbit.submit("a")
    with pytest.raises(LocalViolation, match="still outstanding"):
        rabbit.submit("a")


# --- negative replies -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("error", RemoteFailure),
        ("expired", CallTimeout),
        ("rejected", RemoteFailure),
        ("maxlen", Overloaded),
        ("delivery_limit", Poisoned),
        ("new in 2030", RemoteFailure),
        (["a", "list"], RemoteFailure),
    ],
)
@requirement("amqp:negative")
def test_a_negative_reply_frees_its_slot(status: Any, kind: type[CallError]) -> None:
    rabbit = caller(CallerPolicy(slots=1))
    rabbit.get_ready()
    rabbit.submit("a")
    [(_, _, asked, _)] = rabbit.published()
    rabbit.reply(asked, b"because", x_status=status)

    error = rabbit.outcome()
    assert type(error) is kind
    assert "because" in str(error)
    assert isinstance(error, CallError)
    assert error.attempts == 1
    rabbit.submit("b")
    assert rabbit.published()


def test_a_reply_with_malformed_headers_fails_its_call() -> None:
    rabbit = caller()
    rabbit.get_ready()
    for token, broken in (("a", {"x-partial": "first"}), ("b", {"x-partial": -1})):
        rabbit.submit(token)
        [(_, _, asked, _)] = rabbit.published()
        rabbit.deliver(b"", correlation_id=asked.correlation_id, headers=broken)
        error = rabbit.outcome()
        assert isinstance(error, RemoteFailure)
        assert "malformed" in str(error)


def test_a_reply_over_the_size_limit_fails_its_call() -> None:
    rabbit = caller()
    rabbit.get_ready()
    rabbit.submit("a")
    [(_, _, asked, _)] = rabbit.published()
    rabbit.deliver(None, correlation_id=asked.correlation_id)
    error = rabbit.outcome()
    assert isinstance(error, RemoteFailure)
    assert "message_size_max" in str(error)


# --- partial replies ------------------------------------------------------------------------------
def test_partial_replies_are_delivered_once_in_order() -> None:
    rabbit = caller()
    rabbit.get_ready()
    rabbit.submit("a", partials=True)
    [(_, _, asked, _)] = rabbit.published()
    rabbit.reply(asked, b"0", x_partial=0)
    assert rabbit.outcome() == Partial((b"0",), 0)
    rabbit.reply(asked, b"0", x_partial=0)  # a duplicate
    assert not rabbit.delivered()
    rabbit.reply(asked, b"1", x_partial=1)
    assert rabbit.outcome() == Partial((b"1",), 1)
    rabbit.reply(asked, b"end", x_status="ok", x_partial=False)
    assert rabbit.outcome().body == b"end"  # type: ignore[union-attr]


def test_joined_partial_replies_restart_with_another_worker() -> None:
    rabbit = caller()
    rabbit.get_ready()
    rabbit.submit("a")
    [(_, _, asked, _)] = rabbit.published()
    first = {"x_worker_id": "w1", "x_attempt": 1}
    second = {"x_worker_id": "w2", "x_attempt": 2}
    rabbit.reply(asked, b"lost", x_partial=0, **first)
    rabbit.reply(asked, b"0", x_partial=0, **second)
    rabbit.reply(asked, b"1", x_partial=1, **second)
    rabbit.reply(asked, b"", x_status="ok", **second)
    reply = rabbit.outcome()
    assert isinstance(reply, Reply)
    assert (reply.body, reply.attempts) == (b"01", 2)


def test_a_stream_fails_when_another_worker_continues_it() -> None:
    rabbit = caller()
    rabbit.get_ready()
    rabbit.submit("a", partials=True)
    [(_, _, asked, _)] = rabbit.published()
    rabbit.reply(asked, b"0", x_partial=0, x_worker_id="w1")
    rabbit.reply(asked, b"0", x_partial=0, x_worker_id="w2")
    assert isinstance(rabbit.outcome(), WorkerLost)


def test_a_request_whose_stream_has_begun_is_not_resent() -> None:
    rabbit = caller()
    rabbit.get_ready()
    rabbit.submit("a", partials=True)
    [(_, _, asked, _)] = rabbit.published()
    rabbit.reply(asked, b"0", x_partial=0)
    lose_connection(rabbit)
    assert isinstance(rabbit.outcome(), TransportError)


# --- cancelling, expiry and draining --------------------------------------------------------------
def test_a_cancel_is_published_to_the_workers() -> None:
    rabbit = caller()
    rabbit.get_ready()
    rabbit.submit("a")
    [(_, _, asked, _)] = rabbit.published()
    rabbit.feed(Cancel("a"))
    assert isinstance(rabbit.outcome(), Cancelled)
    [(exchange, key, control, _)] = rabbit.published(SIDE)
    assert (exchange, key) == ("requite-control-xchg", "echo")
    assert control.headers == {"x-control": "cancel"}
    assert (control.correlation_id, control.message_id) == (asked.correlation_id, asked.message_id)


def test_without_a_control_exchange_cancels_are_local() -> None:
    rabbit = caller()
    rabbit.get_ready()
    for token in "ab":
        rabbit.submit(token)
    rabbit.feed(Cancel("a"))
    rabbit.close_channel(404, methods.BASIC_PUBLISH, SIDE)
    assert any(isinstance(each, Warn) for each in rabbit.effects)
    rabbit.feed(Cancel("b"))
    assert isinstance(rabbit.outcome(), Cancelled)
    assert not rabbit.published(SIDE)
    rabbit.submit("c")
    assert rabbit.published()


def test_an_expired_call_fails_and_is_cancelled_at_its_worker() -> None:
    rabbit = caller()
    rabbit.get_ready()
    rabbit.submit("a", timeout_s=1.0)
    assert rabbit.engine.deadline() == rabbit.now + 1.0
    rabbit.wake(1.0)
    error = rabbit.outcome()
    assert isinstance(error, CallTimeout)
    assert error.may_have_executed
    assert rabbit.published(SIDE)  # the worker gets a cancel


def test_an_unsent_call_that_expires_has_not_run() -> None:
    rabbit = caller()
    rabbit.submit("a", timeout_s=1.0)
    rabbit.wake(1.0)
    error = rabbit.outcome()
    assert isinstance(error, CallTimeout)
    assert not error.may_have_executed
    rabbit.submit("b", timeout_s=-1.0)
    assert isinstance(rabbit.outcome(), CallTimeout)


def test_a_drain_cancels_all_calls_and_stops() -> None:
    rabbit = caller()
    rabbit.get_ready()
    rabbit.submit("a")
    rabbit.feed(Drain())
    assert isinstance(rabbit.failed()[0][1], Cancelled)
    assert Stopped() in rabbit.effects
    rabbit.submit("b")
    assert isinstance(rabbit.outcome(), Cancelled)
    assert rabbit.engine.deadline() is None
    rabbit.feed(PeerLost(rabbit.peer))
    rabbit.feed(PeerJoined("another"))
    assert isinstance(rabbit.effects[0], Disconnect)


# --- heartbeats -----------------------------------------------------------------------------------
def test_heartbeats_are_sent_and_expected() -> None:
    rabbit = caller()
    rabbit.get_ready(heartbeat_s=20)
    assert rabbit.engine.deadline() == rabbit.now + 10.0
    rabbit.wake(10.0)
    assert rabbit.sent() == ["HEARTBEAT"]
    rabbit.hear([])
    rabbit.wake(10.0)
    rabbit.wake(10.0)
    assert rabbit.sent() == ["HEARTBEAT"]
    rabbit.submit("a", timeout_s=100)
    rabbit.wake(10.0)
    assert any(isinstance(each, Disconnect) for each in rabbit.effects)
    assert rabbit.engine.snapshot().held == 1


@pytest.mark.parametrize("pause_s", [300.0, 35.0, 25.0])
def test_a_pause_of_this_process_does_not_count_as_silence(pause_s: float) -> None:
    """The next wake-up was due after 10 s; RabbitMQ times out after 30 s of silence."""
    rabbit = caller()
    rabbit.get_ready(heartbeat_s=20)
    rabbit.wake(pause_s)
    assert rabbit.sent() == ["HEARTBEAT"]
    assert not any(isinstance(each, Disconnect) for each in rabbit.effects)


def test_a_second_connection_is_closed() -> None:
    rabbit = caller()
    rabbit.get_ready()
    rabbit.feed(PeerJoined("another"))
    assert rabbit.effects == [Disconnect("another", "one connection is enough", Cause.DONE)]
