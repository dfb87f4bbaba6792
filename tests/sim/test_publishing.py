"""The RabbitMQ model routes, stores and confirms published messages; direct replies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from requite.protocols.amqp import wire
from requite.protocols.amqp.properties import Properties, encode_properties
from requite.sim.kernel.world import World
from requite.sim.rabbitmq import server_methods
from requite.sim.rabbitmq.publishing import Publishing
from requite.sim.rabbitmq.server_methods import Publish
from requite.sim.rabbitmq.sessions import Channel, Session
from requite.sim.rabbitmq.store import Store

HEADER = encode_properties(Properties("id-7"), 4)


class Bench:
    """The publishing of a server with one client. `sent`: the method and content of each message
    to the client."""

    def __init__(self) -> None:
        self.world = World(1)
        self.store = Store(self.world, sync_s=1.0)
        self.sent: list[tuple[bytes, ...]] = []
        self.publishing = Publishing(
            self.store, 1.0, self.world.rng("sync"), self.world.after, self._send
        )
        process = SimpleNamespace(name="client")
        peer = SimpleNamespace(stream=SimpleNamespace(other=SimpleNamespace(process=process)))
        self.session, self.channel = Session(peer, 0.0), Channel(b"\0\1")
        self.session.channels[self.channel.id] = self.channel
        self.channel.confirms = True

    def _send(self, _session: Session, _channel: bytes, *parts: bytes) -> None:
        self.sent.append(parts)

    def publish(self, key: str, header: bytes = HEADER, *, mandatory: bool = False) -> None:
        message = [self.channel.id, b"", header, b"body"]
        self.publishing.publish(self.session, self.channel, Publish("", key, mandatory), message)

    def ready(self, queue: str) -> list[Any]:
        return [entry.message for entry in self.store.queues[queue].ready]


def confirmed(tag: int, *, is_taken: bool = True) -> tuple[bytes]:
    """Return the confirm of all messages up to `tag`."""
    return (server_methods.confirmed(tag, multiple=True, is_taken=is_taken),)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_message_to_a_durable_queue_is_confirmed_once_it_is_on_disk(bench: Bench) -> None:
    bench.store.declare("durable", {})
    bench.publish("durable")
    assert (bench.ready("durable"), len(bench.store.pending_writes)) == ([], 1)
    bench.world.run()
    assert [message.body for message in bench.ready("durable")] == [b"body"]
    assert bench.sent == [confirmed(1)]


def test_one_confirm_covers_messages_that_are_stored_at_once(bench: Bench) -> None:
    bench.store.declare("exclusive", {}, owner=bench.session)
    for _ in range(3):
        bench.publish("exclusive")
    assert len(bench.ready("exclusive")) == 3
    bench.world.run()
    assert bench.sent == [confirmed(3)]


def test_a_refused_message_is_not_stored(bench: Bench) -> None:
    bench.store.declare("durable", {})
    bench.publishing.refuses = True
    bench.publish("durable")
    bench.world.run()
    assert bench.ready("durable") == []
    assert bench.sent == [confirmed(1, is_taken=False)]


def test_a_mandatory_message_without_a_queue_is_returned_and_confirmed(bench: Bench) -> None:
    bench.publish("nowhere", mandatory=True)
    bench.publish("nowhere")
    bench.world.run()
    back = server_methods.returned("", "nowhere"), HEADER, b"body"
    assert bench.sent == [back, confirmed(2)]


def test_a_closed_channel_gets_no_confirms(bench: Bench) -> None:
    bench.publish("nowhere")
    del bench.session.channels[bench.channel.id]
    bench.world.run()
    assert bench.sent == []


def test_a_direct_reply_is_delivered_to_its_consumer_only(bench: Bench) -> None:
    bench.channel.direct = "consumer-3"
    bench.publishing.add_direct_consumer(bench.session, bench.channel, "tag")
    bench.publish("consumer-3")
    delivery = server_methods.deliver("tag", 1, False, "", "consumer-3"), HEADER, b"body"
    assert bench.sent == [delivery]
    bench.publishing.remove_direct_consumer(bench.channel)
    bench.publish("consumer-3")
    assert bench.sent == [delivery]


def test_a_confirmed_final_reply_is_counted(bench: Bench) -> None:
    bench.publish("replies", encode_properties(Properties("id-7", headers={wire.STATUS: "ok"}), 4))
    assert not bench.channel.answered
    bench.world.run()
    assert bench.channel.answered == {("replies", "id-7"): 1}


def test_a_published_cancel_is_remembered(bench: Bench) -> None:
    header = encode_properties(
        Properties("id-7", message_id="m", headers={wire.CONTROL: "cancel"}), 4
    )
    bench.publishing.inject("key", header, b"")
    assert bench.store.cancelled == {("m", "id-7"): None}


def test_a_dead_letter_is_answered_with_its_reason(bench: Bench) -> None:
    bench.store.declare("replies", {}, owner=bench.session)
    header = encode_properties(Properties("id-7", reply_to="replies"), 4)
    dead = bench.store.received("", "requests", header, b"body", "")
    bench.store.dead_letters.append((dead, "expired"))
    bench.publishing.answer_dead_letters()
    [answer] = bench.ready("replies")
    assert answer.properties == Properties("id-7", headers={wire.STATUS: "expired"})
    assert bench.store.dead_letters == []


def test_confirms_need_a_channel_that_asked_for_them(bench: Bench) -> None:
    bench.channel.confirms = False
    bench.publish("nowhere")
    bench.world.run()
    assert bench.sent == []
