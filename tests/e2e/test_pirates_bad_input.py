"""Bad input at the doors of the Pirates: who sends it is hung up on, and nobody else notices."""

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
DOORS = pytest.mark.parametrize("door", ["front", "back", "server"])
NONSENSE = [
    [b"no delimiter"],
    [b"no", b"delimiter"],
    [b"no body", b""],
    [b""],
    [b"\x03"],
]
# In front that is a request with an empty frame in its body.
NONSENSE_AT_THE_BACK = [*NONSENSE, [b"", b"", b"READY"]]


@service("echo")
async def echo(request: Request) -> bytes:
    return request.body


class Scene:
    """A queue with a worker, and a server; a good client of each of the two."""

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
        self.doors = {"front": front, "back": back, "server": alone}
        self._clients = [Client(front), Client(alone)]
        self.assert_unharmed()

    def dial(self, door: str) -> RawPeer:
        """Connect to a door, and say nothing yet."""
        return RawPeer(self.doors[door].partition("?")[0].replace("pirate", "tcp"))

    def assert_unharmed(self) -> None:
        """See that the good ones are served, and nothing of others is left."""
        for client in self._clients:
            assert client.call(b"are you well?", timeout=20).body == b"are you well?"
        eventually(lambda: self.queue.snapshot()[:5] == (1, 0, 0, 1, 0), "the tables are as before")

    def close(self) -> None:
        """End everything."""
        for client in self._clients:
            client.close()
        for live in reversed(self._lives):
            live.close()


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """One for all tests: what a test leaves behind, the next one finds."""
    Live(Queue(ANY, ANY)).close()  # an event loop keeps something for as long as the process lives
    with none_left():
        scene = Scene()
        yield scene
        scene.close()


@DOORS
@pytest.mark.parametrize("case", BROKEN_BYTES, ids=lambda case: case.name)
def test_broken_bytes(case: BrokenBytes, door: str, scene: Scene) -> None:
    with scene.dial(door) as peer:
        peer.send(case.data)
        peer.hung_up()
    scene.assert_unharmed()


@pytest.mark.parametrize(
    ("door", "frames"),
    [*(("front", each) for each in NONSENSE), *(("back", each) for each in NONSENSE_AT_THE_BACK)],
    ids=repr,
)
def test_broken_messages(frames: list[bytes], door: str, scene: Scene) -> None:
    with scene.dial(door) as peer:
        peer.shake_hands()
        peer.say(*frames)
        peer.hung_up()
    scene.assert_unharmed()


@DOORS
def test_a_conversation_cut_after_any_byte_or_damaged(door: str, scene: Scene) -> None:
    words = [[b"\x01"], [b"\x02"]] if door == "back" else [[b"", b"x"]]
    conversation = good_conversation(*words)
    rng = random.Random(7)
    for end in range(0, len(conversation), 3):
        with scene.dial(door) as peer:
            peer.send(conversation[:end])
    for _ in range(30):
        damaged = bytearray(conversation)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        with scene.dial(door) as peer:
            peer.send(bytes(damaged))
    scene.assert_unharmed()
