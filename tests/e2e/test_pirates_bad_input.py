"""Bad input at a Pirate queue and server: its sender is disconnected, and others are unaffected."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.support.bad_peers import BROKEN_BYTES, BrokenBytes
from tests.support.descriptors import none_left
from tests.support.live import Live, eventually
from tests.support.raw_zmtp import RawPeer, good_conversation

from requite import Client, Worker, service
from requite.queue import Queue
from requite.request import Request

pytestmark = pytest.mark.e2e

ANY = "tcp://127.0.0.1:0"
ADDRESSES = pytest.mark.parametrize("address", ["front", "back", "server"])
NONSENSE = [
    [b"no delimiter"],
    [b"no", b"delimiter"],
    [b"no body", b""],
    [b""],
    [b"\x03"],
]
# At the front, the last one is a request with an empty frame in its body.
NONSENSE_AT_THE_BACK = [*NONSENSE, [b"", b"", b"READY"]]


@service("echo")
async def echo(request: Request) -> bytes:
    return request.body


class Scene:
    """A queue with a worker, and a server, with a healthy client of each."""

    def __init__(self) -> None:
        self.queue = Queue(ANY, ANY)
        self._lives = [Live(self.queue)]
        server = Worker(echo, bind="pirate://127.0.0.1:0")
        self._lives += [Live(Worker(self.queue.back_addresses[0], echo)), Live(server)]
        [front], [back], [alone] = (
            self.queue.front_addresses,
            self.queue.back_addresses,
            server.addresses,
        )
        self.addresses = {"front": front, "back": back, "server": alone}
        self._clients = [Client(front), Client(alone)]
        self.assert_unharmed()

    def dial(self, address: str) -> RawPeer:
        """Connect to one of the addresses, without a handshake."""
        return RawPeer(self.addresses[address].partition("?")[0].replace("pirate", "tcp"))

    def assert_unharmed(self) -> None:
        """Check that the healthy clients are served, and that the queue's tables are as before."""
        for client in self._clients:
            assert client.call(b"are you well?", timeout=20).body == b"are you well?"
        eventually(lambda: self.queue.snapshot()[:5] == (1, 0, 0, 1, 0), "the tables are as before")

    def close(self) -> None:
        """Close the clients, the workers and the queue."""
        for client in self._clients:
            client.close()
        for live in reversed(self._lives):
            live.close()


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """One scene for all tests, so that a test detects what an earlier one left behind."""
    Live(Queue(ANY, ANY)).close()  # the first event loop keeps descriptors open
    with none_left():
        scene = Scene()
        yield scene
        scene.close()


@ADDRESSES
@pytest.mark.parametrize("case", BROKEN_BYTES, ids=lambda case: case.name)
def test_broken_bytes(case: BrokenBytes, address: str, scene: Scene) -> None:
    with scene.dial(address) as peer:
        peer.send(case.data)
        peer.hung_up()
    scene.assert_unharmed()


@pytest.mark.parametrize(
    ("address", "frames"),
    [*(("front", each) for each in NONSENSE), *(("back", each) for each in NONSENSE_AT_THE_BACK)],
    ids=repr,
)
def test_broken_messages(frames: list[bytes], address: str, scene: Scene) -> None:
    with scene.dial(address) as peer:
        peer.shake_hands()
        peer.say(*frames)
        peer.hung_up()
    scene.assert_unharmed()


@ADDRESSES
def test_a_conversation_cut_after_any_byte_or_damaged(address: str, scene: Scene) -> None:
    words = [[b"\x01"], [b"\x02"]] if address == "back" else [[b"", b"x"]]
    conversation = good_conversation(*words)
    rng = random.Random(7)
    for end in range(0, len(conversation), 3):
        with scene.dial(address) as peer:
            peer.send(conversation[:end])
    for _ in range(30):
        damaged = bytearray(conversation)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        with scene.dial(address) as peer:
            peer.send(bytes(damaged))
    scene.assert_unharmed()
