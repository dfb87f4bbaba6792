"""A model of RabbitMQ that speaks AMQP 0.9.1, as an engine: what a client may ask, and gets.

It is strict: whatever AMQP forbids ends the channel or the connection, and checkers are told
(`mistaken`), for requite's engines never do such a thing.

Sources: AMQP 0.9.1; RabbitMQ's documentation of confirms, consumer prefetch, quorum queues, direct
reply-to, heartbeats and blocked connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from requite.engine import (
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
from requite.protocols.amqp.properties import Properties, encode_properties
from requite.protocols.amqp.topology import DIRECT_REPLY_TO
from requite.sim.amqp import speech
from requite.sim.amqp.knobs import AmqpKnobs
from requite.sim.amqp.letter import Letter, letter_of
from requite.sim.amqp.sessions import Channel, Holding, Session
from requite.sim.amqp.store import HeldQueue, Store
from requite.sim.rabbitmq.message import Entry
from requite.sim.rabbitmq.queue import Consumer

_BATCH_S: Final = 0.0005  # confirms of so much time go together
_NOT_FOUND, _LOCKED, _PRECONDITION = 404, 405, 406
_COMMAND_INVALID, _CHANNEL_ERROR, _NOT_ALLOWED = 503, 504, 530
_INTERNAL, _FORCED = 541, 320


class Do(NamedTuple):
    """An input: do something that was put off."""

    act: Callable[[], None]


class Refusal(Exception):
    """A channel, or with `is_hard` the connection, is closed. `is_mistake`: nobody who keeps to
    AMQP asks for that."""

    def __init__(
        self, code: int, text: str, *, is_hard: bool = False, is_mistake: bool = False
    ) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text
        self.is_hard = is_hard
        self.is_mistake = is_mistake


class Server:
    """RabbitMQ, in one life. `later` puts something off; `tell` tells checkers."""

    def __init__(
        self,
        store: Store,
        knobs: AmqpKnobs,
        rng: Random,
        later: Callable[[float, Callable[[], None]], None],
        tell: Callable[..., None],
    ) -> None:
        self.store = store
        self.sessions: dict[Any, Session] = {}
        self.is_blocked = False
        self.refuses = False
        self._knobs = knobs
        self._rng = rng
        self._later = later
        self._tell = tell
        self._now = 0.0
        self._out: list[Effect] = []
        self._heartbeat_s = heartbeat_s(knobs)
        self._looks_at = 0.0
        self._direct: dict[str, tuple[Session, Channel, str]] = {}  # who takes direct replies
        self._serial = 0
        self._inputs: dict[type, Callable[[Any], None]] = {
            PeerJoined: self._joined,
            PeerLost: lambda event: self._lost(event.peer),
            Received: self._received,
            Wake: lambda _event: self._woken(),
            Do: lambda event: event.act(),
            PeerBlocked: lambda _event: None,
            PeerWritable: lambda _event: None,
            Drain: lambda _event: self._out.append(Stopped()),
        }
        self._methods: dict[bytes, Callable[[Session, Channel, Message], None]] = {
            methods.EXCHANGE_DECLARE: self._declare_exchange,
            methods.QUEUE_DECLARE: self._declare_queue,
            methods.QUEUE_BIND: self._bind,
            methods.BASIC_QOS: self._qos,
            methods.BASIC_CONSUME: self._consume,
            methods.BASIC_CANCEL: self._cancel,
            methods.BASIC_PUBLISH: self._publish,
            methods.BASIC_ACK: self._settle,
            methods.BASIC_REJECT: self._settle,
            methods.CONFIRM_SELECT: self._select_confirms,
        }

    # --- the engine's contract --------------------------------------------------------------------
    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`."""
        self._now = now
        for event in events:
            self._inputs[event.__class__](event)
            if self.store.dead:
                self._later(0.0, self._answer_dead)
        out, self._out = self._out, []
        return out

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        return self._looks_at

    def snapshot(self) -> int:
        """Return how many connections there are."""
        return len(self.sessions)

    # --- connections ------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined) -> None:
        self.sessions[event.peer] = Session(event.peer, self._now)
        if self.is_blocked:
            self._send(self.sessions[event.peer], CONNECTION, speech.blocked("low on memory"))

    def _lost(self, peer: Any) -> None:
        session = self.sessions.pop(peer, None)
        if session is None:
            return
        for channel in list(session.channels.values()):
            self._release(channel)
        for name in [n for n, q in self.store.queues.items() if q.session is session]:
            self._delete(name)

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
                text = f"{speech.NAMES[method]} on a channel that is not open"
                raise Refusal(_CHANNEL_ERROR, text, is_hard=True, is_mistake=True)
            elif method == methods.CHANNEL_CLOSE_OK:
                self._close_ok(session, channel)
            elif not channel.is_closing:
                self._methods[method](session, channel, message)
        except Refusal as refusal:
            self._refuse(session, id_, refusal, message[1])

    def _refuse(self, session: Session, id_: bytes, refusal: Refusal, method: bytes) -> None:
        if refusal.is_mistake:
            self._tell("mistaken", session.name, str(refusal))
        channel = session.channels.get(id_)
        if refusal.is_hard or channel is None:
            self.close_connection(session, refusal.code, refusal.text)
        else:
            self.close_channel(session, channel, refusal.code, refusal.text, method)

    def close_connection(self, session: Session, code: int, text: str) -> None:
        """Close a connection, saying why."""
        method = speech.close(methods.CONNECTION_CLOSE, code, text)
        self._send(session, CONNECTION, method)
        self._out.append(Disconnect(session.peer, text))
        self._lost(session.peer)

    def close_channel(
        self,
        session: Session,
        channel: Channel,
        code: int,
        text: str,
        method: bytes = b"\0\0\0\0",
    ) -> None:
        """Close a channel, saying why; what comes until the client agrees is ignored."""
        self._release(channel)
        channel.is_closing = True
        self._send(session, channel.id, speech.close(methods.CHANNEL_CLOSE, code, text, method))

    def _release(self, channel: Channel) -> None:
        """Take back what a channel holds."""
        channel.held.clear()
        if channel.direct:
            self._direct.pop(channel.direct, None)
        for queue, consumer in list(channel.consumers.values()):
            self._lose(queue, consumer)
        channel.consumers.clear()

    def _lose(self, queue: HeldQueue, consumer: Consumer) -> None:
        queue.lose(consumer)
        is_unused = queue.owner is not None and not queue.consumers
        if is_unused and self.store.queues.get(queue.name) is queue:
            self._delete(queue.name)

    # --- channels ---------------------------------------------------------------------------------
    def _open(self, session: Session, id_: bytes, channel: Channel | None) -> None:
        if channel is not None:
            text = "a second channel.open"
            raise Refusal(_CHANNEL_ERROR, text, is_hard=True, is_mistake=True)
        session.channels[id_] = Channel(id_)
        self._send(session, id_, speech.channel_opened())

    def _close_ok(self, session: Session, channel: Channel) -> None:
        if not channel.is_closing:
            text = "channel.close-ok where nothing was closed"
            raise Refusal(_COMMAND_INVALID, text, is_hard=True, is_mistake=True)
        del session.channels[channel.id]

    def _qos(self, session: Session, channel: Channel, message: Message) -> None:
        channel.prefetch = speech.read_qos(message[1])
        self._send(session, channel.id, methods.BASIC_QOS_OK)

    def _select_confirms(self, session: Session, channel: Channel, _message: Message) -> None:
        channel.confirms = True
        self._send(session, channel.id, methods.CONFIRM_SELECT_OK)

    # --- exchanges and queues ---------------------------------------------------------------------
    def _declare_exchange(self, session: Session, channel: Channel, message: Message) -> None:
        name, kind, passive = speech.read_exchange_declare(message[1])
        if name not in self.store.exchanges:
            if passive:
                raise Refusal(_NOT_FOUND, f"NOT_FOUND - no exchange '{name}'")
            self.store.exchanges.declare(name, kind)
        self._send(session, channel.id, methods.EXCHANGE_DECLARE_OK)

    def _declare_queue(self, session: Session, channel: Channel, message: Message) -> None:
        asked = speech.read_queue_declare(message[1])
        name = asked.queue or self._new_name()
        queue = self.store.queues.get(name)
        if queue is None:
            if asked.passive:
                raise Refusal(_NOT_FOUND, f"NOT_FOUND - no queue '{name}'")
            owner = session if asked.exclusive else None
            queue = self.store.make(name, asked.arguments, owner, session)
        self._check_owner(queue, session)
        if not asked.passive and queue.arguments != asked.arguments:
            raise Refusal(_PRECONDITION, "PRECONDITION_FAILED - inequivalent arg")
        channel.last_queue = name
        counts = len(queue.ready), len(queue.consumers)
        self._send(session, channel.id, speech.declared(name, *counts))

    def _new_name(self) -> str:
        self._serial += 1
        return f"amq.gen-{self._serial}"

    def _check_owner(self, queue: HeldQueue, session: Session) -> None:
        if queue.session is not None and queue.session is not session:
            raise Refusal(_LOCKED, f"RESOURCE_LOCKED - '{queue.name}'", is_mistake=True)

    def _bind(self, session: Session, channel: Channel, message: Message) -> None:
        queue, exchange, key = speech.read_bind(message[1])
        if exchange not in self.store.exchanges:
            raise Refusal(_NOT_FOUND, f"NOT_FOUND - no exchange '{exchange}'")
        self.store.exchanges.bind(exchange, queue or channel.last_queue, key)
        self._send(session, channel.id, methods.QUEUE_BIND_OK)

    def delete(self, name: str) -> None:
        """Let somebody delete a queue."""
        if name in self.store.queues:
            self._delete(name)

    def _delete(self, name: str) -> None:
        queue = self.store.drop(name)
        consumers, queue.consumers = queue.consumers, []  # what they hold goes nowhere any more
        for consumer in consumers:
            if consumer.takes_more:
                consumer.cancelled()

    # --- consumers --------------------------------------------------------------------------------
    def _consume(self, session: Session, channel: Channel, message: Message) -> None:
        asked = speech.read_consume(message[1])
        if asked.queue == DIRECT_REPLY_TO:
            self._take_direct(session, channel, asked)
            return
        name = asked.queue or channel.last_queue
        queue = self.store.queues.get(name)
        if queue is None:
            raise Refusal(_NOT_FOUND, f"NOT_FOUND - no queue '{name}'")
        self._check_owner(queue, session)
        if asked.tag in channel.consumers:
            text = "NOT_ALLOWED - attempt to reuse consumer tag"
            raise Refusal(_NOT_ALLOWED, text, is_hard=True, is_mistake=True)
        age_s = self.store.world.now - queue.born_at
        if queue.is_quorum and queue.maker is not session and age_s < self._knobs.birth_s:
            raise Refusal(_INTERNAL, "INTERNAL_ERROR", is_hard=True)
        self._send(session, channel.id, speech.consuming(asked.tag))
        self._add_consumer(session, channel, queue, asked)

    def _add_consumer(
        self, session: Session, channel: Channel, queue: HeldQueue, asked: speech.Consume
    ) -> None:
        def deliver(queue_tag: int, entry: Entry) -> None:
            self._deliver(session, channel, asked, Holding(queue, consumer, queue_tag), entry)

        def cancelled() -> None:
            channel.consumers.pop(asked.tag, None)
            self._send(session, channel.id, speech.cancelled(asked.tag, by_us=True))

        prefetch = channel.prefetch or 1 << 30
        consumer = Consumer(_AtOnce(), 1 << 30 if asked.no_ack else prefetch, deliver, cancelled)
        channel.consumers[asked.tag] = queue, consumer
        queue.consume(consumer)

    def _take_direct(self, session: Session, channel: Channel, asked: speech.Consume) -> None:
        if not asked.no_ack or channel.direct:
            text = "PRECONDITION_FAILED - fast reply consumer"
            raise Refusal(_PRECONDITION, text, is_mistake=True)
        channel.direct = f"{DIRECT_REPLY_TO}.{self._new_name()}"
        self._direct[channel.direct] = session, channel, asked.tag
        self._send(session, channel.id, speech.consuming(asked.tag))

    def _cancel(self, session: Session, channel: Channel, message: Message) -> None:
        tag = speech.read_cancel(message[1])
        found = channel.consumers.get(tag)
        if found is not None:
            found[0].stop(found[1])
        self._send(session, channel.id, speech.cancelled(tag, by_us=False))

    def _deliver(
        self,
        session: Session,
        channel: Channel,
        asked: speech.Consume,
        holding: Holding,
        entry: Entry,
    ) -> None:
        letter = entry.message
        assert isinstance(letter, Letter)
        channel.tag += 1
        method = speech.deliver(
            asked.tag, channel.tag, entry.returns > 0, letter.exchange, letter.key
        )
        if holding.queue.is_quorum and entry.returns:
            letter = letter.with_header(wire.DELIVERY_COUNT, entry.returns)
        self._send(session, channel.id, method, letter.header, letter.body)
        if asked.no_ack:
            holding.queue.acknowledge(holding.consumer, holding.queue_tag)
        else:
            channel.held[channel.tag] = holding

    def _settle(self, session: Session, channel: Channel, message: Message) -> None:
        asked = speech.read_settle(message[1])
        holding = channel.held.pop(asked.tag, None)
        if holding is None:
            text = f"PRECONDITION_FAILED - unknown delivery tag {asked.tag}"
            raise Refusal(_PRECONDITION, text, is_mistake=True)
        entry = holding.consumer.held.get(holding.queue_tag)
        if self.store.queues.get(holding.queue.name) is not holding.queue or entry is None:
            return  # it went with its queue
        if asked.is_ack:
            self._check_answered(session, channel, entry.message)
            holding.queue.acknowledge(holding.consumer, holding.queue_tag)
        else:
            holding.queue.reject(holding.consumer, holding.queue_tag, requeue=asked.requeue)

    def _check_answered(self, session: Session, channel: Channel, letter: Any) -> None:
        properties = letter.properties
        if properties is None or not properties.reply_to:
            return
        name = properties.message_id, properties.correlation_id
        answer = properties.reply_to, properties.correlation_id
        if channel.answered[answer]:
            channel.answered[answer] -= 1
        elif name not in self.store.recalled:
            self._tell("acked_unanswered", session.name, letter)

    # --- publishing -------------------------------------------------------------------------------
    def _publish(self, session: Session, channel: Channel, message: Message) -> None:
        asked = speech.read_publish(message[1])
        if asked.exchange and asked.exchange not in self.store.exchanges:
            raise Refusal(_NOT_FOUND, f"NOT_FOUND - no exchange '{asked.exchange}'")
        self._push_back(session)
        letter = letter_of(asked.exchange, asked.key, message[2], message[3], channel.direct)
        number = channel.publish()
        self._note_answer(channel, number, letter)
        if asked.key in self._direct:
            self._reply_directly(letter)
            self._confirm(session, channel, number, True)
            return
        names = self.store.route(asked.exchange, asked.key)
        if not names and asked.mandatory:
            back = speech.returned(asked.exchange, asked.key)
            self._send(session, channel.id, back, message[2], message[3])
        if any(self.store.queues[name].is_durable for name in names):
            self._write(session, channel, number, names, letter)
        else:
            self.store.put(names, letter)
            self._confirm(session, channel, number, True)

    def _write(
        self, session: Session, channel: Channel, number: int, names: list[str], letter: Letter
    ) -> None:
        """Have a message on the disk before it counts."""
        if self.refuses:
            self._confirm(session, channel, number, False)
            return
        serial = self.store.begin(names, letter)

        def commit() -> None:
            self.store.commit(serial)
            self._confirm(session, channel, number, True)

        self._later(self._knobs.sync_s * self._rng.random(), commit)

    def _confirm(self, session: Session, channel: Channel, number: int, is_taken: bool) -> None:
        channel.settle(number, is_taken)
        self._later(_BATCH_S, lambda: self._confirm_all(session, channel))

    def _confirm_all(self, session: Session, channel: Channel) -> None:
        due = channel.confirms_due()
        is_open = session.channels.get(channel.id) is channel and not channel.is_closing
        if not (is_open and channel.confirms and session.peer in self.sessions):
            return
        for tag, multiple, is_taken in due:
            confirm = speech.confirmed(tag, multiple=multiple, is_taken=is_taken)
            self._send(session, channel.id, confirm)

    def _note_answer(self, channel: Channel, number: int, letter: Letter) -> None:
        properties = letter.properties
        if properties is None:
            return
        if wire.STATUS in properties.headers:
            channel.answers[number] = letter.key, properties.correlation_id
        if wire.CONTROL in properties.headers:
            self.store.recalled[properties.message_id, properties.correlation_id] = None

    def _reply_directly(self, letter: Letter) -> None:
        session, channel, tag = self._direct[letter.key]
        channel.tag += 1
        method = speech.deliver(tag, channel.tag, False, "", letter.key)
        self._send(session, channel.id, method, letter.header, letter.body)

    def publish(self, key: str, header: bytes, body: bytes, exchange: str = "") -> None:
        """Let an intruder publish something."""
        letter = letter_of(exchange, key, header, body, "")
        self._note_answer(Channel(b"\0\1"), 0, letter)
        if key in self._direct:
            self._reply_directly(letter)
        else:
            self.store.put(self.store.route(exchange, key), letter)

    def _answer_dead(self) -> None:
        """Do what the manager of a pool does about dead letters."""
        dead, self.store.dead = self.store.dead, []
        for letter, reason in dead:
            properties = Properties(letter.correlation_id or "", headers={wire.STATUS: reason})
            self.publish(letter.reply_to or "", encode_properties(properties, 0), b"")

    # --- low on memory ----------------------------------------------------------------------------
    def block(self) -> None:
        """Take no more messages."""
        self.is_blocked = True
        for session in self.sessions.values():
            self._send(session, CONNECTION, speech.blocked("low on memory"))
            if session.publishes:
                self._push_back(session)

    def unblock(self) -> None:
        """Take them again."""
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
        """Be heard, give up who is silent, and let what is due expire."""
        if self._now < self._looks_at:
            return
        self._looks_at = self._now + self._heartbeat_s / 4
        for queue in list(self.store.queues.values()):
            queue.look()
        for session in list(self.sessions.values()):
            silent_s = self._now - session.heard_at
            if silent_s > 2 * self._heartbeat_s and not session.is_paused:
                self._tell("silent", session.name, silent_s)
                self._out.append(Disconnect(session.peer, "missed heartbeats"))
                self._lost(session.peer)
            elif self._now - session.spoke_at >= self._heartbeat_s / 2:
                session.spoke_at = self._now
                self._out.append(Send(session.peer, ()))

    def _send(self, session: Session, channel: bytes, *parts: bytes) -> None:
        if session.peer in self.sessions:
            session.spoke_at = self._now
            self._out.append(Send(session.peer, (channel, *parts)))


class _AtOnce:
    """The way of a delivery inside RabbitMQ, which takes no time."""

    def after_latency(self, act: Callable[..., None], *args: Any) -> None:
        """Let it go."""
        act(*args)


def heartbeat_s(knobs: AmqpKnobs) -> int:
    """Return the timeout that clients and workers announce, and RabbitMQ takes."""
    return max(1, round(2 * knobs.interval_s))
