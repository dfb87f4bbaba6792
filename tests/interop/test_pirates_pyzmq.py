"""The Pirates with pyzmq peers in every role of the Guide: REQ, REP, DEALER and ROUTER."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from time import sleep
from typing import Any

import pytest
import zmq
from tests.support.live import InBackground, Live, eventually
from tests.support.pirate_peers import BEATS, READY, GuideQueue, GuideServer
from tests.support.zmq_peers import Socket, Sockets

from requite import Client, HeartbeatPolicy, Request, RetryPolicy, Worker, service
from requite.errors import CallTimeout
from requite.protocols.pirate.policy import QueuePolicy
from requite.queue import Queue

pytestmark = pytest.mark.interop

FAST = HeartbeatPolicy(0.1, 3)
LAZY = RetryPolicy(attempts=3, attempt_timeout=0.8)
ANY = "tcp://127.0.0.1:0"


@service("echo")
async def echo(request: Request) -> list[bytes]:
    return list(request.frames)


@service("upper")
def upper(request: Request) -> bytes:
    return request.body.upper()


@pytest.fixture
def lives() -> Iterator[list[Live]]:
    """A list of objects that are closed after the test."""
    lives: list[Live] = []
    yield lives
    for live in lives:
        live.close()


def start(lives: list[Live], served: Any) -> Any:
    lives.append(Live(served))
    return served


def dial(url: str) -> str:
    """Return the address that a ZeroMQ socket dials for a requite URL."""
    return url.partition("?")[0].replace("pirate://", "tcp://")


# --- Lazy Pirate ----------------------------------------------------------------------------------
def test_req_clients_ask_our_server(sockets: Sockets, lives: list[Live]) -> None:
    server = start(lives, Worker(echo, bind="pirate://127.0.0.1:0"))
    clients = [Socket(sockets, zmq.REQ, dial(server.addresses[0])) for _ in range(3)]
    for n in range(20):
        for k, client in enumerate(clients):
            client.send(b"%d" % n, b"", b"%d" % k)
        for k, client in enumerate(clients):
            assert client.receive() == [b"%d" % n, b"", b"%d" % k]


def test_a_dealer_asks_our_server_several_things_at_once(
    sockets: Sockets, lives: list[Live]
) -> None:
    server = start(lives, Worker(upper, bind="pirate://127.0.0.1:0"))
    dealer = Socket(sockets, zmq.DEALER, dial(server.addresses[0]))
    for n in range(10):
        dealer.send(b"hop", b"", b"a%d" % n)
    assert [dealer.receive() for _ in range(10)] == [[b"hop", b"", b"A%d" % n] for n in range(10)]


def test_our_client_asks_a_rep_server_which_crashes_now_and_then() -> None:
    crash_at = {3, 7, 8}
    seen: list[bytes] = []

    def answer(request: bytes) -> bytes | None:
        seen.append(request)
        return None if len(seen) in crash_at else request

    with (
        GuideServer(answer) as server,
        Client(f"pirate://127.0.0.1:{server.port}", retry=LAZY) as client,
    ):
        for n in range(10):
            reply = client.call(b"%d" % n, timeout=20)
            assert reply.body == b"%d" % n
        assert server.crashes == 3
        assert len(seen) == 13


def test_our_client_abandons_a_server_that_is_too_slow() -> None:
    gate = threading.Event()

    def answer(request: bytes) -> bytes:
        gate.wait(30)
        return request

    with (
        GuideServer(answer) as server,
        Client(f"pirate://127.0.0.1:{server.port}", retry=LAZY) as client,
    ):
        with pytest.raises(CallTimeout, match="sent 3 times, with 0") as raised:
            client.call(b"x", timeout=20)
        assert raised.value.attempts == 3
        gate.set()
        # The three replies are late, and are dropped.
        assert client.call(b"y", timeout=20).body == b"y"


class GuideClient:
    """The Guide's Lazy Pirate: a REQ socket that is reopened when no reply arrives in time."""

    def __init__(self, sockets: Sockets, endpoint: str) -> None:
        self._sockets = sockets
        self._endpoint = endpoint
        self._socket = Socket(sockets, zmq.REQ, endpoint)
        self.retries = 0

    def call(self, body: bytes) -> bytes:
        for _ in range(20):
            self._socket.send(body)
            if self._socket.has_message(1.5):
                [reply] = self._socket.receive()
                return reply
            self.retries += 1
            self._socket.close()
            self._socket = Socket(self._sockets, zmq.REQ, self._endpoint)
        raise AssertionError("server seems to be offline, abandoning")


