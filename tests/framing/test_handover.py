"""The handover framing, which passes messages as objects, alone and between two hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from requite.engine import Cause, Disconnect, Effect, Input, PeerJoined, PeerLost, Received, Send
from requite.framing.handover import Handover
from requite.shell.aio import AioShell
from requite.shell.connections import Connections, Endpoint
from requite.transport.address import InprocAddress


def test_messages_of_a_flush_form_one_chunk_and_are_not_copied():
    ours, theirs = Handover(), Handover()
    messages: list[Any] = [[b"a"], (1, 2), [b"b", b"c"]]
    out: list[Any] = []
    assert [ours.encode(message, out) for message in messages] == [1, 1, 1]
    [chunk] = out
    received = theirs.receive(chunk)
    assert all(ours is theirs for ours, theirs in zip(messages, received, strict=True))


def test_the_framing_sends_nothing_but_messages():
    framing = Handover()
    assert framing.ready
    assert (framing.opening(), framing.output(), framing.closing()) == (b"", b"", b"")
    assert (framing.peer_identity, framing.farewell, framing.mid_message) == (b"", "", False)
    framing.at_end()


class Recorder:
    """An engine that records its inputs. It sends `first` to each new peer, and then disconnects it
    if `hangs_up`."""

    def __init__(self, first: Sequence[Any] = (), *, hangs_up: bool = False) -> None:
        self.fed: list[Input] = []
        self._first = first
        self._hangs_up = hangs_up

    @property
    def messages(self) -> list[Any]:
        return [
            each for event in self.fed if isinstance(event, Received) for each in event.messages
        ]

    @property
    def has_lost(self) -> bool:
        return any(isinstance(event, PeerLost) for event in self.fed)

    def handle(self, events: Sequence[Input], _now: float) -> Iterable[Effect]:
        for event in events:
            self.fed.append(event)
            if isinstance(event, PeerJoined):
                yield from (Send(event.peer, message) for message in self._first)
                if self._hangs_up:
                    yield Disconnect(event.peer, "that was all", Cause.DONE)

    def deadline(self) -> float | None:
        return None

    def snapshot(self) -> None:
        return None


async def until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the condition has no event to wait for
            await asyncio.sleep(0)


async def test_a_host_receives_the_messages_and_the_loss_of_its_peer():
    first: list[Any] = [(b"tuple", 1), [b"frame"]]
    listening, dialling = Recorder(), Recorder(first, hangs_up=True)
    address = InprocAddress("handover")
    server = AioShell(listening, Connections(listen=[Endpoint(address, Handover)]))
    client = AioShell(dialling, Connections(keep=[Endpoint(address, Handover)]))
    await server.listen_all()
    client.start()
    await until(lambda: listening.has_lost)
    assert listening.messages == first  # messages sent before the disconnect have arrived
    await client.close()
    await server.close()
