"""A responder's activity reports, and its queues for control messages: cancels, drains in pools.

Each has a separate channel. RabbitMQ closes a channel for any error, such as a missing exchange or
permission; that must not affect requests and replies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from requite.protocols.amqp import methods, wire
from requite.protocols.amqp.assignment import Assignment
from requite.protocols.amqp.connected import SIDE
from requite.protocols.amqp.properties import Properties, encode_properties
from requite.protocols.amqp.wire import Event

ACTIVITY: Final = methods.channel(3)
"""The channel of the reports."""

DRAINS: Final = methods.channel(4)
"""The channel of the drains."""

_CONSUMER: Final = "control"


class Reports:
    """The side channels of a responder; `send` takes a channel and the parts of a message."""

    def __init__(self, assignment: Assignment, send: Callable[..., None]) -> None:
        self._assignment = assignment
        self._send = send
        self._reports = False
        self.worker_id = assignment.worker_id

    def begin(self) -> None:
        """Open the channels of a new connection."""
        assignment = self._assignment
        self._send(SIDE, methods.OPEN_CHANNEL)
        if assignment.declares:
            self._send(SIDE, methods.exchange_declare(assignment.control_exchange, "direct"))
        self._listen(SIDE, assignment.control_exchange, assignment.control_key)
        if assignment.drain_exchange:
            self._send(DRAINS, methods.OPEN_CHANNEL)
            self._listen(DRAINS, assignment.drain_exchange)
        if self._assignment.activity_exchange:
            self._reports = True
            self._send(ACTIVITY, methods.OPEN_CHANNEL)
            self.report(Event.STARTED)

    def end(self) -> None:
        """Record that the connection was lost."""
        self._reports = False

    def lost(self, channel: bytes) -> None:
        """Record that RabbitMQ closed a channel; it is reopened on the next connection."""
        if channel == ACTIVITY:
            self._reports = False

    def report(self, event: Event, traceparent: str = "") -> None:
        """Report an event to the pool's manager, if any; `traceparent` is that of a request."""
        if not self._reports:
            return
        headers = {wire.EVENT: event.value, wire.WORKER_ID: self.worker_id}
        if traceparent:
            headers[wire.TRACEPARENT] = traceparent
        header = encode_properties(Properties(headers=headers), 0)
        publishing = methods.publish(self._assignment.activity_exchange, self._assignment.key)
        self._send(ACTIVITY, publishing, header, b"")

    def lack(self, channel: bytes) -> str:
        """Return what does not work without a channel, and what to do."""
        if channel == ACTIVITY:
            return "no activity is reported"
        if channel == SIDE:
            return "no cancels arrive"
        return (
            f"no drains arrive over {self._assignment.drain_exchange!r}, only SIGTERM drains this"
            " worker: start the pool's manager in this version of requite, and permit the worker to"
            " read from the exchange, then restart the worker"
        )

    def _listen(self, channel: bytes, exchange: str, routing_key: str = "") -> None:
        """Consume control messages from a new queue. RabbitMQ names it; an empty name refers to the
        queue that the channel has declared last (AMQP 0.9.1, section 3.1.10.2)."""
        self._send(channel, methods.queue_declare("", exclusive=True, auto_delete=True))
        self._send(channel, methods.queue_bind("", exchange, routing_key))
        self._send(channel, methods.consume("", _CONSUMER, no_ack=True))
