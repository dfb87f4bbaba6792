"""An AMQP responder under test; the test plays RabbitMQ."""

from __future__ import annotations

from typing import Any

from pamqp import commands
from tests.support.amqp_engines import Rabbit

from requite.protocols.amqp.assignment import pool_assignment, service_assignment
from requite.protocols.amqp.jobs import Job
from requite.protocols.amqp.policy import ResponderPolicy
from requite.protocols.amqp.responder import AmqpResponder
from requite.protocols.amqp.topology import Pool
from requite.request import Request

INSTANCE = b"\2" * 8


class ResponderBench(Rabbit):
    """RabbitMQ's end of a responder's connection."""

    def consume(self) -> None:
        """Connect, confirm the queue `echo`, and confirm the consumer."""
        self.connect()
        self.say(commands.Queue.DeclareOk("echo", 0, 0))
        self.say(commands.Basic.ConsumeOk("requests"))

    def request(self, body: bytes | None = b"body", **how: Any) -> tuple[Job, Request]:
        """Deliver a request; return its job, which the engine must have passed to the handler."""
        how = {"reply_to": "replies", "correlation_id": "c", "message_id": "m"} | how
        self.deliver(body, **how)
        [(job, request)] = self.delivered()
        return job, request

    def answer(self, **how: Any) -> tuple[dict[str, Any], bytes]:
        """Return headers and body of the only published reply."""
        [(exchange, key, properties, body)] = self.published()
        assert (exchange, key, properties.correlation_id) == ("", "replies", "c")
        return dict(properties.headers), body


def servant(policy: ResponderPolicy | None = None) -> ResponderBench:
    assignment = service_assignment("echo", "w1")
    return ResponderBench(AmqpResponder(assignment, policy, service="echo", instance=INSTANCE))


def worker() -> ResponderBench:
    assignment = pool_assignment(Pool("core"), "a/b", "w1")
    policy = ResponderPolicy(attempts_max=None)
    return ResponderBench(AmqpResponder(assignment, policy, service="echo", instance=INSTANCE))
