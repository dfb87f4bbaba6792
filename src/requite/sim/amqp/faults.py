"""Faults of clients, workers, RabbitMQ and their connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from requite.protocols.amqp import wire
from requite.protocols.amqp.properties import Properties, encode_properties
from requite.protocols.amqp.topology import CONTROL_EXCHANGE, REPLY_QUEUE_PREFIX
from requite.sim.amqp.parties import AmqpCast
from requite.sim.amqp.store import POOL
from requite.sim.kernel.fault_injection import FaultAction, FaultInjector, choose, spare
from requite.sim.kernel.faults import Fault, FaultKind
from requite.sim.rabbitmq.server import Server

_CODES: Final = ((541, "INTERNAL_ERROR"), (406, "PRECONDITION_FAILED - consumer ack timed out"))
_GARBAGE: Final = 12
_HEADERS: Final = (
    wire.STATUS,
    wire.PARTIAL,
    wire.CONTROL,
    wire.IDEMPOTENCY_KEY,
    wire.DELIVERY_COUNT,
)
_MADE_AGAIN_S: Final = 0.5


class AmqpFaults(FaultInjector):
    """Performs faults upon clients, workers and RabbitMQ."""

    _cast: AmqpCast

    def __init__(self, cast: AmqpCast) -> None:
        self._knobs = cast.knobs
        self._rng = cast.world.rng("garbage")
        super().__init__(cast)

    def actions(self) -> Mapping[str, FaultAction]:
        """Return the faults of the cast, of RabbitMQ, and garbage."""
        return {
            **super().actions(),
            FaultKind.CLOSE_CHANNEL: self._close_channel,
            FaultKind.CLOSE_CONNECTION: self._close_connection,
            FaultKind.DELETE_QUEUE: self._delete_queue,
            FaultKind.DELETE_REPLIES: self._delete_replies,
            FaultKind.BLOCK: self._block,
            FaultKind.REFUSE: self._refuse,
            FaultKind.GARBAGE: self._publish_garbage,
        }

    def end(self) -> None:
        """End all faults; declare deleted queues again."""
        super().end()
        self._perform(Server.unblock)
        self._perform(_accept)
        for service in self._knobs.services:
            self._make_again(service)

    def _perform(self, act: Callable[..., None], *args: Any) -> None:
        """Call `act` in RabbitMQ, if it runs."""
        rabbit = self._cast.rabbit
        if rabbit.alive:
            rabbit.later(0.0, lambda: rabbit.perform(lambda: act(rabbit.hub, *args)))

    # --- faults of RabbitMQ -----------------------------------------------------------------------
    def _close_channel(self, fault: Fault) -> None:
        self._perform(_close_channel, fault.lot)

    def _close_connection(self, fault: Fault) -> None:
        self._perform(_close_connection, fault.lot)

    def _delete_queue(self, fault: Fault) -> None:
        service = choose(self._knobs.services, fault.lot)
        self._perform(Server.delete, self._cast.store.queue_of(service))
        self._world.after(_MADE_AGAIN_S, self._make_again, service)

    def _make_again(self, service: str) -> None:
        store = self._cast.store
        if store.queue_of(service) not in store.queues:
            store.declare_service_queue(service)

    def _delete_replies(self, fault: Fault) -> None:
        names = [n for n in self._cast.store.queues if n.startswith(REPLY_QUEUE_PREFIX)]
        if names:
            self._perform(Server.delete, choose(names, fault.lot))

    def _block(self, fault: Fault) -> None:
        self._perform(Server.block)
        self._world.after(fault.duration_s, self._perform, Server.unblock)

    def _refuse(self, fault: Fault) -> None:
        self._perform(_refuse)
        self._world.after(fault.duration_s, self._perform, _accept)

    def _publish_garbage(self, _fault: Fault) -> None:
        rng = self._rng
        store = self._cast.store
        control = POOL.control_exchange if self._knobs.pool else CONTROL_EXCHANGE
        for _ in range(rng.randint(1, _GARBAGE)):
            body = rng.randbytes(rng.choice((0, 3, 200)))
            header = _garbage(rng, body)
            service = rng.choice(self._knobs.services)
            if rng.random() < 0.2 and control in store.exchanges:
                self._perform(_publish, service, header, body, control)
                continue
            names = [*store.queues, store.queue_of(service)]
            self._perform(_publish, rng.choice(names), header, body)


def _close_channel(server: Server, lot: float) -> None:
    channels = [
        (session, channel)
        for session in server.sessions.values()
        for channel in session.channels.values()
        if not channel.is_closing
    ]
    if channels:
        session, channel = choose(channels, lot)
        server.close_channel(session, channel, *choose(_CODES, spare(lot)))


def _close_connection(server: Server, lot: float) -> None:
    sessions = list(server.sessions.values())
    if sessions:
        text = "CONNECTION_FORCED - Closed via management plugin"
        server.close_connection(choose(sessions, lot), 320, text)


def _refuse(server: Server) -> None:
    server.publishing.refuses = True


def _accept(server: Server) -> None:
    server.publishing.refuses = False


def _publish(server: Server, *message: Any) -> None:
    server.publishing.inject(*message)


def _garbage(rng: Random, body: bytes) -> bytes:
    """Draw a content header with invalid or unexpected properties."""
    names = ("", "00ffffff00000001", "ffffffffffffffff", "0" * 15 + "x", "é")
    headers: dict[str, Any] = {}
    for name in _HEADERS:
        if rng.random() < 0.3:
            headers[name] = rng.choice(("ok", "", "cancel", 0, 1 << 40, -1, True, None, [1]))
    properties = Properties(
        rng.choice(names),
        rng.choice(("", "", "nowhere", "amq.rabbitmq.reply-to")),
        rng.choice(("", "00" * 16, "zz" * 16)),
        rng.choice(("", "", "1000", "-1", "soon")),
        headers,
    )
    header = encode_properties(properties, len(body))
    if rng.random() < 0.3:  # all property flags, then random bytes or none
        return header[:12] + b"\xff\xfc" + rng.randbytes(rng.choice((0, 8, 40)))
    return header
