"""The request queue of a responder: found, declared, lost, and consumed again."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands
from tests.support.amqp_responder import servant, worker

from requite.engine import CancelHandler, Finished, Warn
from requite.protocols.amqp import methods
from requite.protocols.amqp.policy import ResponderPolicy


def test_an_existing_queue_is_not_redeclared() -> None:
    rabbit = servant(ResponderPolicy(prefetch=5))
    rabbit.connect()
    names = ["CHANNEL_OPEN", "BASIC_QOS", "CONFIRM_SELECT", "QUEUE_DECLARE"]
    assert rabbit.sent(methods.channel(1)) == names
    assert rabbit.raw("BASIC_QOS") == [methods.qos(5)]
    assert methods.queue_declare("echo", passive=True) in rabbit.raw("QUEUE_DECLARE")

    rabbit.say(commands.Queue.DeclareOk("echo", 0, 0))
    assert rabbit.raw("BASIC_CONSUME") == [methods.consume("echo", "requests", no_ack=False)]
    assert not rabbit.engine.is_answered
    rabbit.say(commands.Basic.ConsumeOk("requests"))
    assert rabbit.engine.snapshot().is_consuming
    assert rabbit.engine.is_answered


def test_a_missing_queue_is_declared() -> None:
    rabbit = servant()
    rabbit.connect()
    rabbit.close_channel(404, methods.QUEUE_DECLARE)
    declared = methods.queue_declare("echo", {"x-queue-type": "quorum"}, durable=True)
    assert rabbit.raw("QUEUE_DECLARE") == [declared]


def test_a_pools_worker_waits_for_its_queue() -> None:
    rabbit = worker()
    rabbit.connect()
    rabbit.close_channel(404, methods.QUEUE_DECLARE)
    assert rabbit.sent() == ["CHANNEL_CLOSE_OK"]
    assert any(isinstance(each, Warn) for each in rabbit.effects)
    assert rabbit.engine.deadline() == rabbit.now + 1.0

    rabbit.wake(1.0)
    assert rabbit.raw("QUEUE_DECLARE") == [methods.queue_declare("core-req-a%2Fb", passive=True)]


def test_a_refused_queue_is_retried() -> None:
    rabbit = servant()
    rabbit.connect()
    rabbit.close_channel(403, methods.QUEUE_DECLARE)
    [warning] = [each for each in rabbit.effects if isinstance(each, Warn)]
    assert "403" in warning.text
    rabbit.wake(1.0)
    assert "QUEUE_DECLARE" in rabbit.sent()


@pytest.mark.parametrize("side", [servant, worker])
def test_the_responder_consumes_again_after_its_queue_was_deleted(side: Any) -> None:
    """A worker whose queue is deleted consumes again, without losing its running request."""
    rabbit = side()
    rabbit.consume()
    job, _ = rabbit.request()

    rabbit.say(commands.Basic.Cancel("requests"))
    assert not rabbit.engine.snapshot().is_consuming
    assert rabbit.sent() == ["BASIC_CANCEL", "QUEUE_DECLARE"]
    assert not any(isinstance(each, CancelHandler) for each in rabbit.effects)

    rabbit.feed(Finished(job, [b"still"]))
    assert rabbit.answer()[1] == b"still"
    rabbit.say(commands.Queue.DeclareOk("echo", 0, 0))
    assert not rabbit.raw("BASIC_CONSUME"), "others have made it just now"
    rabbit.wake(1.0)
    rabbit.say(commands.Queue.DeclareOk("echo", 0, 0))
    [consume] = rabbit.raw("BASIC_CONSUME")
    assert b"requests-1" in consume, "RabbitMQ 4.3 may still know the other one"
    rabbit.say(commands.Basic.ConsumeOk("requests-1"))
    rabbit.say(commands.Basic.CancelOk("requests"))
    assert rabbit.engine.snapshot().is_consuming


def test_a_queue_just_declared_by_another_client_is_checked_twice() -> None:
    """RabbitMQ reports a quorum queue before it is ready; a consumer started then may get
    nothing."""
    rabbit = worker()
    rabbit.connect()
    rabbit.close_channel(404, methods.QUEUE_DECLARE)
    rabbit.wake(1.0)
    rabbit.say(commands.Queue.DeclareOk("echo", 0, 0))
    assert not rabbit.raw("BASIC_CONSUME")
    rabbit.wake(1.0)
    assert rabbit.sent() == ["QUEUE_DECLARE"], "the channel stands"
    rabbit.say(commands.Queue.DeclareOk("echo", 0, 0))
    assert len(rabbit.raw("BASIC_CONSUME")) == 1


def test_a_queue_declared_by_the_responder_is_consumed_at_once() -> None:
    rabbit = servant()
    rabbit.connect()
    rabbit.close_channel(404, methods.QUEUE_DECLARE)
    rabbit.say(commands.Queue.DeclareOk("echo", 0, 0))
    assert len(rabbit.raw("BASIC_CONSUME")) == 1
