"""Bad input on real sockets: the broker keeps serving, the peer gets what the specification says.

Each test keeps a healthy client and a healthy worker connected to the broker. They must be served
afterwards as before, and the broker's tables must have the same sizes as before. The cases are in
`tests/support/bad_peers.py`.
"""

from __future__ import annotations

import gc
import logging
import random
import select
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.bad_peers import BROKEN_BYTES, BROKEN_MESSAGES, BrokenBytes, BrokenMessages
from tests.support.builds import pure_only
from tests.support.live import InBackground, Live, LiveBroker, MakeBroker, eventually
from tests.support.raw_zmtp import RawPeer, command, good_conversation, greeting, message
from tests.support.zmq_peers import RFC18, HandClient, HandWorker, Sockets

import requite
from requite.protocols.majordomo.management import Management
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.shell.host import Link, LinkLimits

pytestmark = pytest.mark.e2e


class Scene:
    """A broker with a healthy client and a healthy worker, and the initial sizes of its tables."""

    def __init__(self, sockets: Sockets, broker: LiveBroker) -> None:
        self.broker = broker
        self.worker = HandWorker(sockets, broker.endpoint, RFC18)
        self.client = HandClient(sockets, broker.endpoint, RFC18)
        self.serve()
        self.tables_before = self.tables()

    def serve(self) -> None:
        """Send a request from the healthy client to the healthy worker, and check the reply."""
        self.client.request(b"echo", b"are you well?")
        assert self.worker.serve_one() == [b"are you well?"]
        assert self.client.reply() == ("final", b"echo", [b"are you well?"])

    def tables(self) -> dict[str, Any]:
        """Return the sizes of the broker's tables."""
        stats = self.broker.stats()
        sizes = {name: stats[name] for name in ("clients", "newcomers", "pending")}
        for name in ("workers", "waiting", "queued", "in_progress"):
            sizes[name] = sum(row[name] for row in stats["services"])
        return sizes

    def assert_unharmed(self) -> None:
        """Check that the healthy peers are served, and that the tables have their initial sizes."""
        with RawPeer(self.broker.endpoint) as last:
            last.shake_hands()  # connections are accepted in order: all others have been accepted
        self.worker.heartbeat()
        self.serve()
        eventually(lambda: self.tables() == self.tables_before, f"tables as {self.tables_before}")


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def scene(request: pytest.FixtureRequest, sockets: Sockets, make_broker: MakeBroker) -> Scene:
    """A broker with its default settings on each event loop, and its healthy peers."""
    return Scene(sockets, make_broker(uvloop=request.param))


@pytest.fixture
def peers() -> Iterator[list[RawPeer]]:
    """A list of connections, which are closed after the test."""
    peers: list[RawPeer] = []
    yield peers
    for peer in peers:
        peer.close()


