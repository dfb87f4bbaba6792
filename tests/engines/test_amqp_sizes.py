"""RabbitMQ closes the channel for the first message over its size limit; later ones are refused
locally."""

from __future__ import annotations

import pytest
from pamqp import commands
from tests.engines.test_amqp_caller import caller
from tests.support.amqp_engines import CallerSide, Rabbit
from tests.support.amqp_responder import servant

from requite.engine import Finished, PeerLost, Produced
from requite.errors import TransportError
from requite.protocols.amqp.methods import BASIC_PUBLISH, QUEUE_DECLARE, Closed
from requite.protocols.amqp.sizes import SizeLimit
from requite.request import Status

TEXTS = (
    "PRECONDITION_FAILED - message size 11 is larger than configured max size 10",
    "PRECONDITION_FAILED - message size 11 is larger than max size 10",
)


def close_for_size(rabbit: Rabbit) -> None:
    rabbit.say(commands.Channel.Close(406, TEXTS[0], 60, 40))


# --- the learned limit ----------------------------------------------------------------------------
@pytest.mark.parametrize("text", TEXTS)
def test_a_limit_is_learned_and_forgotten(text: str) -> None:
    limit = SizeLimit()
    assert limit.learn(Closed(406, text, BASIC_PUBLISH))
    assert limit.size_max == 10
    limit.forget()
    assert limit.size_max == float("inf")


@pytest.mark.parametrize(
    "closed",
    [
        Closed(406, "PRECONDITION_FAILED - unknown delivery tag 10", BASIC_PUBLISH),
        Closed(406, TEXTS[0], QUEUE_DECLARE),
        Closed(403, TEXTS[0], BASIC_PUBLISH),
    ],
)
def test_other_closed_channels_set_no_limit(closed: Closed) -> None:
    limit = SizeLimit()
    assert not limit.learn(closed)
    assert limit.size_max == float("inf")


# --- callers --------------------------------------------------------------------------------------
def caller_after_a_refusal() -> CallerSide:
    """Return a caller whose request "large" exceeded the limit while "small" was in flight."""
    rabbit = caller()
    rabbit.get_ready()
    rabbit.submit("small", body=b"0123456789")
    rabbit.submit("large", body=b"0123456789+")
    close_for_size(rabbit)
    return rabbit


def test_only_the_call_over_the_limit_fails() -> None:
    rabbit = caller_after_a_refusal()
    [(token, error)] = rabbit.failed()
    assert token == "large"
    assert isinstance(error, TransportError)
    assert not error.may_have_executed
    assert "max_message_size" in str(error)
    rabbit.say(commands.Basic.ConsumeOk("replies"))
    assert [body for *_, body in rabbit.published()] == [b"0123456789"]


def test_a_later_call_over_the_limit_is_not_published() -> None:
    rabbit = caller_after_a_refusal()
    rabbit.say(commands.Basic.ConsumeOk("replies"))
    rabbit.submit("larger", body=b"0123456789++")
    assert rabbit.published() == []
    [(token, error)] = rabbit.failed()
    assert (token, error.attempts, error.may_have_executed) == ("larger", 0, False)


def test_the_limit_is_forgotten_with_the_connection() -> None:
    rabbit = caller_after_a_refusal()
    rabbit.feed(PeerLost(rabbit.peer, "gone"))
    rabbit.get_ready()
    rabbit.submit("larger", body=b"0123456789++")
    assert b"0123456789++" in [body for *_, body in rabbit.published()]


# --- responders -----------------------------------------------------------------------------------
def test_a_reply_over_the_limit_becomes_a_negative_reply() -> None:
    rabbit = servant()
    rabbit.consume()
    job, _ = rabbit.request()
    rabbit.feed(Finished(job, [b"0123456789+"]))
    close_for_size(rabbit)
    rabbit.wake(1.0)
    rabbit.say(commands.Queue.DeclareOk("echo", 0, 0))
    rabbit.say(commands.Basic.ConsumeOk("requests"))

    again, _ = rabbit.request(tag=2, redelivered=True)
    rabbit.feed(Finished(again, [b"0123456789+"]))
    headers, body = rabbit.answer()
    assert headers["x-status"] == "error"
    assert body == b"the reply has 11 bytes; RabbitMQ accepts at most 10 (max_message_size)"


def test_a_partial_reply_over_the_limit_makes_the_reply_negative() -> None:
    rabbit = servant()
    rabbit.consume()
    close_for_size(rabbit)
    rabbit.wake(1.0)
    rabbit.say(commands.Queue.DeclareOk("echo", 0, 0))
    rabbit.say(commands.Basic.ConsumeOk("requests"))

    job, _ = rabbit.request()
    rabbit.feed(Produced(job, [b"01234", b"56789+"]))
    assert rabbit.published() == []
    rabbit.feed(Produced(job, [b"small"]))
    assert rabbit.published() == []
    rabbit.feed(Finished(job, [b""], Status.OK))
    headers, body = rabbit.answer()
    assert headers["x-status"] == "error"
    assert b"max_message_size" in body
