"""Channels of one connection to RabbitMQ, for code that declares, consumes, gets and publishes
freely; callers and responders have separate engines.

    OpenChannel ──► Opened ──► Ask, Publish, Say ... ──► Closed, by either side, or with the
                                                         connection

Each input carries a token, and `Deliver` returns results under it: the answer to an `Ask`; a
`Confirmed` for a `Publish`, or a `Returned` if no queue takes the message; the messages and the end
of a channel; the beginning and the end of the connection. When a channel or connection ends,
`Closed` answers everything that was pending on it; its code is 0 if RabbitMQ gave no reason.

Sources: AMQP 0.9.1, sections 1.5 to 1.8 of its reference; RabbitMQ, "Consumer Acknowledgements and
Publisher Confirms".
"""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from requite.core.liveness import HeartbeatPolicy
from requite.core.machine import Handlers
from requite.engine import Deliver, Message, PeerJoined, PeerLost, Received, Wake, Warn
from requite.errors import LocalViolation
from requite.protocols.amqp import methods
from requite.protocols.amqp.confirms import Confirms
from requite.protocols.amqp.connected import ConnectedEngine
from requite.protocols.amqp.fields import short
from requite.protocols.amqp.methods import (
    Cancelled,
    Closed,
    Confirmed,
    Delivered,
    Done,
    Got,
    Heard,
    Returned,
    Tuned,
)
from requite.protocols.amqp.policy import HEARTBEAT_DEFAULT

_NOT_CONNECTED: Final = Closed(0, "there is no connection to RabbitMQ", b"")
_NOT_OPEN: Final = Closed(0, "the channel is closed", b"")


# --- inputs ---------------------------------------------------------------------------------------
class OpenChannel(NamedTuple):
    """Open a channel; with `confirms`, one with publisher confirms."""

    token: Any
    confirms: bool = False


class Ask(NamedTuple):
    """Send a method that RabbitMQ answers."""

    token: Any
    channel: bytes
    method: bytes


class Publish(NamedTuple):
    """Publish on a channel with confirms; `header` is the content header of the body."""

    token: Any
    channel: bytes
    exchange: str
    routing_key: str
    header: bytes
    body: bytes


class Say(NamedTuple):
    """Send a method that RabbitMQ does not answer."""

    channel: bytes
    method: bytes


# --- results under tokens, besides the methods that RabbitMQ sends --------------------------------
class Opened(NamedTuple):
    """A channel is open."""

    channel: bytes


class Content(NamedTuple):
    """A message from a consumer or a `basic.get`, undecoded. If it is too large, a consumer gets
    nothing, and a `basic.get` is answered with the `Got` alone."""

    heard: Delivered | Got
    header: bytes
    body: bytes