# --- bytes that never become a message ------------------------------------------------------------
@pytest.mark.parametrize("case", BROKEN_BYTES, ids=lambda case: case.name)
def test_broken_bytes(case: BrokenBytes, scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    with RawPeer(scene.broker.endpoint) as peer:
        peer.send(case.data)
        said = peer.hung_up()
    assert said[:64] == greeting() or said == b""
    if case.error:
        assert b"\x05ERROR" in said
    assert case.reason in caplog.text
    scene.assert_unharmed()


@pytest.mark.parametrize("case", BROKEN_MESSAGES, ids=lambda case: case.name)
def test_broken_messages(
    case: BrokenMessages, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    with RawPeer(scene.broker.endpoint) as peer:
        peer.shake_hands()
        for frames in case.messages:
            peer.say(*frames)
        assert [tuple(answer) for answer in peer.last_words()] == [*case.answers]
    assert case.reason in caplog.text
    scene.assert_unharmed()


@pytest.mark.parametrize("case", BROKEN_MESSAGES, ids=lambda case: case.name)
def test_broken_messages_in_one_piece(case: BrokenMessages, scene: Scene) -> None:
    """Handshake and messages arrive in one read; the broker judges each message by itself."""
    with RawPeer(scene.broker.endpoint) as peer:
        peer.send(good_conversation(*case.messages))
        peer.shook_hands()
        assert [tuple(answer) for answer in peer.last_words()] == [*case.answers]
    scene.assert_unharmed()


# --- cut and damaged anywhere ---------------------------------------------------------------------
CONVERSATIONS = {
    "client 0.1": good_conversation((b"", b"MDPC01", b"mmi.service", b"echo")),
    "client 0.2": good_conversation((b"MDPC02", b"\x01", b"mmi.service", b"echo")),
    "client 0.3": good_conversation(
        (b"MDPC03\x01" + bytes(12) + b"\x00\x0b" + bytes(16) + b"mmi.service", b"echo"),
        (b"MDPC03\x05\x00\x00\x03\xe8",),
    ),
    "worker 0.2": good_conversation((b"MDPW02", b"\x01", b"bad"), (b"MDPW02", b"\x06")),
    "worker 0.3": good_conversation(
        (b"MDPW03\x01\x00\x01\x00\x00\x03\xe8" + bytes(12) + b"bad",), (b"MDPW03\x06",)
    ),
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_cut_after_any_byte(name: str, scene: Scene) -> None:
    conversation = CONVERSATIONS[name]
    for end in range(len(conversation)):
        with RawPeer(scene.broker.endpoint) as peer:
            peer.send(conversation[:end])
    scene.assert_unharmed()


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_damaged_at_any_byte(name: str, scene: Scene) -> None:
    conversation = CONVERSATIONS[name]
    source = random.Random(name)
    for at in range(len(conversation)):
        damaged = bytearray(conversation)
        damaged[at] ^= source.randrange(1, 256)
        with RawPeer(scene.broker.endpoint) as peer:
            peer.send(bytes(damaged))
    scene.assert_unharmed()


def test_a_conversation_that_arrives_byte_by_byte_is_answered(scene: Scene) -> None:
    with RawPeer(scene.broker.endpoint) as peer:
        for byte in CONVERSATIONS["client 0.2"]:
            peer.send(bytes([byte]))
        peer.shook_hands()
        assert peer.receive() == [b"MDPC02", b"\x03", b"mmi.service", b"200"]
    scene.assert_unharmed()


# --- workers that break the rules while they hold a request ---------------------------------------
def _register_and_send_a_request(scene: Scene, peer: RawPeer) -> bytes:
    """Register the peer as a worker and send it a request; return the client's address in it."""
    peer.shake_hands()
    peer.say(b"MDPW02", b"\x01", b"shared")
    scene.client.request(b"shared", b"x")
    head, kind, address, empty, body = peer.receive()
    assert (head, kind, empty, body) == (b"MDPW02", b"\x02", b"", b"x")
    return address


@pytest.mark.parametrize(
    ("name", "answer", "reason"),
    [
        (
            "another client",
            (b"MDPW02", b"\x04", b"somebody", b"", b"x"),
            "whose request this worker does not have",
        ),
        ("no body", (b"MDPW02", b"\x04", b"ADDRESS", b""), "a body"),
        ("no empty frame", (b"MDPW02", b"\x04", b"ADDRESS", b"x"), "are needed"),
        ("READY", (b"MDPW02", b"\x01", b"shared"), "READY twice"),
        ("0.1", (b"", b"MDPW01", b"\x03", b"ADDRESS", b"", b"x"), "no command of MDP 0.2"),
        ("noise", (b"\x00" * 99,), "no command of MDP 0.2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_request_of_a_faulty_worker_is_redelivered_to_another(
    name: str,
    answer: tuple[bytes, ...],
    reason: str,
    scene: Scene,
    sockets: Sockets,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with RawPeer(scene.broker.endpoint) as peer:
        address = _register_and_send_a_request(scene, peer)
        other = HandWorker(sockets, scene.broker.endpoint, RFC18, service=b"shared")
        scene.broker.await_workers("shared", 2)
        peer.say(*(address if frame == b"ADDRESS" else frame for frame in answer))
        assert peer.last_words() == [[b"MDPW02", b"\x06"]]
    assert other.serve_one() == [b"x"]
    assert scene.client.reply() == ("final", b"shared", [b"x"])
    assert reason in caplog.text
    other.close()
    scene.assert_unharmed()


def test_a_connection_cut_in_the_middle_of_a_reply(
    scene: Scene, sockets: Sockets, caplog: pytest.LogCaptureFixture
) -> None:
    with RawPeer(scene.broker.endpoint) as peer:
        address = _register_and_send_a_request(scene, peer)
        peer.send(message(b"MDPW02", b"\x04", address, b"", b"y" * 1000)[:-1])
    other = HandWorker(sockets, scene.broker.endpoint, RFC18, service=b"shared")
    assert other.serve_one() == [b"x"]
    assert scene.client.reply() == ("final", b"shared", [b"x"])
    other.close()
    scene.assert_unharmed()


# --- identities -----------------------------------------------------------------------------------
def test_an_identity_in_use_is_refused(
    scene: Scene, caplog: pytest.LogCaptureFixture, peers: list[RawPeer]
) -> None:
    holder = RawPeer(scene.broker.endpoint)
    peers.append(holder)
    holder.shake_hands(identity=b"me")
    for _ in range(2):
        with RawPeer(scene.broker.endpoint) as intruder:
            intruder.shake_hands(identity=b"me")
            intruder.say(b"MDPC02", b"\x01", b"mmi.service", b"echo")
            assert intruder.last_words() == []
    holder.say(b"MDPC02", b"\x01", b"mmi.service", b"echo")
    assert holder.receive() == [b"MDPC02", b"\x03", b"mmi.service", b"200"]
    assert "identity b'me' is in use by another peer" in caplog.text
    holder.close()
    scene.assert_unharmed()


# --- peers that do not read, or do nothing --------------------------------------------------------
def test_a_client_that_does_not_read_does_not_delay_others(
    scene: Scene, peers: list[RawPeer]
) -> None:
    """The client sends more than the sockets hold; the broker stops reading from it."""
    slow_peer = RawPeer(scene.broker.endpoint)
    peers.append(slow_peer)
    slow_peer.shake_hands()
    slow_peer.socket.setblocking(False)
    ask = message(b"MDPC02", b"\x01", b"mmi.nothing" + b"x" * 200, b"x") * 1000
    sent = 0
    while sent < 64 << 20 and (size := _push(slow_peer, ask)):
        sent += size
    assert sent < 64 << 20, "the broker takes everything, and must buffer the answers"
    scene.serve()
    slow_peer.close()
    scene.assert_unharmed()


def _push(peer: RawPeer, data: bytes) -> int:
    """Send as much as the socket takes; return 0 if it takes nothing for 0.3 s."""
    if not select.select([], [peer.socket], [], 0.3)[1]:
        return 0
    return peer.socket.send(data)


def test_a_client_over_its_output_limit_is_dropped(
    sockets: Sockets, make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(sockets, make_broker(links=LinkLimits(output_size_max=1 << 20)))
    # A separate worker: it may get one more request before the client is dropped.
    worker = HandWorker(sockets, scene.broker.endpoint, RFC18, service=b"large")
    with RawPeer(scene.broker.endpoint) as slow_peer:
        slow_peer.shake_hands()
        slow_peer.send(message(b"MDPC02", b"\x01", b"large", b"x") * 100)
        for _ in range(100):
            address, _ = worker.take()
            worker.final(address, bytes(1 << 20))
            if "output limit" in caplog.text:
                break
        assert "does not read" in caplog.text
    eventually(lambda: scene.tables()["pending"] == 0, "the rest of its requests is dropped")
    worker.close()
    scene.assert_unharmed()


def test_a_worker_that_does_not_read_gets_no_more_work(
    scene: Scene, peers: list[RawPeer], workers: list[Live]
) -> None:
    """When it disconnects, its requests are redelivered; each request is answered once."""
    slow_peer = RawPeer(scene.broker.endpoint)
    peers.append(slow_peer)
    slow_peer.shake_hands()
    # READY with a capacity of 1000 and a heartbeat interval of 30 s.
    slow_peer.say(b"MDPW03\x01\x03\xe8\x00\x00\x75\x30" + bytes(12) + b"shared")
    scene.broker.await_workers("shared", 1)
    workers.append(Live(requite.Worker(scene.broker.url, shared, capacity=1)))
    scene.broker.await_workers("shared", 2)
    bodies = [b"%d" % number + bytes(200_000) for number in range(200)]
    with requite.Client(scene.broker.url, service="shared", timeout=30.0) as client:
        replies = client.map(bodies, concurrency=len(bodies))

        def held() -> int:
            rows = scene.broker.workers("shared")
            return sum(row["holding"] for row in rows if row["capacity"] > 1)

        def cut() -> None:
            scene.broker.await_service("shared", accepted=200)
            eventually(
                lambda: (scene.broker.service("shared") or {})["replied"] + held() == 200,
                "the other worker has answered the rest",
            )
            assert 0 < held() < 150
            slow_peer.close()

        with InBackground(cut):
            assert [reply.body for reply in replies] == bodies
    scene.broker.await_service("shared", replied=200)
    workers.pop().close()
    scene.assert_unharmed()


@requite.service("shared")
async def shared(request: requite.Request) -> bytes:
    """Answer with the body of the request."""
    return request.body


def test_unfinished_messages_of_many_peers_take_bounded_memory(
    sockets: Sockets,
    make_broker: MakeBroker,
    peers: list[RawPeer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits = LinkLimits(partial_size_max=4 << 20)
    scene = Scene(sockets, make_broker(links=limits, message_size_max=2 << 20))
    for _ in range(20):
        peer = RawPeer(scene.broker.endpoint)
        peers.append(peer)
        peer.shake_hands()
        peer.send(b"\x02" + (2 << 20).to_bytes(8, "big") + bytes(1 << 20))
    eventually(lambda: caplog.text.count("exceed the limit") > 0, "one is dropped")
    eventually(lambda: scene.tables()["newcomers"] <= 4, "each of the others holds 1 MiB")
    for peer in peers:
        peer.close()
    scene.assert_unharmed()


def test_an_unfinished_message_is_freed_with_its_connection(scene: Scene) -> None:
    """Without a collection of reference cycles, which a broker runs rarely."""

    def links() -> int:
        return sum(type(each) is Link for each in gc.get_objects())

    scene.serve()
    gc.collect()
    before = links()
    gc.disable()
    try:
        for _ in range(5):
            with RawPeer(scene.broker.endpoint) as peer:
                peer.shake_hands()
                peer.send(b"\x02" + (2 << 20).to_bytes(8, "big") + bytes(1 << 20))
        eventually(lambda: links() == before, "links are gone")
    finally:
        gc.enable()


def test_silent_peers_are_dropped_after_the_handshake_timeout(
    sockets: Sockets, make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(sockets, make_broker(links=LinkLimits(handshake_timeout_s=1.0)))
    silent = [RawPeer(scene.broker.endpoint) for _ in range(20)]
    silent[1].send(greeting()[:11])
    silent[2].send(greeting())
    for peer in silent:
        assert peer.hung_up()[:64] == greeting()
        peer.close()
    assert "did not complete the handshake within 1 s" in caplog.text
    scene.assert_unharmed()


def test_a_peer_may_be_silent_after_the_handshake(
    sockets: Sockets, make_broker: MakeBroker
) -> None:
    """A client without requests may stay silent, also before its first request."""
    scene = Scene(sockets, make_broker(links=LinkLimits(handshake_timeout_s=1.0)))
    with RawPeer(scene.broker.endpoint) as peer, RawPeer(scene.broker.endpoint) as clock:
        peer.shake_hands()
        assert clock.hung_up()  # the time-out has passed
        peer.say(b"MDPC02", b"\x01", b"mmi.service", b"echo")
        assert peer.receive()[-1] == b"200"
    scene.assert_unharmed()


# --- the log --------------------------------------------------------------------------------------
def test_log_lines_about_many_bad_peers_are_limited(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1000):
        if number % 50 == 0:
            scene.worker.heartbeat()  # so that the healthy worker does not expire
        with RawPeer(scene.broker.endpoint) as peer:
            if number % 2:
                peer.send(b"GET / HTTP/1.1\r\n\r\n")
                peer.hung_up()
            else:
                peer.send(good_conversation((b"hello",)))
                peer.hung_up()
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    took_s = lines[-1].created - lines[0].created
    assert 2 <= len(lines) <= 2 * (took_s + 2)  # two kinds, one line each per second
    assert took_s < 1 or any("more of this kind left out" in line.getMessage() for line in lines)
    scene.assert_unharmed()


# --- everything at once, against one broker -------------------------------------------------------
def test_all_kinds_of_bad_input_against_one_broker(
    sockets: Sockets, make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(sockets, make_broker(policy=BrokerPolicy(service_ttl_s=0.1)))
    source = random.Random(18)
    everything = [case.data for case in BROKEN_BYTES]
    everything += [good_conversation(*case.messages) for case in BROKEN_MESSAGES]
    everything += CONVERSATIONS.values()
    for number in range(500):
        if number % 50 == 0:
            scene.worker.heartbeat()  # so that the healthy worker does not expire
        data = source.choice(everything)
        damaged = bytearray(data[: source.randrange(len(data) + 1)][:10_000])
        for _ in range(source.randrange(3)):
            if damaged:
                damaged[source.randrange(len(damaged))] = source.randrange(256)
        with RawPeer(scene.broker.endpoint) as peer:
            peer.send(bytes(damaged))
    scene.assert_unharmed()
    eventually(lambda: names(scene) == ["echo"], "services that bad peers named are forgotten")
    assert scene.broker.stats()["timers"] == 1  # the timer of the healthy worker


def names(scene: Scene) -> list[str]:
    """Return the names of the broker's services."""
    return [row["service"] for row in scene.broker.stats()["services"]]


# --- requests that cost the broker more than their sender -----------------------------------------
@pure_only("the test replaces a method of an engine")
def test_half_a_megabyte_of_statistics_requests_does_not_delay_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack 7 of the security design: the broker was blocked for 16 s."""
    made: list[bytes] = []
    answer = Management.answer

    def counted(self: Management, client: Any, name: bytes, *rest: Any) -> bytes:
        made.append(name)
        return answer(self, client, name, *rest)

    monkeypatch.setattr(Management, "answer", counted)
    stats = message(b"MDPC02", b"\x01", b"mmi.stats", b"")
    count = 500_000 // len(stats)
    with RawPeer(scene.broker.endpoint) as attacker:
        attacker.shake_hands()
        attacker.send(stats * count)
        eventually(lambda: made, "the first answer")
        for _ in range(5):
            scene.serve()
        assert len(made) < count / 2


def test_a_guesser_of_passwords_has_to_wait_and_others_get_in(
    sockets: Sockets, make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = make_broker(users={"ann": "secret"})
    guess = greeting(b"PLAIN") + command(b"HELLO", b"\x03ann\x05wrong")
    started = time.monotonic()
    for _ in range(4):
        with RawPeer(broker.endpoint) as peer:
            peer.send(guess)
            assert b"ERROR" in peer.hung_up()
    assert time.monotonic() - started > 0.1 + 0.2 + 0.4
    assert "one failed login from tcp://localhost; passwords from there wait 0.1 s" in caplog.text
    url = broker.url.replace("mdp://", "mdp://ann:secret@")
    with requite.Client(url, service="mmi.ping", timeout=30.0) as client:
        assert client.call(b"").body
