"""The responder of RPC over AMQP: requests, replies, cancels, reports and draining."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pamqp import commands
from tests.spec.requirement import requirement
from tests.support.amqp_engines import SIDE
from tests.support.amqp_responder import INSTANCE, ResponderBench, servant, worker

from requite.engine import CancelHandler, Drain, Finished, PeerLost, Produced, Stopped, Warn
from requite.errors import ConfigurationError, LocalViolation
from requite.protocols.amqp import methods
from requite.protocols.amqp.assignment import pool_assignment, service_assignment
from requite.protocols.amqp.policy import ResponderPolicy
from requite.protocols.amqp.reports import ACTIVITY, DRAINS
from requite.protocols.amqp.topology import Pool
from requite.request import Status


# --- requests and replies -------------------------------------------------------------------------
@requirement("amqp:copied", "pool:worker:ack-after", "pool:confirms")
@pytest.mark.parametrize(
    ("responder", "sent"),
    [(servant, []), (worker, ["BASIC_PUBLISH"])],  # a pool's worker reports its activity
)
def test_a_request_is_acknowledged_when_its_reply_is_confirmed(
    responder: Callable[[], ResponderBench], sent: list[str]
) -> None:
    rabbit = responder()
    rabbit.consume()
    job, request = rabbit.request(expiration="1500", headers={"x-idempotency-key": b"k"})
    assert (request.service, request.frames, request.attempt) == ("echo", (b"body",), 1)
    assert (request.remaining_s, request.idempotency_key) == (1.5, b"k")
    assert rabbit.sent() == sent

    rabbit.feed(Finished(job, [b"done"]))
    headers, body = rabbit.answer()
    assert headers == {"x-status": "ok", "x-worker-id": "w1", "x-attempt": 1}
    assert body == b"done"
    assert "BASIC_ACK" not in rabbit.sent()

    rabbit.say(commands.Basic.Ack(1))
    assert rabbit.raw("BASIC_ACK") == [methods.ack(1)]


def test_one_confirm_may_cover_several_replies() -> None:
    rabbit = servant()
    rabbit.consume()
    for tag in (1, 2, 3):
        job, _ = rabbit.request(tag=tag)
        rabbit.feed(Finished(job, [b""]))
    rabbit.say(commands.Basic.Ack(2, True))
    assert rabbit.raw("BASIC_ACK") == [methods.ack(1), methods.ack(2)]
    rabbit.say(commands.Basic.Nack(3))
    assert rabbit.raw("BASIC_REJECT") == [methods.reject(3, requeue=True)]


def test_a_failed_handler_causes_a_negative_reply() -> None:
    rabbit = servant()
    rabbit.consume()
    job, _ = rabbit.request()
    rabbit.feed(Finished(job, [b"division by zero", b"final"], Status.FAILED))
    headers, body = rabbit.answer()
    assert (headers["x-status"], body) == ("error", b"division by zero")
    with pytest.raises(LocalViolation):
        rabbit.feed(Finished(job, [], Status.POISONED))


def test_partial_replies_are_numbered() -> None:
    rabbit = servant()
    rabbit.consume()
    job, _ = rabbit.request()
    run = int.from_bytes(INSTANCE[:6], "big") + 1  # other starts of the worker use other numbers
    for number in range(2):
        rabbit.feed(Produced(job, [b"%d" % number]))
        headers, body = rabbit.answer()
        assert (headers["x-partial"], body) == (number, b"%d" % number)
        assert "x-status" not in headers
    rabbit.feed(Finished(job, [b""]))
    headers = rabbit.answer()[0]
    assert "x-partial" not in headers
    assert (headers["x-partials"], headers["x-run"]) == (2, run)
    rabbit.say(commands.Basic.Ack(3, True))
    assert rabbit.raw("BASIC_ACK") == [methods.ack(1)]


def test_the_reply_carries_the_traceparent_of_its_request() -> None:
    rabbit = servant()
    rabbit.consume()
    job, _ = rabbit.request(headers={"traceparent": "00-ab-cd-01"})
    rabbit.feed(Finished(job, [b""]))
    assert rabbit.answer()[0]["traceparent"] == "00-ab-cd-01"


def test_a_request_that_a_worker_cannot_serve_is_requeued() -> None:
    rabbit = servant()
    rabbit.consume()
    job, _ = rabbit.request()
    rabbit.feed(Finished(job, [], Status.OVERLOADED))
    assert rabbit.raw("BASIC_REJECT") == [methods.reject(1, requeue=True)]


# --- invalid requests -----------------------------------------------------------------------------
@requirement("amqp:no-reply-to")
def test_a_request_without_reply_to_is_rejected() -> None:
    """ "RPC over AMQP": without reply-to, a servant cannot send the response."""
    rabbit = servant()
    rabbit.consume()
    rabbit.deliver(b"", correlation_id="c")
    assert not rabbit.delivered()
    assert rabbit.raw("BASIC_REJECT") == [methods.reject(1, requeue=False)]
    assert rabbit.engine.snapshot().dropped == {"without reply-to": 1}


def test_in_a_pool_reply_to_is_optional() -> None:
    rabbit = worker()
    rabbit.consume()
    rabbit.deliver(b"", correlation_id="c")
    [(job, _)] = rabbit.delivered()
    rabbit.feed(Finished(job, [b"nobody asks"]))
    assert not rabbit.published()
    assert rabbit.raw("BASIC_ACK") == [methods.ack(1)]


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"expiration": "soon"}, "expiration is 'soon'"),
        ({"headers": {"x-idempotency-key": 7}}, "neither text nor bytes"),
    ],
)
def test_malformed_requests_get_an_error_reply(how: Any, text: str) -> None:
    rabbit = servant()
    rabbit.consume()
    rabbit.deliver(b"", reply_to="replies", correlation_id="c", **how)
    assert not rabbit.delivered()
    headers, body = rabbit.answer()
    assert headers["x-status"] == "error"
    assert text in body.decode()
    rabbit.say(commands.Basic.Ack(1))
    assert rabbit.raw("BASIC_ACK") == [methods.ack(1)]


def test_a_request_over_the_size_limit_gets_an_error_reply() -> None:
    rabbit = servant()
    rabbit.consume()
    rabbit.deliver(None, reply_to="replies", correlation_id="c")
    headers, body = rabbit.answer()
    assert headers["x-status"] == "error"
    assert b"message_size_max" in body


def test_a_request_over_the_attempt_limit_gets_a_negative_reply() -> None:
    rabbit = servant(ResponderPolicy(attempts_max=2))
    rabbit.consume()
    _, request = rabbit.request(redelivered=True, headers={"x-delivery-count": 1})
    assert request.attempt == 2

    rabbit.deliver(b"", 2, reply_to="replies", correlation_id="c", headers={"x-delivery-count": 2})
    assert not rabbit.delivered()
    assert rabbit.answer()[0]["x-status"] == "delivery_limit"


@pytest.mark.parametrize("side", [servant, worker])
def test_a_redelivery_that_rabbitmq_has_not_counted_is_rejected_once(side: Any) -> None:
    """RabbitMQ 4.3 does not count deliveries that took longer than its consumer_timeout."""
    rabbit = side()
    rabbit.consume()
    rabbit.deliver(b"", 1, redelivered=True, reply_to="r", headers={"x-acquired-count": 1})
    assert not rabbit.delivered()
    [reject] = rabbit.raw("BASIC_REJECT")
    assert reject == methods.reject(1, requeue=True)

    counts = {"x-acquired-count": 2, "x-delivery-count": 1}
    _, request = rabbit.request(redelivered=True, headers=counts)
    assert request.attempt == 2


# --- reports --------------------------------------------------------------------------------------
def events(rabbit: ResponderBench) -> list[tuple[str, str, str, str]]:
    return [
        (exchange, key, properties.headers["x-event"], properties.headers["x-worker-id"])
        for exchange, key, properties, _ in rabbit.published(ACTIVITY)
    ]


def test_a_pools_worker_reports_its_activity() -> None:
    rabbit = worker()
    told = "core-activity-xchg", "a/b"
    rabbit.connect()
    assert events(rabbit) == [(*told, "started", "w1")]
    rabbit.say(commands.Queue.DeclareOk("q", 0, 0))
    rabbit.say(commands.Basic.ConsumeOk("requests"))
    assert events(rabbit) == [(*told, "ready", "w1")]
    rabbit.deliver(b"", reply_to="replies", correlation_id="c")
    assert events(rabbit) == [(*told, "request-received", "w1")]
    rabbit.feed(Drain())
    assert events(rabbit) == [(*told, "stopping", "w1")]


def test_without_an_activity_exchange_requests_are_served() -> None:
    rabbit = worker()
    rabbit.consume()
    rabbit.close_channel(404, methods.BASIC_PUBLISH, ACTIVITY)
    rabbit.request()
    assert not events(rabbit)


def test_a_servant_without_a_pool_reports_nothing() -> None:
    rabbit = servant()
    rabbit.consume()
    rabbit.request()
    assert not events(rabbit)


# --- drains of a manager --------------------------------------------------------------------------
def drain(rabbit: ResponderBench, channel: bytes, exchange: str) -> bool:
    """Deliver a drain; return whether the worker obeys."""
    rabbit.deliver(b"", channel=channel, exchange=exchange, headers={"x-control": "drain"})
    return "BASIC_CANCEL" in rabbit.sent()


def test_a_pools_worker_has_a_queue_of_its_own_for_drains() -> None:
    rabbit = worker()
    rabbit.connect()
    own = ["CHANNEL_OPEN", "QUEUE_DECLARE", "QUEUE_BIND", "BASIC_CONSUME"]
    assert rabbit.sent(SIDE) == rabbit.sent(DRAINS) == own
    binds = [methods.queue_bind("", f"core-{name}-xchg", "") for name in ("control", "drain")]
    assert rabbit.raw("QUEUE_BIND") == binds


def test_a_drain_over_an_exchange_of_callers_has_no_effect() -> None:
    rabbit = worker()
    rabbit.consume()
    assert not drain(rabbit, SIDE, "core-control-xchg")
    assert not drain(rabbit, SIDE, "")
    assert not drain(rabbit, DRAINS, "")  # published to the queue itself
    assert drain(rabbit, DRAINS, "core-drain-xchg")


def test_a_worker_of_an_older_manager_warns_and_gets_cancels() -> None:
    rabbit = worker()
    rabbit.consume()
    rabbit.close_channel(404, methods.QUEUE_BIND, DRAINS)
    [warning] = [each for each in rabbit.effects if isinstance(each, Warn)]
    assert "no drains arrive over 'core-drain-xchg'" in warning.text
    assert "start the pool's manager in this version" in warning.text
    job, _ = rabbit.request()
    name = {"correlation_id": "c", "message_id": "m"}
    rabbit.deliver(b"", channel=SIDE, headers={"x-control": "cancel"}, **name)
    assert [each.token for each in rabbit.effects if isinstance(each, CancelHandler)] == [job]


# --- losses and draining --------------------------------------------------------------------------
def test_a_lost_connection_cancels_running_handlers() -> None:
    rabbit = servant()
    rabbit.consume()
    job, _ = rabbit.request()
    rabbit.feed(PeerLost(rabbit.peer, "reset"))
    assert [each.token for each in rabbit.effects if isinstance(each, CancelHandler)] == [job]
    rabbit.feed(Finished(job, [b"late"]))
    assert not rabbit.effects

    rabbit.consume()
    assert rabbit.engine.snapshot().is_consuming


def test_a_drain_finishes_running_requests() -> None:
    rabbit = servant()
    rabbit.consume()
    job, _ = rabbit.request()
    rabbit.feed(Drain())
    assert rabbit.sent() == ["BASIC_CANCEL"]

    rabbit.deliver(b"", 2, reply_to="replies")  # sent before the server received the cancel
    assert rabbit.raw("BASIC_REJECT") == [methods.reject(2, requeue=True)]
    rabbit.say(commands.Basic.CancelOk("requests"))
    rabbit.feed(Finished(job, [b"done"]))
    assert rabbit.answer()[1] == b"done"
    assert Stopped() not in rabbit.effects

    rabbit.say(commands.Basic.Ack(1))
    assert rabbit.raw("BASIC_ACK") == [methods.ack(1)]
    assert rabbit.effects[-1] == Stopped()


@pytest.mark.parametrize("connected", [True, False])
def test_a_drain_without_requests_stops_at_once(connected: bool) -> None:
    rabbit = servant()
    if connected:
        rabbit.connect()
    rabbit.feed(Drain())
    assert rabbit.effects[-1] == Stopped()


def test_a_drain_without_a_connection_ends_when_handlers_have_finished() -> None:
    rabbit = servant()
    rabbit.consume()
    job, _ = rabbit.request()
    rabbit.feed(Drain())
    rabbit.feed(PeerLost(rabbit.peer, "reset"))
    rabbit.feed(Finished(job, [b""]))
    assert rabbit.effects[-1] == Stopped()


# --- assignments ----------------------------------------------------------------------------------
def test_a_pool_assignment_may_set_its_queue_and_exchange() -> None:
    assignment = pool_assignment(Pool("core"), "42", "w", "my-queue", "my-activity")
    assert (assignment.queue, assignment.activity_exchange, assignment.key) == (
        "my-queue",
        "my-activity",
        "42",
    )


@pytest.mark.parametrize("name", ["", "amq.gen-1", "x" * 256])
def test_invalid_queue_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="queue="):
        service_assignment(name, "w")


@pytest.mark.parametrize("value", [{"prefetch": 0}, {"attempts_max": 0}, {"retry_s": 0}])
def test_invalid_policies_are_refused(value: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        ResponderPolicy(**value)


def test_a_refused_side_channel_is_closed_once() -> None:
    """RabbitMQ refuses all methods in flight; a second answer would close the connection."""
    rabbit = servant()
    rabbit.consume()
    refused = commands.Channel.Close(403, "refused", 40, 10)
    rabbit.say(refused, methods.channel(2))
    assert rabbit.sent() == ["CHANNEL_CLOSE_OK"]
    rabbit.say(refused, methods.channel(2))
    assert not rabbit.sent()
