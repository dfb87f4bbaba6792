"""A responder's channel, its request queue, and its consumer there.

    looking for the queue ──► found ──► consuming ──► cancelled by RabbitMQ: looking for it again
             └──► missing: declared, if the assignment says so; else looked for after a pause

RabbitMQ closes the channel if the queue is missing, so the queue is declared on a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final

from requite.protocols.amqp import methods
from requite.protocols.amqp.assignment import Assignment
from requite.protocols.amqp.confirms import Confirms
from requite.protocols.amqp.connected import WORK
from requite.protocols.amqp.policy import ResponderPolicy

_CONSUMER: Final = "requests"
_NOT_FOUND: Final = 404  # AMQP 0.9.1, section 1.2


class RequestQueue:
    """State of the channel and its consumer. `confirms` are those of the channel. `send` takes a
    channel and the parts of a message, `warn` a kind and a text.

    `is_consuming`: RabbitMQ delivers requests. `try_at`: when to look for the queue again.
    """

    def __init__(
        self,
        assignment: Assignment,
        policy: ResponderPolicy,
        confirms: Confirms[Any],
        send: Callable[..., None],
        warn: Callable[[str, str], None],
    ) -> None:
        self.is_consuming = False
        self.try_at = inf
        self._assignment = assignment
        self._policy = policy
        self._confirms = confirms
        self._send = send
        self._warn = warn
        self._has_channel = False
        self._is_declaring = False
        self._is_leaving = False
        self._was_missing = False  # the queue, at the last check
        self._consumers = 0  # that RabbitMQ has cancelled
        self._consumer = _CONSUMER

    def look_for(self) -> None:
        """Check for the queue first: declaring it with other arguments than it has would fail."""
        self.try_at = inf
        if not self._has_channel:
            self._open_channel()
        self._send(WORK, methods.queue_declare(self._assignment.queue, passive=True))

    def leave(self) -> None:
        """Stop consuming, for good."""
        self._is_leaving = True
        self.try_at = inf
        if self.is_consuming:
            self._send(WORK, methods.cancel(self._consumer))

    def lost_connection(self) -> None:
        """Reset the state after the connection was lost."""
        self._has_channel = self.is_consuming = False
        self.try_at = inf

    # --- from RabbitMQ ----------------------------------------------------------------------------
    def found(self, now: float) -> None:
        """Consume; if another client has just declared the queue, check again after a pause.

        RabbitMQ 3.10 shows a quorum queue before it is ready. A consumer may then never get a
        request, or lose its connection (541).
        """
        if self._is_leaving:
            return
        if self._was_missing:
            self._was_missing = False
            self.try_at = now + self._policy.retry_s
        else:
            self._send(WORK, methods.consume(self._assignment.queue, self._consumer, no_ack=False))

    def began_to_consume(self) -> None:
        """Record that RabbitMQ delivers from the queue."""
        self.is_consuming = True
        if self._is_leaving:
            self._send(WORK, methods.cancel(self._consumer))

    def lost_consumer(self, cancelled: methods.Cancelled) -> None:
        """Consume again after the consumer was cancelled, unless we have cancelled it.

        If the queue was deleted, running requests are lost with it; only this worker can still
        answer them. RabbitMQ 4.3 also cancels a consumer whose request takes longer than
        `consumer_timeout`, and redelivers that request. It retains consumer and tag until we cancel
        the consumer too.
        """
        if cancelled.tag != self._consumer:
            return  # an earlier consumer
        self.is_consuming = False
        if cancelled.by_us:
            return
        queue = self._assignment.queue
        text = f"the queue {queue!r} was deleted, or a request took longer than consumer_timeout"
        self._warn("no consumer", f"RabbitMQ has stopped delivering requests: {text}")
        self._send(WORK, methods.cancel(self._consumer))
        self._consumers += 1
        self._consumer = f"{_CONSUMER}-{self._consumers}"
        self._was_missing = True
        if not self._is_leaving:
            self.look_for()

    def lost_channel(self, closed: methods.Closed, now: float) -> None:
        """Reopen the channel: at once if this worker declares the queue, else after a pause."""
        self._has_channel = self.is_consuming = False
        self._was_missing = closed.code == _NOT_FOUND
        if self._is_leaving:
            return
        if self._was_missing and self._assignment.declares and not self._is_declaring:
            self._declare()
        else:
            text = f"cannot receive requests for now: {closed.code} {closed.text}"
            self._warn("no queue", text)
            self.try_at = now + self._policy.retry_s

    # --- to RabbitMQ ------------------------------------------------------------------------------
    def _open_channel(self) -> None:
        self._confirms.begin()
        self._has_channel = True
        self._is_declaring = False
        self._send(WORK, methods.OPEN_CHANNEL)
        self._send(WORK, methods.qos(self._policy.prefetch))
        self._send(WORK, methods.SELECT_CONFIRMS)

    def _declare(self) -> None:
        self._open_channel()
        self._is_declaring = True
        self._was_missing = False
        assignment = self._assignment
        self._send(
            WORK, methods.queue_declare(assignment.queue, assignment.arguments, durable=True)
        )