@pytest.mark.parametrize("protocol", ["simple", "paranoid"])
def test_the_guides_lazy_pirate_outlives_workers_of_our_queue(
    protocol: str, sockets: Sockets, lives: list[Live]
) -> None:
    queue = start(lives, Queue(ANY, ANY, protocol=protocol))
    client = GuideClient(sockets, dial(queue.front_addresses[0]))
    kind = zmq.REQ if protocol == "simple" else zmq.DEALER
    bad = Socket(sockets, kind, dial(queue.back_addresses[0]))
    bad.send(READY[0])
    eventually(lambda: queue.snapshot().idle == 1, "the first worker is ready")
    start(lives, Worker(queue.back_addresses[0], echo))
    eventually(lambda: queue.snapshot().idle == 2, "the second one, too")

    def die_with_a_request() -> None:
        while len(bad.receive()) == 1:
            """Skip heartbeats, which may arrive first."""
        bad.close()

    with InBackground(die_with_a_request):
        assert client.call(b"1") == b"1"
    assert client.retries == 1
    assert client.call(b"2") == b"2"


# --- Simple Pirate --------------------------------------------------------------------------------
def test_req_workers_and_req_clients_at_our_simple_queue(
    sockets: Sockets, lives: list[Live]
) -> None:
    queue = start(lives, Queue(ANY, ANY, protocol="simple"))
    workers = [
        Socket(sockets, zmq.REQ, dial(queue.back_addresses[0]), identity)
        for identity in (b"0001", b"0002")
    ]
    for worker, word, count in zip(workers, READY, (1, 2), strict=True):
        worker.send(word)
        eventually(lambda count=count: queue.snapshot().idle == count, "it is ready")
    client = Socket(sockets, zmq.REQ, dial(queue.front_addresses[0]))
    for n in range(6):
        client.send(b"%d" % n)
        address, empty, body = workers[n % 2].receive()  # least recently used
        assert (empty, body) == (b"", b"%d" % n)
        workers[n % 2].send(address, b"", b"re %d" % n)
        assert client.receive() == [b"re %d" % n]


def test_our_workers_and_clients_at_a_simple_queue_of_the_guide(lives: list[Live]) -> None:
    with GuideQueue() as queue:
        url = f"pirate://127.0.0.1:{queue.back}?protocol=simple"
        start(lives, Worker(url, echo, capacity=2))
        with Client(f"pirate://127.0.0.1:{queue.front}") as client:
            calls = [client.start(b"%d" % n, timeout=20) for n in range(20)]
            assert [call.result().body for call in calls] == [b"%d" % n for n in range(20)]
        assert queue.said == [[b"READY"]] * 2


# --- Paranoid Pirate ------------------------------------------------------------------------------
@pytest.fixture
def paranoid(lives: list[Live]) -> Queue:
    queue: Queue = start(lives, Queue(ANY, ANY, policy=QueuePolicy(heartbeat=FAST)))
    return queue


@pytest.mark.parametrize("words", [0, 1], ids=["6/PPP", "the Guide's text"])
def test_dealer_workers_at_our_paranoid_queue(
    words: int, sockets: Sockets, paranoid: Queue
) -> None:
    worker = Socket(sockets, zmq.DEALER, dial(paranoid.back_addresses[0]))
    client = Socket(sockets, zmq.REQ, dial(paranoid.front_addresses[0]))
    worker.send(READY[words])
    assert worker.receive() == [BEATS[words]]  # within the interval
    worker.send(BEATS[words])
    client.send(b"hello", b"world")
    frames = [BEATS[words]]
    while frames == [BEATS[words]]:
        frames = worker.receive()
    address, *rest = frames
    assert rest == [b"", b"hello", b"world"]
    worker.send(address, b"", b"reply")
    assert client.receive() == [b"reply"]


