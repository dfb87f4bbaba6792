"""Cancels at an AMQP responder: before, while and after their request runs."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands
from tests.support.amqp_engines import SIDE, method
from tests.support.amqp_responder import ResponderBench, servant

from requite.engine import CancelHandler, Finished, Send, Warn
from requite.protocols.amqp import methods
from requite.protocols.amqp.policy import ResponderPolicy
from requite.protocols.amqp.properties import Properties, encode_properties


def cancel(rabbit: ResponderBench, **name: Any) -> None:
    rabbit.deliver(b"", channel=SIDE, headers={"x-control": "cancel"}, **name)


def test_a_cancel_interrupts_its_handler() -> None:
    rabbit = servant()
    rabbit.consume()
    job, _ = rabbit.request()
    cancel(rabbit, correlation_id="c", message_id="other")
    assert not rabbit.effects
    cancel(rabbit, correlation_id="c", message_id="m")
    assert [each.token for each in rabbit.effects if isinstance(each, CancelHandler)] == [job]
    assert rabbit.raw("BASIC_ACK") == [methods.ack(1)]

    rabbit.feed(Finished(job, [b"too late"]))
    assert not rabbit.sent()


def test_names_that_are_not_utf_8_are_copied_unchanged() -> None:
    """With replacement characters, each byte would take three bytes, and the names would exceed the
    limit."""
    rabbit = servant()
    rabbit.consume()
    odd = b"\xff" * 200
    header = encode_properties(Properties("c" * 200, "r" * 200), 0)
    header = header.replace(b"c" * 200, odd).replace(b"r" * 200, odd)
    deliver = method(commands.Basic.Deliver("requests", 1, False, "", "echo"))
    rabbit.hear([methods.channel(1), deliver, header, b""])
    [(job, _)] = rabbit.delivered()
    rabbit.feed(Finished(job, [b"reply"]))
    [sent] = [each.message for each in rabbit.effects if isinstance(each, Send)]
    assert odd in sent[1]
    assert odd in sent[2]


def test_a_cancel_applies_to_all_copies_of_a_request() -> None:
    """A request that its caller publishes again is delivered more than once."""
    rabbit = servant()
    rabbit.consume()
    copy: dict[str, Any] = {"reply_to": "replies", "correlation_id": "c", "message_id": "m"}
    jobs = []
    for tag in (1, 2):
        rabbit.deliver(b"", tag, **copy)
        jobs += [job for job, _ in rabbit.delivered()]
    cancel(rabbit, correlation_id="c", message_id="m")
    assert [each.token for each in rabbit.effects if isinstance(each, CancelHandler)] == jobs
    assert rabbit.raw("BASIC_ACK") == [methods.ack(1), methods.ack(2)]
    for tag in (3, 4):
        rabbit.deliver(b"", tag, **copy)
        assert not rabbit.delivered()
        assert rabbit.raw("BASIC_ACK") == [methods.ack(tag)]


def test_a_request_cancelled_before_its_delivery_never_starts() -> None:
    rabbit = servant(ResponderPolicy(cancels_max=2))
    rabbit.consume()
    for number in range(3):
        cancel(rabbit, correlation_id="c", message_id=f"m{number}")
    assert rabbit.engine.snapshot().cancels == 2
    rabbit.deliver(b"", reply_to="replies", correlation_id="c", message_id="m2")
    assert not rabbit.delivered()
    assert rabbit.sent() == ["BASIC_ACK"]
    rabbit.request(correlation_id="c", message_id="m0")  # the oldest cancel was dropped


def test_without_a_control_exchange_requests_are_served() -> None:
    rabbit = servant()
    rabbit.consume()
    rabbit.close_channel(403, methods.EXCHANGE_DECLARE, SIDE)
    assert any(isinstance(each, Warn) for each in rabbit.effects)
    rabbit.request()


@pytest.mark.parametrize("headers", [{}, {"x-control": "dance"}, {"x-control": 1}])
def test_other_control_messages_are_ignored(headers: dict[str, Any]) -> None:
    rabbit = servant()
    rabbit.consume()
    rabbit.request()
    rabbit.deliver(b"", channel=SIDE, headers=headers, correlation_id="c", message_id="m")
    assert not rabbit.effects
