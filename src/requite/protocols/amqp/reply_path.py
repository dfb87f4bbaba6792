"""The way of a caller's requests and replies: its channels, its reply queue, a pool's exchange.

A reply queue stands before requests are published. The exchange of a pool is asked for first, on a
channel of its own, on which cancels travel, too: RabbitMQ closes a channel for any error, and that
of the calls must not be closed for one of those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from requite.protocols.amqp import methods
from requite.protocols.amqp.connected import SIDE, WORK
from requite.protocols.amqp.topology import DIRECT_REPLY_TO, REPLY_QUEUE_PREFIX, Destination

_CONSUMER: Final = "replies"


class ReplyPath:
    """What stands of it; `send` takes a channel and the parts of a message.

    `origin` makes the names of reply queues unlike any other's. `reply_to` is where replies go, and
    `is_ready` tells whether requests can be published.
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
        self.has_no_control = False  # nobody hears of cancels
        self._origin = origin
        self._send = send
        self._confirms = confirms
        self._direct_reply = direct_reply
        self._queue_number = 0
        self._is_open = False  # the channel of the calls, or it is about to be
        self._is_consuming = False
        self._side_is_open = False
        self._has_exchange = self._is_asking = False

    @property
    def is_ready(self) -> bool:
        """Whether requests can be published, and their replies taken."""
        return self._is_consuming and self._has_exchange

    def reset(self) -> None:
        """Begin anew: the connection is another one, or gone."""
        self._is_open = self._is_consuming = self._side_is_open = False
        self._has_exchange = self._is_asking = self.has_no_control = False

    def get_ready(self) -> bool:
        """Do what is missing; return whether the channel of the calls is a new one."""
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
        """Have a queue for replies, of a new name: RabbitMQ may know the last one for a while."""
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
        """Note that the queue stands."""
        self._is_consuming = True

    def lost_channel(self) -> bool:
        """Note that RabbitMQ has closed the channel of the calls; return whether it had stood."""
        self._send(WORK, methods.CHANNEL_CLOSE_OK)
        stood = self._is_consuming
        self._is_open = self._is_consuming = self._has_exchange = False
        return stood

    # --- the channel for the rest -----------------------------------------------------------------
    def ask_for_exchange(self) -> None:
        """Ask whether the pool's exchange is there."""
        self._open_side()
        ask = methods.exchange_declare(self.destination.exchange, "direct", passive=True)
        self._send(SIDE, ask)

    def found_exchange(self) -> None:
        """Note that it is."""
        self._is_asking = False
        self._has_exchange = True

    def lost_side(self, closed: methods.Closed) -> bool:
        """Note that RabbitMQ has closed this channel; return whether that was for want of the
        exchange. Else there is nobody to tell of cancels."""
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
        """Tell the workers something, by a message without a body."""
        self._open_side()
        publishing = methods.publish(self.destination.control_exchange, routing_key)
        self._send(SIDE, publishing, header, b"")

    def _open_side(self) -> None:
        if not self._side_is_open:
            self._side_is_open = True
            self._send(SIDE, methods.OPEN_CHANNEL)