def test_a_worker_that_blocks_while_it_works_is_not_given_up(
    sockets: Sockets, paranoid: Queue
) -> None:
    worker = Socket(sockets, zmq.DEALER, dial(paranoid.back_addresses[0]))
    client = Socket(sockets, zmq.REQ, dial(paranoid.front_addresses[0]))
    worker.send(READY[0])
    client.send(b"hard")
    frames = worker.receive()
    sleep(4 * FAST.interval_s * FAST.liveness)  # long work without reading or sending
    worker.send(*frames[:2], b"done")
    assert client.receive() == [b"done"]


def test_a_worker_that_falls_silent_is_hung_up_on_and_may_say_ready_again(
    sockets: Sockets, paranoid: Queue
) -> None:
    worker = Socket(sockets, zmq.DEALER, dial(paranoid.back_addresses[0]))
    worker.send(READY[0])
    eventually(lambda: paranoid.snapshot().idle == 1, "it is ready")
    assert worker.had_event(zmq.EVENT_DISCONNECTED, 30.0)
    worker.send(BEATS[0])  # libzmq has reconnected; a heartbeat does not register a worker
    eventually(lambda: paranoid.snapshot().dropped.get("unready"), "it is not heard")
    assert paranoid.snapshot().idle == 0
    worker.send(READY[0])
    eventually(lambda: paranoid.snapshot().idle == 1, "it is ready again")


@pytest.mark.parametrize("beat", BEATS)
def test_our_workers_at_a_paranoid_queue_of_the_guide(beat: bytes, lives: list[Live]) -> None:
    with GuideQueue(0.1, beat=beat) as queue:
        start(lives, Worker(f"pirate://127.0.0.1:{queue.back}", upper, capacity=2, heartbeat=FAST))
        with Client(f"pirate://127.0.0.1:{queue.front}", retry=LAZY) as client:
            for n in range(10):
                assert client.call(b"a%d" % n, timeout=20).body == b"A%d" % n
            eventually(lambda: [b"\x02"] in queue.said, "the worker's heartbeats")
            ready = queue.said.count([b"\x01"])
            assert ready == 2
            eventually(lambda: queue.said.count([b"\x02"]) > 10, "more of them")
            assert queue.said.count([b"\x01"]) == ready  # neither side found the other lost


def test_our_worker_signs_up_again_when_the_queue_of_the_guide_was_restarted(
    lives: list[Live],
) -> None:
    with GuideQueue(0.1) as queue:
        ports = {"front": queue.front, "back": queue.back}
        start(lives, Worker(f"pirate://127.0.0.1:{queue.back}", echo, heartbeat=FAST))
        with Client(f"pirate://127.0.0.1:{queue.front}", retry=LAZY) as client:
            assert client.call(b"before", timeout=20).body == b"before"
    with (
        GuideQueue(0.1, **ports) as queue,
        Client(f"pirate://127.0.0.1:{queue.front}", retry=LAZY) as client,
    ):
        assert client.call(b"after", timeout=20).body == b"after"
        assert [b"\x01"] in queue.said


def test_our_worker_leaves_a_queue_that_is_silent(sockets: Sockets, lives: list[Live]) -> None:
    router = sockets.make(zmq.ROUTER)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    router.rcvtimeo = 30_000
    start(lives, Worker(f"pirate://127.0.0.1:{port}", echo, heartbeat=FAST))
    first, word = router.recv_multipart()
    assert word == b"\x01"
    again, word = first, b""
    while word != b"\x01":  # heartbeats arrive until the worker gives up
        again, word = router.recv_multipart()
    assert again != first
