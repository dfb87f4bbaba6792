"""The caller when RabbitMQ refuses requests, and when the connection to RabbitMQ is lost."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands
from tests.support.amqp_engines import SIDE, CallerSide, caller, lose_connection, method

from requite.engine import PeerJoined
from requite.errors import (
    CallTimeout,
    NoService,
    Overloaded,
    TransportError,
)
from requite.protocols.amqp import methods
from requite.protocols.amqp.policy import CallerPolicy
from requite.protocols.amqp.properties import encode_properties
from requite.protocols.amqp.topology import Pool
from requite.request import Reply, RetryPolicy


# --- refusals by RabbitMQ -------------------------------------------------------------------------
def test_a_returned_request_fails_with_no_service() -> None:
    rabbit = caller()
    rabbit.get_ready()
    rabbit.submit("a", "nowhere")
    [(_, _, asked, _)] = rabbit.published()
    returned = method(commands.Basic.Return(312, "NO_ROUTE", "", "nowhere"))
    rabbit.hear([methods.channel(1), returned, encode_properties(asked, 0), b""])

    error = rabbit.outcome()
    assert isinstance(error, NoService)
    assert not error.may_have_executed
    assert "nowhere" in str(error)


def test_a_returned_request_fails_while_the_reply_queue_is_lost() -> None:
    """The caller would publish the request again, and RabbitMQ would only return it again."""
    rabbit = caller()
    rabbit.get_ready()
    rabbit.submit("a", "nowhere")
    [(_, _, asked, _)] = rabbit.published()
    rabbit.say(commands.Basic.Cancel("replies"))
    assert rabbit.engine.snapshot().held == 1
    returned = method(commands.Basic.Return(312, "NO_ROUTE", "", "nowhere"))
    rabbit.hear([methods.channel(1), returned, encode_properties(asked, 0), b""])
    error = rabbit.outcome()
    assert isinstance(error, NoService)
    assert not error.may_have_executed


def test_partial_replies_of_two_copies_of_a_request_are_not_mixed() -> None:
    """The same worker may have both copies, each as its first attempt."""
    rabbit = caller()
    rabbit.get_ready()
    rabbit.submit("a")
    [(_, _, asked, _)] = rabbit.published()
    one = {"x_worker_id": "w", "x_attempt": 1, "x_run": 1}
    other = one | {"x_run": 2}
    rabbit.reply(asked, b"1a", x_partial=0, **one)
    rabbit.reply(asked, b"2a", x_partial=0, **other)
    rabbit.reply(asked, b"1b", x_partial=1, **one)
    rabbit.reply(asked, b"!", x_status="ok", x_partials=1, **other)
    reply = rabbit.outcome()
    assert isinstance(reply, Reply)
    assert reply.frames == (b"2a!",)


def test_a_final_reply_without_its_partial_replies_is_ignored() -> None:
    rabbit = caller()
    rabbit.get_ready()
    rabbit.submit("a")
    [(_, _, asked, _)] = rabbit.published()
    rabbit.reply(asked, b"b", x_partial=1, x_run=1)
    rabbit.reply(asked, b"!", x_status="ok", x_partials=2, x_run=1)
    assert rabbit.engine.snapshot().stray == 2
    rabbit.reply(asked, b"a", x_partial=0, x_run=2)
    rabbit.reply(asked, b"!", x_status="ok", x_partials=1, x_run=2)
    reply = rabbit.outcome()
    assert isinstance(reply, Reply)
    assert reply.frames == (b"a!",)


def test_a_second_tune_ok_is_ignored() -> None:
    rabbit = caller()
    rabbit.get_ready()
    rabbit.hear([methods.CONNECTION, methods.tune_ok(16, 131072, 60_000)])
    assert not rabbit.effects
    rabbit.submit("a")
    assert rabbit.published()


def test_a_negative_confirm_fails_its_call() -> None:
    rabbit = caller(CallerPolicy(confirms=True))
    rabbit.get_ready()
    for token in "abc":
        rabbit.submit(token)
    rabbit.say(commands.Basic.Nack(1))
    [(token, error)] = rabbit.failed()
    assert (token, type(error), error.may_have_executed) == ("a", Overloaded, False)

    rabbit.say(commands.Basic.Ack(3, True))
    assert not rabbit.failed()
    assert rabbit.engine.snapshot().unconfirmed == 0


@pytest.mark.parametrize(
    ("code", "hint"), [(403, "user and password"), (530, "virtual host is the path"), (402, "402")]
)
def test_a_refused_connection_fails_waiting_calls_with_a_hint(code: int, hint: str) -> None:
    rabbit = caller()
    rabbit.submit("a")
    rabbit.feed(PeerJoined(rabbit.peer))
    rabbit.say(commands.Connection.Close(code, "NO", 0, 0), methods.CONNECTION)

    error = rabbit.outcome()
    assert isinstance(error, TransportError)
    assert hint in str(error)
    assert not error.may_have_executed


def test_a_refused_reply_queue_fails_the_call_and_is_retried_for_the_next() -> None:
    rabbit = caller()
    rabbit.submit("a")
    rabbit.connect()
    rabbit.close_channel(403, methods.QUEUE_DECLARE)
    error = rabbit.outcome()
    assert isinstance(error, TransportError)
    assert "permissions" in str(error)
    assert rabbit.sent() == ["CHANNEL_CLOSE_OK"]

    rabbit.submit("b")  # the permissions may have been granted since
    assert rabbit.sent() == ["CHANNEL_OPEN", "QUEUE_DECLARE", "BASIC_CONSUME"]


def test_a_missing_exchange_fails_the_call_and_is_checked_again_for_the_next() -> None:
    rabbit = caller(destination=Pool("core").destination)
    rabbit.get_ready()
    rabbit.submit("a", "42")
    rabbit.close_channel(404, methods.EXCHANGE_DECLARE, SIDE)
    error = rabbit.outcome()
    assert isinstance(error, NoService)
    assert "core-req-xchg" in str(error)
    assert not error.may_have_executed

    rabbit.submit("b", "42")
    assert rabbit.sent(SIDE) == ["CHANNEL_OPEN", "EXCHANGE_DECLARE"]
    rabbit.say(commands.Exchange.DeclareOk(), SIDE)
    assert rabbit.published()


def test_a_call_fails_when_its_exchange_is_deleted() -> None:
    rabbit = caller(destination=Pool("core").destination)
    rabbit.get_ready()
    rabbit.say(commands.Exchange.DeclareOk(), SIDE)
    rabbit.submit("a", "42")
    rabbit.close_channel(404, methods.BASIC_PUBLISH)
    assert not rabbit.failed()
    assert "EXCHANGE_DECLARE" in rabbit.sent(SIDE)

    rabbit.close_channel(404, methods.EXCHANGE_DECLARE, SIDE)
    assert isinstance(rabbit.outcome(), NoService)


# --- losses of queue, channel or connection -------------------------------------------------------
def lose_queue(rabbit: CallerSide) -> None:
    rabbit.say(commands.Basic.Cancel("replies"))


def lose_channel(rabbit: CallerSide) -> None:
    rabbit.close_channel(406, methods.BASIC_ACK)


@pytest.mark.parametrize("lose", [lose_connection, lose_queue, lose_channel])
def test_an_idempotent_request_is_resent_after_a_loss(lose: Any) -> None:
    rabbit = caller()
    rabbit.get_ready()
    rabbit.submit("a")
    [(_, _, first, _)] = rabbit.published()
    lose(rabbit)
    assert not rabbit.failed()
    if lose is lose_connection:
        rabbit.connect()

    rabbit.say(commands.Basic.ConsumeOk("replies"))

    [(_, _, second, _)] = rabbit.published()
    assert second.message_id == first.message_id
    assert second.reply_to != first.reply_to
    rabbit.reply(second, b"at last")
    reply = rabbit.outcome()
    assert isinstance(reply, Reply)
    assert reply.attempts == 2


@pytest.mark.parametrize("lose", [lose_connection, lose_queue, lose_channel])
def test_a_request_that_is_not_idempotent_fails_after_a_loss(lose: Any) -> None:
    rabbit = caller()
    rabbit.get_ready()
    rabbit.submit("a", idempotent=False)
    lose(rabbit)
    error = rabbit.outcome()
    assert isinstance(error, TransportError)
    assert error.may_have_executed
    assert "not idempotent" in str(error)


def test_an_unsent_request_is_sent_although_it_is_not_idempotent() -> None:
    rabbit = caller()
    rabbit.connect()
    rabbit.submit("a", idempotent=False)
    lose_connection(rabbit)
    assert not rabbit.failed()
    rabbit.get_ready()
    assert len(rabbit.published()) == 1


def test_attempts_are_limited() -> None:
    rabbit = caller(CallerPolicy(retry=RetryPolicy(attempts=2)))
    rabbit.submit("a")
    for _ in range(2):
        rabbit.get_ready()
        lose_connection(rabbit)
    error = rabbit.outcome()
    assert isinstance(error, TransportError)
    assert error.attempts == 2


def test_an_attempt_times_out() -> None:
    rabbit = caller(CallerPolicy(retry=RetryPolicy(attempts=2, attempt_timeout=1.0)))
    rabbit.get_ready()
    rabbit.submit("a")
    [(_, _, first, _)] = rabbit.published()
    rabbit.wake(1.0)
    [(_, _, second, _)] = rabbit.published()
    assert second.correlation_id == first.correlation_id  # a late first reply is accepted
    rabbit.wake(1.0)
    error = rabbit.outcome()
    assert isinstance(error, CallTimeout)
    assert "twice" in str(error) or "2 times" in str(error)
