"""What the server does with published messages: routes and stores them, and confirms them.

A message to a consumer of direct replies is delivered at once. A message to a durable queue is
confirmed when it is on disk, any other at once.

Sources: RabbitMQ's documentation of publisher confirms and direct reply-to.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from requite.engine import Message
from requite.protocols.amqp import wire
from requite.protocols.amqp.properties import Properties, encode_properties
from requite.sim.rabbitmq import server_methods
from requite.sim.rabbitmq.published import PublishedMessage
from requite.sim.rabbitmq.server_methods import Publish
from requite.sim.rabbitmq.sessions import Channel, Session
from requite.sim.rabbitmq.store import Store

_BATCH_S: Final = 0.0005  # how long confirms are collected, to send them together


class Publishing:
    """Published messages, their confirms, and the consumers of direct replies.

    `sync_s`: the longest time until a message is on disk. `later` defers a call; `send` takes a
    session, a channel and the parts of a message. `refuses`: no message is written to disk now.
    """

    def __init__(
        self,
        store: Store,
        sync_s: float,
        rng: Random,
        later: Callable[[float, Callable[[], None]], None],
        send: Callable[..., None],
    ) -> None:
        self.refuses = False
        self._store = store
        self._sync_s = sync_s
        self._rng = rng
        self._later = later
        self._send = send
        self._direct: dict[str, tuple[Session, Channel, str]] = {}  # consumers of direct replies

    # --- messages ---------------------------------------------------------------------------------
    def publish(self, session: Session, channel: Channel, asked: Publish, message: Message) -> None:
        """Publish a message of a client to an exchange that exists."""
        published = self._store.received(
            asked.exchange, asked.key, message[2], message[3], channel.direct
        )
        number = channel.publish()
        self._note_answer(channel, number, published)
        if asked.key in self._direct:
            self._reply_directly(published)
            self._confirm(session, channel, number, True)
            return
        names = self._store.route(asked.exchange, asked.key)
        if not names and asked.mandatory:
            self._store.unroutable(published)
            back = server_methods.returned(asked.exchange, asked.key)
            self._send(session, channel.id, back, message[2], message[3])
        if any(self._store.queues[name].is_durable for name in names):
            self._write(session, channel, number, names, published)
        else:
            self._store.put(names, published)
            self._confirm(session, channel, number, True)

    def inject(self, key: str, header: bytes, body: bytes, exchange: str = "") -> None:
        """Publish a message without a client: that of an intruder, or of a manager."""
        published = self._store.received(exchange, key, header, body, "")
        self._note_answer(Channel(b"\0\1"), 0, published)
        if key in self._direct:
            self._reply_directly(published)
        else:
            self._store.put(self._store.route(exchange, key), published)

    def answer_dead_letters(self) -> None:
        """Answer dead letters, as the manager of a pool does."""
        dead, self._store.dead_letters = self._store.dead_letters, []
        for published, reason in dead:
            asked = published.properties
            header = encode_properties(
                Properties(asked.correlation_id, headers={wire.STATUS: reason}), 0
            )
            self.inject(asked.reply_to, header, b"")

    def _write(
        self,
        session: Session,
        channel: Channel,
        number: int,
        names: list[str],
        published: PublishedMessage,
    ) -> None:
        """Write a message to disk, then confirm it."""
        if self.refuses:
            self._confirm(session, channel, number, False)
            return
        if not self._sync_s:
            self._store.put(names, published)
            self._confirm(session, channel, number, True)
            return
        serial = self._store.begin_write(names, published)

        def commit() -> None:
            self._store.commit(serial)
            self._confirm(session, channel, number, True)

        self._later(self._sync_s * self._rng.random(), commit)

    def _note_answer(self, channel: Channel, number: int, published: PublishedMessage) -> None:
        properties = published.properties
        if wire.STATUS in properties.headers:
            channel.answers[number] = published.key, properties.correlation_id
        if wire.CONTROL in properties.headers:
            self._store.cancelled[properties.message_id, properties.correlation_id] = None

    # --- confirms ---------------------------------------------------------------------------------
    def _confirm(self, session: Session, channel: Channel, number: int, is_taken: bool) -> None:
        is_first = channel.settle(number, is_taken)
        if is_first:
            self._later(_BATCH_S, lambda: self._confirm_all(session, channel))

    def _confirm_all(self, session: Session, channel: Channel) -> None:
        due = channel.confirms_due()
        is_open = session.channels.get(channel.id) is channel and not channel.is_closing
        if not (is_open and channel.confirms):
            return
        for tag, multiple, is_taken in due:
            confirm = server_methods.confirmed(tag, multiple=multiple, is_taken=is_taken)
            self._send(session, channel.id, confirm)

    # --- direct replies ---------------------------------------------------------------------------
    def add_direct_consumer(self, session: Session, channel: Channel, tag: str) -> None:
        """Deliver the messages to `channel.direct` on its channel from now on."""
        self._direct[channel.direct] = session, channel, tag

    def remove_direct_consumer(self, channel: Channel) -> None:
        """Remove the consumer of direct replies of a channel, if it has one."""
        self._direct.pop(channel.direct, None)

    def _reply_directly(self, published: PublishedMessage) -> None:
        session, channel, tag = self._direct[published.key]
        channel.tag += 1
        method = server_methods.deliver(tag, channel.tag, False, "", published.key)
        self._send(session, channel.id, method, published.header, published.body)
