"""Bad peers at a broker with CURVE, on real sockets: none is admitted, each is told and dropped,
and a healthy client and worker are served as before."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from secrets import token_bytes
from time import monotonic, process_time
from urllib.parse import quote

import pytest
from tests.support.curve import (
    CLIENT,
    CLIENT_SECRET,
    SERVER,
    SERVER_PUBLIC,
    SERVER_SECRET,
    STRANGER,
    client_of,
    encoded,
)
from tests.support.live import Live, LiveBroker, MakeBroker
from tests.support.zmq_peers import WAIT_S

import requite
from requite.errors import RemoteViolation
from requite.framing import SocketType, Zmtp
from requite.framing.zmtp_curve import CurveClient, KeyPair
from requite.shell.curve import CurveListener
from requite.shell.link import LinkLimits

pytestmark = pytest.mark.e2e

HALF_HANDSHAKES = 300
HANDSHAKE_S = 3.0


@requite.service("echo")
async def echo(request: requite.Request) -> bytes:
    """Return the body of the request."""
    return request.body


class Scene:
    """A broker with CURVE, and a healthy client and worker."""

    def __init__(self, broker: LiveBroker, client: requite.Client) -> None:
        self.broker = broker
        self.client = client
        host, _, port = broker.endpoint.removeprefix("tcp://").rpartition(":")
        self.place = host, int(port)

    def serve(self) -> float:
        """Make a call; return how long it took."""
        began = monotonic()
        assert self.client.call(b"are you well?", timeout=WAIT_S).body == b"are you well?"
        return monotonic() - began

    def dial(self) -> socket.socket:
        sock = socket.create_connection(self.place, timeout=WAIT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock


@pytest.fixture
def scene(make_broker: MakeBroker, workers: list[Live], tmp_path: Path) -> Iterator[Scene]:
    own = tmp_path / "server.key"
    own.write_text(SERVER_SECRET)
    mine = tmp_path / "client.key"
    mine.write_text(CLIENT_SECRET)
    for path in (own, mine):
        path.chmod(0o600)
    listener = CurveListener(own, lambda key: key == CLIENT.public_text)
    broker = make_broker(curve=listener, links=LinkLimits(handshake_timeout_s=HANDSHAKE_S))
    keys = f"curve={quote(SERVER_PUBLIC, safe='')}&curve_key_file={mine}"
    workers.append(Live(requite.Worker(f"{broker.url}?{keys}", echo)))
    with requite.Client(f"{broker.url}/echo?{keys}") as client:
        scene = Scene(broker, client)
        scene.serve()
        yield scene
        scene.serve()


def peer(own: KeyPair = CLIENT, server_key: bytes = SERVER.public) -> Zmtp:
    return Zmtp(SocketType.DEALER, mechanism=CurveClient(server_key, own, token_bytes))


def said_until_closed(sock: socket.socket) -> bytes:
    """Return what the broker sends until it closes the connection."""
    said = b""
    try:
        while chunk := sock.recv(65_536):
            said += chunk
    except ConnectionResetError:
        pass
    return said


def shake(sock: socket.socket, framing: Zmtp) -> None:
    """Complete the handshake, or raise the framing's error."""
    sock.sendall(framing.opening())
    while not framing.ready:
        chunk = sock.recv(65_536)
        assert chunk
        framing.receive(chunk)
        sock.sendall(framing.output())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (client_of().opening() + b"\x04\x06\x05HELLO", "malformed HELLO"),
        (client_of().opening() + b"\x06" + (1 << 40).to_bytes(8, "big"), "the maximum is 4096"),
        (client_of().opening() + b"\x04\x09\x08INITIATE", "requires b'HELLO'"),
        (client_of().opening() + b"\x04\x08\x07MESSAGE", "requires b'HELLO'"),
        (client_of().opening() + b"\x00\x05hello", "before the handshake was complete"),
        (Zmtp(SocketType.DEALER).opening(), "requires CURVE keys"),
    ],
    ids=["short HELLO", "long command", "no HELLO", "no handshake", "a message", "NULL"],
)
def test_bytes_that_are_no_handshake(
    data: bytes, reason: str, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    with scene.dial() as sock:
        sock.sendall(data)
        said = said_until_closed(sock)
    assert (b"\x05ERROR" in said) == (b"CURVE" in data)
    scene.broker.await_log(caplog, reason)


@pytest.mark.parametrize(
    ("own", "server_key", "told"),
    [
        (STRANGER, SERVER.public, "does not admit the key"),
        (CLIENT, STRANGER.public, "does not have the server key"),
    ],
)
def test_wrong_keys(own: KeyPair, server_key: bytes, told: str, scene: Scene) -> None:
    framing = peer(own, server_key)
    with scene.dial() as sock, pytest.raises(RemoteViolation, match=told):
        shake(sock, framing)


def test_frames_in_clear_text_after_the_handshake(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    framing = peer()
    with scene.dial() as sock:
        shake(sock, framing)
        sock.sendall(b"\x00\x05hello")
        assert b"ERROR" not in said_until_closed(sock)
    scene.broker.await_log(caplog, "not a MESSAGE of CURVE")


def test_a_replayed_request_ends_the_connection_and_is_not_run_again(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    framing = peer()
    with scene.dial() as sock:
        shake(sock, framing)
        request = encoded(framing, [b"MDPC02", b"\x01", b"echo", b"x"])
        sock.sendall(request)
        reply = framing.receive(sock.recv(65_536))
        assert reply[0][-1] == b"x"
        sock.sendall(request)
        said_until_closed(sock)
    scene.broker.await_log(caplog, "was sent before (a replay)")


def test_a_recorded_connection_cannot_be_replayed(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """The whole stream of a client, sent again: the cookie is of another connection."""
    framing = peer()
    record = []
    with scene.dial() as sock:
        sock.sendall(framing.opening())
        record.append(framing.opening())
        while not framing.ready:
            framing.receive(sock.recv(65_536))
            record.append(framing.output())
            sock.sendall(record[-1])
    with scene.dial() as sock:
        sock.sendall(b"".join(record))
        assert b"\x05ERROR" in said_until_closed(sock)
    scene.broker.await_log(caplog, "was not made for this connection")


def test_wrong_keys_do_not_delay_a_right_one(scene: Scene) -> None:
    """Nobody can guess a key of 32 bytes, so only passwords wait: 16 s, were these passwords."""
    began = monotonic()
    for _ in range(8):
        with scene.dial() as sock, pytest.raises(RemoteViolation, match="server key"):
            shake(sock, peer(server_key=STRANGER.public))
    with scene.dial() as sock:
        shake(sock, peer())
    assert monotonic() - began < 8.0


def test_a_flood_of_half_handshakes(scene: Scene) -> None:
    """Valid HELLOs, which anybody who knows the public key of the server can send: the broker
    serves meanwhile, and drops them when their time is over."""
    used, began = process_time(), monotonic()
    crowd = []
    for _ in range(HALF_HANDSHAKES):
        framing, sock = peer(), scene.dial()
        crowd.append(sock)
        sock.sendall(framing.opening())
        framing.receive(sock.recv(64, socket.MSG_WAITALL))
        sock.sendall(framing.output())
    scene.serve()
    per_hello_ms = 1000 * (process_time() - used) / HALF_HANDSHAKES
    assert per_hello_ms < 10, "of both sides in this process, on a busy machine; usually 0.6"
    for sock in crowd:
        said = said_until_closed(sock)
        assert said.startswith(b"\x04\xa8\x07WELCOME")
        sock.close()
    assert monotonic() - began < HANDSHAKE_S + WAIT_S