class AmqpChannels(ConnectedEngine):
    """The engine of one connection, which it does not replace. `token` is the connection's."""

    _kind = "an engine of channels"

    def __init__(self, token: Any, heartbeat: HeartbeatPolicy = HEARTBEAT_DEFAULT) -> None:
        super().__init__(heartbeat)
        self._token = token
        self._number_max = 0
        self._channels: dict[bytes, _Channel] = {}

    def _handlers(self) -> Handlers:
        return {
            PeerJoined: self._joined,
            PeerLost: self._lost,
            Received: self._received,
            OpenChannel: self._open,
            Ask: self._ask,
            Publish: self._publish,
            Say: self._say,
            Wake: self._woken,
        }

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        return self._beat_at()

    def snapshot(self) -> Any:
        """Return the number of open channels and of unconfirmed publishings."""
        channels = self._channels.values()
        unconfirmed = sum(len(each.confirms) for each in channels)
        return SimpleNamespace(channels=len(channels), unconfirmed=unconfirmed)

    # --- the connection ---------------------------------------------------------------------------
    def _entered(self, heard: Heard) -> None:
        if isinstance(heard, Tuned):
            self._number_max = heard.channels
        if isinstance(heard, Tuned | Closed):
            self._out.append(Deliver(self._token, heard))

    def _begin(self, now: float) -> None:
        """Do nothing: channels are opened on request."""

    def _refused(self, reason: str, now: float) -> None:
        """Do nothing: `_entered` has reported it under the connection's token."""

    def _end(self, reason: str, _now: float) -> None:
        closed = Closed(0, reason, b"")
        for number in list(self._channels):
            self._close(number, closed)
        self._out.append(Deliver(self._token, closed))

    def _woken(self, _event: Wake, now: float) -> None:
        self._attend(now)

    # --- from the user ----------------------------------------------------------------------------
    def _open(self, event: OpenChannel, _now: float) -> None:
        if not self._agreed:
            self._out.append(Deliver(event.token, _NOT_CONNECTED))
            return
        number = self._free_number()
        self._channels[number] = _Channel(event.token)
        self._send(number, methods.OPEN_CHANNEL)
        if event.confirms:
            self._send(number, methods.SELECT_CONFIRMS)

    def _free_number(self) -> bytes:
        for number in range(1, self._number_max + 1):
            if (found := methods.channel(number)) not in self._channels:
                return found
        raise LocalViolation(f"RabbitMQ allows {self._number_max} channels, and all are open")

    def _ask(self, event: Ask, _now: float) -> None:
        channel = self._channels.get(event.channel)
        if channel is None or channel.is_leaving:
            self._out.append(Deliver(event.token, _NOT_OPEN))
            return
        channel.is_leaving = event.method[:4] == methods.CHANNEL_CLOSE
        channel.asked.append(event.token)
        self._send(event.channel, event.method)

    def _publish(self, event: Publish, _now: float) -> None:
        channel = self._channels.get(event.channel)
        if channel is None or channel.is_leaving:
            self._out.append(Deliver(event.token, _NOT_OPEN))
            return
        channel.confirms.published(_Publishing(event))
        method = methods.publish(event.exchange, event.routing_key, mandatory=True)
        self._send(event.channel, method, event.header, event.body)

    def _say(self, event: Say, _now: float) -> None:
        if event.channel in self._channels:
            self._send(event.channel, event.method)

    # --- from RabbitMQ ----------------------------------------------------------------------------
    def _hear(self, number: bytes, heard: Heard, message: Message, now: float) -> None:
        channel = self._channels.get(number)
        if channel is None:
            return
        match heard:
            case Closed():
                self._send(number, methods.CHANNEL_CLOSE_OK)
                if not channel.is_leaving:  # else RabbitMQ also answers our close
                    self._close(number, heard)
            case Done(method=methods.CHANNEL_CLOSE_OK):
                self._close(number, _NOT_OPEN)
            case Done(method=methods.CHANNEL_OPEN_OK):
                self._out.append(Deliver(channel.token, Opened(number)))
            case Done(method=methods.CONFIRM_SELECT_OK):
                pass  # sent along with channel.open; nothing waits for the answer
            case Returned():
                self._returned(channel, heard, message)
            case Confirmed():
                for publishing in channel.confirms.take(heard):
                    outcome = publishing.returned or heard
                    self._out.append(Deliver(publishing.event.token, outcome))
            case Delivered() | Got() if len(message) < 4:
                text = f"a message of {heard.routing_key!r} is too large; RabbitMQ keeps it"
                self._out.append(Warn("too large", text))
                if isinstance(heard, Got):
                    self._answer(channel, heard)
            case Delivered():
                self._out.append(Deliver(channel.token, Content(heard, message[2], message[3])))
            case Cancelled(by_us=False):
                self._out.append(Deliver(channel.token, heard))
            case Got():
                self._answer(channel, Content(heard, message[2], message[3]))
            case _:
                self._answer(channel, heard)

    def _answer(self, channel: _Channel, answer: Any) -> None:
        if channel.asked:
            self._out.append(Deliver(channel.asked.popleft(), answer))

    def _returned(self, channel: _Channel, returned: Returned, message: Message) -> None:
        """Mark the publishing that RabbitMQ returned; it confirms it next.

        A `basic.return` has no id, so this takes the oldest publishing with the same content. If
        none matches, because RabbitMQ encoded the properties anew, exchange and routing key decide.
        """
        waiting = [
            each
            for each in channel.confirms
            if each.returned is None and message[1].endswith(each.place)
        ]
        same = [each for each in waiting if [each.event.header, each.event.body] == message[2:]]
        for publishing in (same or waiting)[:1]:
            publishing.returned = returned

    def _close(self, number: bytes, closed: Closed) -> None:
        """Forget a channel; deliver `closed` under its token and all that are pending on it."""
        channel = self._channels.pop(number)
        waiting = [*channel.asked, *[each.event.token for each in channel.confirms]]
        for token in (channel.token, *waiting):
            self._out.append(Deliver(token, closed))


class _Publishing:
    """An unconfirmed publishing; `returned` is set if RabbitMQ returned it."""

    __slots__ = ("event", "place", "returned")

    def __init__(self, event: Publish) -> None:
        self.event = event
        self.place = short(event.exchange) + short(event.routing_key)
        self.returned: Returned | None = None


class _Channel:
    """A channel with its pending tokens; `is_leaving`: we have sent channel.close."""

    __slots__ = ("asked", "confirms", "is_leaving", "token")

    def __init__(self, token: Any) -> None:
        self.token = token
        self.asked: deque[Any] = deque()
        self.confirms: Confirms[_Publishing] = Confirms()
        self.is_leaving = False
