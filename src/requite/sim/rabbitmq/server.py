"""A model of RabbitMQ as an engine: it handles the AMQP 0.9.1 methods of its clients.

It is strict: what AMQP forbids closes the channel or the connection, and is reported to the
checkers (`protocol_error`), since requite's engines must never send it.

Sources: AMQP 0.9.1; RabbitMQ's documentation of consumer prefetch, quorum queues, direct reply-to,
heartbeats and blocked connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from random import Random
from typing import Any, NamedTuple

from requite.engine import (
    Cause,
    Disconnect,
    Drain,
    Effect,
    Input,
    Message,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    ResumeReading,
    Send,
    Stopped,
    StopReading,
    Wake,
)
from requite.protocols.amqp import methods, wire
from requite.protocols.amqp.methods import CONNECTION
from requite.protocols.amqp.topology import DIRECT_REPLY_TO
from requite.sim.rabbitmq import server_methods
from requite.sim.rabbitmq.publishing import Publishing
from requite.sim.rabbitmq.queue import Consumer, Entry, Queue
from requite.sim.rabbitmq.sessions import Channel, Session, UnackedDelivery
from requite.sim.rabbitmq.store import Store

_REFUSED, _NOT_FOUND, _LOCKED, _PRECONDITION = 403, 404, 405, 406
_COMMAND_INVALID, _CHANNEL_ERROR, _NOT_ALLOWED = 503, 504, 530
_INTERNAL, _FORCED = 541, 320


class ServerSettings(NamedTuple):
    """`heartbeat_s`: the heartbeat timeout that it proposes. `sync_s`: the longest time until a
    message is on disk. `birth_s`: for this long after its declaration a queue may refuse consumers.
    `frame_size`: the largest frame, which splits longer bodies. `ack_timeout_s`: a channel with an
    older unacknowledged delivery is closed (`consumer_timeout`)."""

    heartbeat_s: int
    sync_s: float
    birth_s: float = 0.0
    frame_size: int = 131_072
    ack_timeout_s: float = inf


class Deferred(NamedTuple):
    """An input: call a function that was deferred."""

    act: Callable[[], None]


class Refusal(Exception):
    """An error that closes a channel, or with `is_hard` the connection. `is_client_error`: the
    client violated AMQP."""

    def __init__(
        self, code: int, text: str, *, is_hard: bool = False, is_client_error: bool = False
    ) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text
        self.is_hard = is_hard
        self.is_client_error = is_client_error


class Server:
    """RabbitMQ, from one start to its end. `later` defers a call; `tell` notifies the checkers."""

    def __init__(
        self,
        store: Store,
        settings: ServerSettings,
        rng: Random,
        later: Callable[[float, Callable[[], None]], None],
        tell: Callable[..., None],
    ) -> None:
        self.store = store
        self.sessions: dict[Any, Session] = {}
        self.is_blocked = False
        self.publishing = Publishing(store, settings.sync_s, rng, later, self._send)
        self._settings = settings
        self._later = later
        self._tell = tell
        self._now = 0.0
        self._handles = False  # whether it is handling inputs
        self._out: list[Effect] = []
        self._heartbeat_s = settings.heartbeat_s
        self._check_at = 0.0
        self._serial = 0
        self._inputs: dict[type, Callable[[Any], None]] = {
            PeerJoined: self._joined,
            PeerLost: lambda event: self._lost(event.peer),
            Received: self._received,
            Wake: lambda _event: self._woken(),
            Deferred: lambda event: event.act(),
            PeerBlocked: lambda _event: None,
            PeerWritable: lambda _event: None,
            Drain: lambda _event: self._out.append(Stopped()),
        }
        self._methods: dict[bytes, Callable[[Session, Channel, Message], None]] = {
            methods.EXCHANGE_DECLARE: self._declare_exchange,
            methods.QUEUE_DECLARE: self._declare_queue,
            methods.QUEUE_BIND: self._bind,
            methods.QUEUE_UNBIND: self._unbind,
            methods.QUEUE_DELETE: self._delete_queue,
            methods.CHANNEL_CLOSE: self._close,
            methods.BASIC_QOS: self._qos,
            methods.BASIC_CONSUME: self._consume,
            methods.BASIC_CANCEL: self._cancel,
            methods.BASIC_PUBLISH: self._publish,
            methods.BASIC_ACK: self._settle,
            methods.BASIC_REJECT: self._settle,
            methods.CONFIRM_SELECT: self._select_confirms,
        }

    # --- the engine -------------------------------------------------------------------------------
    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`."""
        self._now = now
        self._handles = True
        for event in events:
            self._inputs[event.__class__](event)
            if self.store.dead_letters:
                self._later(0.0, self.publishing.answer_dead_letters)
        self._handles = False
        out, self._out = self._out, []
        return out

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        return self._check_at

    def snapshot(self) -> int:
        """Return the number of connections."""
        return len(self.sessions)

    # --- connections ------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined) -> None:
        self.sessions[event.peer] = Session(event.peer, self._now)
        if self.is_blocked:
            self._send(
                self.sessions[event.peer], CONNECTION, server_methods.blocked("low on memory")
            )

    def _lost(self, peer: Any) -> None:
        session = self.sessions.pop(peer, None)
        if session is None:
            return
        for channel in list(session.channels.values()):
            self._release(channel)
        for name in [n for n, q in self.store.queues.items() if q.session is session]:
            self.delete(name)

    def _received(self, event: Received) -> None:
        session = self.sessions.get(event.peer)
        if session is None:
            return
        session.heard_at = self._now
        for message in event.messages:
            if message and event.peer in self.sessions:
                self._take(session, message)

    def _take(self, session: Session, message: Message) -> None:
        id_, method = message[0], message[1][:4]
        channel = session.channels.get(id_)
        try:
            if method == methods.CHANNEL_OPEN:
                self._open(session, id_, channel)
            elif channel is None:
                text = f"{server_methods.NAMES[method]} on a channel that is not open"
                raise Refusal(_CHANNEL_ERROR, text, is_hard=True, is_client_error=True)
            elif method == methods.CHANNEL_CLOSE_OK:
                self._close_ok(session, channel)
            elif not channel.is_closing:
                self._methods[method](session, channel, message)
        except Refusal as refusal:
            self._refuse(session, id_, refusal, message[1])

    def _refuse(self, session: Session, id_: bytes, refusal: Refusal, method: bytes) -> None:
        if refusal.is_client_error:
            self._tell("protocol_error", session.name, str(refusal))
        channel = session.channels.get(id_)
        if refusal.is_hard or channel is None:
            self.close_connection(session, refusal.code, refusal.text)
        else:
            self.close_channel(session, channel, refusal.code, refusal.text, method)

    def close_connection(self, session: Session, code: int, text: str) -> None:
        """Close a connection with a reason."""
        method = server_methods.close(methods.CONNECTION_CLOSE, code, text)
        self._send(session, CONNECTION, method)
        self._out.append(Disconnect(session.peer, text, Cause.FAULTY))
        self._lost(session.peer)

    def close_channel(
        self,
        session: Session,
        channel: Channel,
        code: int,
        text: str,
        method: bytes = b"\0\0\0\0",
    ) -> None:
        """Close a channel with a reason; ignore its methods until the client confirms."""
        self._release(channel)
        channel.is_closing = True
        self._send(
            session, channel.id, server_methods.close(methods.CHANNEL_CLOSE, code, text, method)
        )

    def _release(self, channel: Channel) -> None:
        """Remove the consumers of a channel; their queues requeue its unacknowledged deliveries."""
        channel.held.clear()
        self.publishing.remove_direct_consumer(channel)
        for queue, consumer in list(channel.consumers.values()):
            self._lose(queue, consumer)
        channel.consumers.clear()

    def _lose(self, queue: Queue, consumer: Consumer) -> None:
        queue.remove_consumer(consumer)
        is_unused = queue.session is not None and not queue.consumers
        if is_unused and self.store.queues.get(queue.name) is queue:
            self.delete(queue.name)

    # --- channels ---------------------------------------------------------------------------------
    def _open(self, session: Session, id_: bytes, channel: Channel | None) -> None:
        if channel is not None:
            text = "a second channel.open"
            raise Refusal(_CHANNEL_ERROR, text, is_hard=True, is_client_error=True)
        session.channels[id_] = Channel(id_)
        self._send(session, id_, server_methods.channel_opened())

    def _close_ok(self, session: Session, channel: Channel) -> None:
        if not channel.is_closing:
            text = "channel.close-ok where nothing was closed"
            raise Refusal(_COMMAND_INVALID, text, is_hard=True, is_client_error=True)
        del session.channels[channel.id]

    def _close(self, session: Session, channel: Channel, _message: Message) -> None:
        self._release(channel)
        del session.channels[channel.id]
        self._send(session, channel.id, methods.CHANNEL_CLOSE_OK)

    def _qos(self, session: Session, channel: Channel, message: Message) -> None:
        channel.prefetch = server_methods.read_qos(message[1])
        self._send(session, channel.id, methods.BASIC_QOS_OK)

    def _select_confirms(self, session: Session, channel: Channel, _message: Message) -> None:
        channel.confirms = True
        self._send(session, channel.id, methods.CONFIRM_SELECT_OK)

    # --- exchanges and queues ---------------------------------------------------------------------
    def _declare_exchange(self, session: Session, channel: Channel, message: Message) -> None:
        asked = server_methods.read_exchange_declare(message[1])
        if asked.exchange not in self.store.exchanges:
            if asked.passive:
                raise Refusal(_NOT_FOUND, f"NOT_FOUND - no exchange '{asked.exchange}'")
            self.store.exchanges.declare(asked.exchange, asked.kind, asked.arguments)
        self._send(session, channel.id, methods.EXCHANGE_DECLARE_OK)

    def _declare_queue(self, session: Session, channel: Channel, message: Message) -> None:
        asked = server_methods.read_queue_declare(message[1])
        name = asked.queue or self._new_name()
        self._check_access(name)
        queue = self.store.queues.get(name)
        if queue is None:
            if asked.passive:
                raise Refusal(_NOT_FOUND, f"NOT_FOUND - no queue '{name}'")
            owner = session if asked.exclusive else None
            queue = self.store.declare(name, asked.arguments, owner, session)
        self._check_owner(queue, session)
        if not asked.passive and queue.arguments != asked.arguments:
            raise Refusal(_PRECONDITION, "PRECONDITION_FAILED - inequivalent arg")
        channel.last_queue = name
        counts = len(queue.ready), queue.active_consumers
        self._send(session, channel.id, server_methods.declared(name, *counts))

    def _new_name(self) -> str:
        self._serial += 1
        return f"amq.gen-{self._serial}"

    def _check_owner(self, queue: Queue, session: Session) -> None:
        if queue.session is not None and queue.session is not session:
            raise Refusal(_LOCKED, f"RESOURCE_LOCKED - '{queue.name}'", is_client_error=True)

    def _check_access(self, name: str) -> None:
        if name in self.store.forbidden:
            raise Refusal(_REFUSED, f"ACCESS_REFUSED - access to queue '{name}' refused")

    def _named(self, channel: Channel, name: str) -> Queue:
        """Return a queue by its name, or the queue that the channel declared last."""
        name = name or channel.last_queue
        self._check_access(name)
        if name not in self.store.queues:
            raise Refusal(_NOT_FOUND, f"NOT_FOUND - no queue '{name}'")
        return self.store.queues[name]

    def _bind(self, session: Session, channel: Channel, message: Message) -> None:
        queue, exchange, key = server_methods.read_bind(message[1])
        if exchange not in self.store.exchanges:
            raise Refusal(_NOT_FOUND, f"NOT_FOUND - no exchange '{exchange}'")
        self.store.exchanges.bind(exchange, self._named(channel, queue).name, key)
        self._send(session, channel.id, methods.QUEUE_BIND_OK)

    def _unbind(self, session: Session, channel: Channel, message: Message) -> None:
        queue, exchange, key = server_methods.read_bind(message[1])
        self._check_access(queue)
        self.store.unbind(exchange, queue, key)
        self._send(session, channel.id, methods.QUEUE_UNBIND_OK)

    def _delete_queue(self, session: Session, channel: Channel, message: Message) -> None:
        queue = self._named(channel, server_methods.read_queue_delete(message[1]))
        self._check_owner(queue, session)
        self._send(session, channel.id, server_methods.deleted(len(queue.ready)))
        self.delete(queue.name)

    def delete(self, name: str) -> None:
        """Delete a queue, if it exists."""
        if name in self.store.queues:
            self.store.delete(name).close()

    # --- consumers --------------------------------------------------------------------------------
    def _consume(self, session: Session, channel: Channel, message: Message) -> None:
        asked = server_methods.read_consume(message[1])
        if asked.queue == DIRECT_REPLY_TO:
            self._consume_direct_replies(session, channel, asked)
            return
        queue = self._named(channel, asked.queue)
        self._check_owner(queue, session)
        if asked.tag in channel.consumers:
            text = "NOT_ALLOWED - attempt to reuse consumer tag"
            raise Refusal(_NOT_ALLOWED, text, is_hard=True, is_client_error=True)
        age_s = self.store.world.now - queue.declared_at
        if queue.is_quorum and queue.declared_by is not session and age_s < self._settings.birth_s:
            raise Refusal(_INTERNAL, "INTERNAL_ERROR", is_hard=True)
        self._add_consumer(session, channel, queue, asked)

    def _in_turn(self, act: Callable[..., None], *args: Any) -> None:
        """Call `act` for a consumer: now, or as an input of its own."""
        if self._handles:
            act(*args)
        else:
            self._later(0.0, lambda: act(*args))

    def _add_consumer(
        self, session: Session, channel: Channel, queue: Queue, asked: server_methods.Consume
    ) -> None:
        def deliver(queue_tag: int, entry: Entry) -> None:
            self._deliver(
                session,
                channel,
                asked,
                UnackedDelivery(queue, consumer, queue_tag, self._now),
                entry,
            )

        def cancelled() -> None:
            channel.consumers.pop(asked.tag, None)
            self._send(session, channel.id, server_methods.cancelled(asked.tag, by_us=True))

        prefetch = channel.prefetch or 1 << 30
        consumer = Consumer(
            self._in_turn,
            1 << 30 if asked.no_ack else prefetch,
            deliver,
            cancelled,
            asked.exclusive,
        )
        if not queue.admits(consumer):
            raise Refusal(_REFUSED, f"ACCESS_REFUSED - queue '{queue.name}' in exclusive use")
        channel.consumers[asked.tag] = queue, consumer
        self._send(session, channel.id, server_methods.consuming(asked.tag))
        queue.consume(consumer)

    def _consume_direct_replies(
        self, session: Session, channel: Channel, asked: server_methods.Consume
    ) -> None:
        if not asked.no_ack or channel.direct:
            text = "PRECONDITION_FAILED - fast reply consumer"
            raise Refusal(_PRECONDITION, text, is_client_error=True)
        channel.direct = f"{DIRECT_REPLY_TO}.{self._new_name()}"
        self.publishing.add_direct_consumer(session, channel, asked.tag)
        self._send(session, channel.id, server_methods.consuming(asked.tag))

    def _cancel(self, session: Session, channel: Channel, message: Message) -> None:
        tag = server_methods.read_cancel(message[1])
        found = channel.consumers.get(tag)
        if found is not None:
            found[0].cancel_consumer(found[1])
        self._send(session, channel.id, server_methods.cancelled(tag, by_us=False))

    def _deliver(
        self,
        session: Session,
        channel: Channel,
        asked: server_methods.Consume,
        delivery: UnackedDelivery,
        entry: Entry,
    ) -> None:
        published = entry.message
        channel.tag += 1
        method = server_methods.deliver(
            asked.tag, channel.tag, entry.delivery_count > 0, published.exchange, published.key
        )
        if delivery.queue.is_quorum and entry.delivery_count:
            published = published.with_header(wire.DELIVERY_COUNT, entry.delivery_count)
        self._send(session, channel.id, method, published.header, published.body)
        if asked.no_ack:
            delivery.queue.acknowledge(delivery.consumer, delivery.queue_tag)
        else:
            channel.held[channel.tag] = delivery

    def _settle(self, session: Session, channel: Channel, message: Message) -> None:
        asked = server_methods.read_settle(message[1])
        delivery = channel.held.pop(asked.tag, None)
        if delivery is None:
            text = f"PRECONDITION_FAILED - unknown delivery tag {asked.tag}"
            raise Refusal(_PRECONDITION, text, is_client_error=True)
        entry = delivery.consumer.held.get(delivery.queue_tag)
        if self.store.queues.get(delivery.queue.name) is not delivery.queue or entry is None:
            return  # its queue was deleted
        if asked.is_ack:
            self._check_answered(session, channel, entry.message)
            delivery.queue.acknowledge(delivery.consumer, delivery.queue_tag)
        else:
            delivery.queue.reject(delivery.consumer, delivery.queue_tag, requeue=asked.requeue)

    def _check_answered(self, session: Session, channel: Channel, published: Any) -> None:
        properties = published.properties
        if not properties.reply_to:
            return
        name = properties.message_id, properties.correlation_id
        answer = properties.reply_to, properties.correlation_id
        if channel.answered[answer]:
            channel.answered[answer] -= 1
        elif name not in self.store.cancelled:
            self._tell("acked_unanswered", session.name, published)

    # --- publishing -------------------------------------------------------------------------------
    def _publish(self, session: Session, channel: Channel, message: Message) -> None:
        asked = server_methods.read_publish(message[1])
        if asked.exchange and asked.exchange not in self.store.exchanges:
            raise Refusal(_NOT_FOUND, f"NOT_FOUND - no exchange '{asked.exchange}'")
        self._push_back(session)
        self.publishing.publish(session, channel, asked, message)

    # --- blocked connections ----------------------------------------------------------------------
    def block(self) -> None:
        """Stop accepting messages: RabbitMQ is low on memory."""
        self.is_blocked = True
        for session in self.sessions.values():
            self._send(session, CONNECTION, server_methods.blocked("low on memory"))
            if session.publishes:
                self._push_back(session)

    def unblock(self) -> None:
        """Accept messages again."""
        self.is_blocked = False
        for session in self.sessions.values():
            self._send(session, CONNECTION, methods.CONNECTION_UNBLOCKED)
            if session.is_paused:
                session.is_paused = False
                session.heard_at = self._now
                self._out.append(ResumeReading(session.peer))

    def _push_back(self, session: Session) -> None:
        session.publishes = True
        if self.is_blocked and not session.is_paused:
            session.is_paused = True
            self._out.append(StopReading(session.peer))

    # --- time -------------------------------------------------------------------------------------
    def _woken(self) -> None:
        """Send heartbeats, disconnect silent clients, close channels whose deliveries are not
        acknowledged in time, and expire messages."""
        if self._now < self._check_at:
            return
        self._check_at = self._now + self._heartbeat_s / 4
        for queue in list(self.store.queues.values()):
            queue.expire()
        for session in list(self.sessions.values()):
            silent_s = self._now - session.heard_at
            if silent_s > 2 * self._heartbeat_s and not session.is_paused:
                self._tell("silent", session.name, silent_s)
                self._out.append(Disconnect(session.peer, "missed heartbeats", Cause.SILENT))
                self._lost(session.peer)
            elif self._now - session.spoke_at >= self._heartbeat_s / 2:
                session.spoke_at = self._now
                self._out.append(Send(session.peer, ()))
            self._close_overdue_channels(session)

    def _close_overdue_channels(self, session: Session) -> None:
        since = self._now - self._settings.ack_timeout_s
        for channel in session.channels.values():
            if any(delivery.at < since for delivery in channel.held.values()):
                text = "PRECONDITION_FAILED - delivery acknowledgement timed out"
                self.close_channel(session, channel, _PRECONDITION, text)

    def _send(self, session: Session, channel: bytes, *parts: bytes) -> None:
        if session.peer in self.sessions:
            session.spoke_at = self._now
            self._out.append(Send(session.peer, (channel, *parts)))
