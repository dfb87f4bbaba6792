"""A caller's channels, its reply queue and the exchange of its pool.

The caller declares its reply queue before it publishes requests. It first checks for the exchange
of a pool on a separate channel, which also carries cancels: RabbitMQ closes a channel for any
error, and such an error must not close the channel of the calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from requite.protocols.amqp import methods
from requite.protocols.amqp.connected import SIDE, WORK
from requite.protocols.amqp.topology import DIRECT_REPLY_TO, REPLY_QUEUE_PREFIX, Destination

_CONSUMER: Final = "replies"


class ReplyPath:
    """State of the channels; `send` takes a channel and the parts of a message.

    `origin` makes the names of reply queues unique. `reply_to` is the reply queue.
    """

    def __init__(
        self,
        destination: Destination,
        origin: bytes,
        send: Callable[..., None],
        *,
        confirms: bool,
        direct_reply: bool,
    ) -> None:
        self.destination = destination
        self.reply_to = ""
        self.has_no_control = False  # cancels cannot be published
        self._origin = origin
        self._send = send
        self._confirms = confirms
        self._direct_reply = direct_reply
        self._queue_number = 0
        self._is_open = False  # the channel of the calls; set when the opening is sent
        self._is_consuming = False
        self._side_is_open = False
        self._has_exchange = self._is_asking = False

    @property
    def is_ready(self) -> bool:
        """Whether requests can be published and replies received."""
        return self._is_consuming and self._has_exchange

    def reset(self) -> None:
        """Reset the state after a connection was lost or replaced."""
        self._is_open = self._is_consuming = self._side_is_open = False
        self._has_exchange = self._is_asking = self.has_no_control = False

    def get_ready(self) -> bool:
        """Send what is missing; return whether this opens a new channel for the calls."""
        opens = not self._is_open
        if opens:
            self._is_open = True
            self._send(WORK, methods.OPEN_CHANNEL)
            if self._confirms:
                self._send(WORK, methods.SELECT_CONFIRMS)
            self.have_queue()
        if not self.destination.exchange:
            self._has_exchange = True
        elif not (self._has_exchange or self._is_asking):
            self._is_asking = True
            self.ask_for_exchange()
        return opens

    # --- replies ----------------------------------------------------------------------------------
    def have_queue(self) -> None:
        """Declare a reply queue under a new name: RabbitMQ may keep the last one for a while."""
        self._is_consuming = False
        if self._direct_reply:
            self.reply_to = DIRECT_REPLY_TO
        else:
            self._queue_number += 1
            self.reply_to = f"{REPLY_QUEUE_PREFIX}{self._origin.hex()}-{self._queue_number}"
            declare = methods.queue_declare(self.reply_to, exclusive=True, auto_delete=True)
            self._send(WORK, declare)
        self._send(WORK, methods.consume(self.reply_to, _CONSUMER, no_ack=True))

    def began_to_consume(self) -> None:
        """Record that RabbitMQ delivers from the reply queue."""
        self._is_consuming = True

    def lost_channel(self) -> bool:
        """Record that RabbitMQ closed the channel of the calls; return whether it was consuming."""
        self._send(WORK, methods.CHANNEL_CLOSE_OK)
        stood = self._is_consuming
        self._is_open = self._is_consuming = self._has_exchange = False
        return stood

    # --- the channel for the rest -----------------------------------------------------------------
    def ask_for_exchange(self) -> None:
        """Ask whether the pool's exchange exists."""
        self._open_side()
        ask = methods.exchange_declare(self.destination.exchange, "direct", passive=True)
        self._send(SIDE, ask)

    def found_exchange(self) -> None:
        """Record that the pool's exchange exists."""
        self._is_asking = False
        self._has_exchange = True

    def lost_side(self, closed: methods.Closed) -> bool:
        """Record that RabbitMQ closed the side channel; return whether the exchange is missing.
        For any other reason, cancels are not published any more."""
        self._side_is_open = False
        self._send(SIDE, methods.CHANNEL_CLOSE_OK)
        if closed.method == methods.EXCHANGE_DECLARE:
            self._is_asking = False
            return True
        self.has_no_control = True
        if self._is_asking:
            self.ask_for_exchange()
        return False

    def publish_control(self, routing_key: str, header: bytes) -> None:
        """Publish a control message, which has no body, to the workers."""
        self._open_side()
        publishing = methods.publish(self.destination.control_exchange, routing_key)
        self._send(SIDE, publishing, header, b"")

    def _open_side(self) -> None:
        if not self._side_is_open:
            self._side_is_open = True
            self._send(SIDE, methods.OPEN_CHANNEL)
