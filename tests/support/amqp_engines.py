"""AMQP engines with virtual time. The test plays RabbitMQ: it decodes the frames that the engine
sends, and encodes the frames that the engine receives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pamqp import commands

from requite.engine import (
    Deliver,
    Effect,
    Engine,
    Fail,
    PeerJoined,
    PeerLost,
    Received,
    Send,
    Submit,
    Wake,
)
from requite.errors import CallError
from requite.protocols.amqp import methods
from requite.protocols.amqp.caller import AmqpCaller
from requite.protocols.amqp.connected import SIDE, WORK
from requite.protocols.amqp.methods import CONNECTION
from requite.protocols.amqp.policy import CallerPolicy
from requite.protocols.amqp.properties import Properties, decode_properties, encode_properties
from requite.protocols.amqp.topology import Destination
from requite.request import Partial, Reply

ORIGIN = b"\1" * 8

NAMES = {
    value: name
    for name, value in vars(methods).items()
    if isinstance(value, bytes) and len(value) == 4 and name.isupper()
}


def method(command: Any) -> bytes:
    """Return the payload of a method frame, encoded by pamqp."""
    return bytes(command.index.to_bytes(4, "big") + command.marshal())


class Rabbit:
    """RabbitMQ's end of an engine's only connection; `now` is the engine's clock in seconds."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.now = 100.0
        self.peer = object()
        self.effects: list[Effect] = []  # of the last input

    # --- inputs -----------------------------------------------------------------------------------
    def feed(self, event: Any) -> list[Effect]:
        self.effects = list(self.engine.handle([event], self.now))
        return self.effects

    def wake(self, after_s: float) -> list[Effect]:
        self.now += after_s
        return self.feed(Wake())

    def connect(self, heartbeat_s: int = 0) -> list[Effect]:
        """Complete the AMQP handshake; `heartbeat_s` is the negotiated interval (0: none)."""
        self.feed(PeerJoined(self.peer))
        return self.hear([CONNECTION, methods.tune_ok(16, 131072, heartbeat_s)])

    def hear(self, *messages: list[bytes]) -> list[Effect]:
        return self.feed(Received(self.peer, messages))

    def say(self, command: Any, channel: bytes = WORK) -> list[Effect]:
        """Send the engine a method on a channel."""
        return self.hear([channel, method(command)])

    def close_channel(self, code: int, of: bytes, channel: bytes = WORK) -> list[Effect]:
        """Send the engine Channel.Close with this reply code; `of` is the method that failed."""
        ids = int.from_bytes(of[:2], "big"), int.from_bytes(of[2:], "big")
        return self.say(commands.Channel.Close(code, "TEXT", *ids), channel)

    def deliver(
        self,
        body: bytes | None,
        tag: int = 1,
        *,
        channel: bytes = WORK,
        redelivered: bool = False,
        exchange: str = "",
        headers: Mapping[str, Any] | None = None,
        **properties: Any,
    ) -> list[Effect]:
        """Send the engine a Basic.Deliver with a message.

        `body` None stands for a body above the size limit, which the framing has dropped.
        """
        head = encode_properties(
            Properties(headers=headers or {}, **properties), 0 if body is None else len(body)
        )
        deliver = method(commands.Basic.Deliver("c", tag, redelivered, exchange, "k"))
        return self.hear([channel, deliver, head, *([] if body is None else [body])])

    # --- effects of the last input ----------------------------------------------------------------
    def sent(self, channel: bytes | None = None) -> list[str]:
        """Return the names of the methods that the engine sent, on all channels or on one."""
        return [
            NAMES[each.message[1][:4]] if each.message else "HEARTBEAT"
            for each in self.effects
            if isinstance(each, Send)
            and (channel is None or (each.message and each.message[0] == channel))
        ]

    def raw(self, name: str) -> list[bytes]:
        """Return the payloads of the methods with this name that the engine sent."""
        return [
            each.message[1]
            for each in self.effects
            if isinstance(each, Send) and each.message and NAMES[each.message[1][:4]] == name
        ]

    def published(self, channel: bytes = WORK) -> list[tuple[str, str, Properties, bytes]]:
        """Return exchange, routing key, properties and body of each published message."""
        found = []
        for each in self.effects:
            if not isinstance(each, Send) or len(each.message) < 4 or each.message[0] != channel:
                continue
            publish = commands.Basic.Publish()
            publish.unmarshal(each.message[1][4:])
            properties = decode_properties(each.message[2])
            found.append((publish.exchange, publish.routing_key, properties, each.message[3]))
        return found

    def delivered(self) -> list[tuple[Any, Any]]:
        return [(each.token, each.what) for each in self.effects if isinstance(each, Deliver)]

    def failed(self) -> list[tuple[Any, CallError]]:
        return [(each.token, each.error) for each in self.effects if isinstance(each, Fail)]


class CallerSide(Rabbit):
    """RabbitMQ's end of a caller's connection."""

    def get_ready(self, heartbeat_s: int = 0) -> list[Effect]:
        self.connect(heartbeat_s)
        return self.say(commands.Basic.ConsumeOk("replies"))

    def submit(self, token: str, service: str = "echo", **asked: Any) -> list[Effect]:
        """Submit a call; `timeout_s` is 10 s and `body` is b"body" by default."""
        timeout_s = asked.pop("timeout_s", 10.0)
        body = asked.pop("body", b"body")
        return self.feed(Submit(token, service, [body], self.now + timeout_s, **asked))

    def reply(self, to: Properties, body: bytes = b"reply", **headers: Any) -> list[Effect]:
        """Deliver the reply to a request, of which `to` has the properties. Keywords are headers,
        with "_" in place of "-": `x_status` is `x-status`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.deliver(body, correlation_id=to.correlation_id, headers=named)

    def outcome(self) -> Reply | Partial | CallError:
        """Return the one reply, partial reply or error that the last input caused."""
        [outcome] = [what for _, what in self.delivered()] + [why for _, why in self.failed()]
        assert isinstance(outcome, Reply | Partial | CallError)
        return outcome


__all__ = ["SIDE", "WORK", "CallerSide", "Rabbit", "method"]


def caller(
    policy: CallerPolicy | None = None, destination: Destination | None = None
) -> CallerSide:
    """Return RabbitMQ's end of the connection of a new caller, whose call ids start with
    `ORIGIN`."""
    return CallerSide(AmqpCaller(policy, destination, origin=ORIGIN, first_sequence=7))


def lose_connection(rabbit: CallerSide) -> None:
    """Report to the engine that its connection was reset."""
    rabbit.feed(PeerLost(rabbit.peer, "reset by peer"))
