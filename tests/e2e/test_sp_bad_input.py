"""Bad input on real sockets over SP: errors are clear, nothing hangs or leaks, others are served.

Each test keeps a healthy client connected to a worker. The client must be served afterwards as
before, and all file descriptors that a test opened must be closed at its end.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest
from tests.e2e.sp_scene import (
    MESSAGE,
    SILENCE_S,
    Scene,
    both_loops,
    loop,
    no_leaks,
    scene,
    short_handshake_timeout,
    warm,
    web,
)
from tests.support.descriptors import how_many
from tests.support.live import eventually
from tests.support.patience import failure
from tests.support.sp_hand import REP, REQ, HandPeer, Hands, deep, hands, header
from tests.support.sp_live import WAIT_S, Loop, echo
from tests.support.sp_wires import (
    IPC,
    TCP,
    TLS,
    WS,
    WSS,
    Places,
    Wire,
    certificates,
    places,
)

import requite

__all__ = [
    "certificates",
    "hands",
    "loop",
    "no_leaks",
    "places",
    "scene",
    "short_handshake_timeout",
    "warm",
    "web",
]

pytestmark = pytest.mark.e2e


# --- bytes ----------------------------------------------------------------------------------------
GOOD = header(REQ) + len(MESSAGE).to_bytes(8, "big") + MESSAGE


@both_loops
def test_a_conversation_cut_after_any_byte(scene: Scene) -> None:
    for end in range(len(GOOD)):
        with HandPeer.dial(scene.place) as peer:
            peer.write(GOOD[:end])
    scene.assert_unharmed()


def test_a_conversation_damaged_at_any_byte(scene: Scene) -> None:
    source = random.Random("damage")
    for at in range(len(GOOD)):
        damaged = bytearray(GOOD)
        damaged[at] ^= source.randrange(1, 256)
        with HandPeer.dial(scene.place) as peer:
            peer.write(bytes(damaged))
    scene.assert_unharmed()


@pytest.mark.parametrize("wire", [TCP, IPC, TLS, WS, WSS], ids=str)
def test_noise(wire: Wire, loop: Loop, places: Places) -> None:
    scene = Scene(loop, places.new(wire))
    source = random.Random(wire.name)
    for _ in range(50):
        with HandPeer.dial(scene.place) as peer:
            peer.write(source.randbytes(source.randrange(1, 2000)))
    scene.assert_unharmed()


@both_loops
def test_a_message_of_two_to_the_63_bytes_is_refused_by_its_length(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    with HandPeer.dial(scene.place) as peer:
        peer.greet(REQ)
        peer.write((1 << 63).to_bytes(8, "big"))
        assert peer.hung_up() == b""
    assert str(1 << 63) in caplog.text
    assert "the maximum is" in caplog.text
    scene.assert_unharmed()


# --- silence --------------------------------------------------------------------------------------
@pytest.mark.parametrize("wire", [TCP, IPC, TLS, WS, WSS], ids=str)
@pytest.mark.usefixtures("short_handshake_timeout")
def test_a_missing_header_times_out(
    wire: Wire, loop: Loop, places: Places, hands: Hands, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(loop, places.new(wire))
    silent = [hands.dial(scene.place) for _ in range(5)]
    silent[1].write(header(REQ)[:7])
    silent[2].write(b"GET /rpc HTTP/1.1\r\nHost: x\r\n")
    for peer in silent:
        peer.hung_up()
    assert f"within {SILENCE_S:g} s" in caplog.text
    scene.assert_unharmed()


@pytest.mark.usefixtures("short_handshake_timeout")
@both_loops
def test_a_peer_may_be_silent_after_its_header(scene: Scene, hands: Hands) -> None:
    client, other = hands.client(scene.place), hands.dial(scene.place)
    other.hung_up()
    client.send(deep(1) + b"x")
    assert client.receive() == deep(1) + b"x"


@pytest.mark.usefixtures("short_handshake_timeout")
def test_a_service_without_a_header_is_reported_to_the_caller(
    loop: Loop, places: Places, hands: Hands
) -> None:
    listener = hands.listen(places.new())
    client = loop.client(listener.place)
    error = failure(
        requite.CallTimeout,
        f"within {SILENCE_S:g} s",
        lambda timeout: loop.ask(client, b"x", timeout=timeout),
    )
    assert error.may_have_executed is False


# --- listening ------------------------------------------------------------------------------------
def listen_errors(loop: Loop, url: str) -> list[str]:
    """Return the errors of a worker, a device and both clients that cannot listen at `url`."""
    errors = []
    device = requite.sp.Device(front=[url], connect_back=["sp+tcp://127.0.0.1:1"], insecure=True)
    for endpoint in (requite.Worker(echo, bind=url, insecure=True), device):
        with pytest.raises(requite.TransportError) as failed:
            loop.do(endpoint.start())
        loop.do(endpoint.close())
        errors.append(str(failed.value))
    client = requite.AsyncClient(bind=url, insecure=True)
    with pytest.raises(requite.TransportError) as failed:
        loop.do(client.__aenter__())
    loop.do(client.close())
    errors.append(str(failed.value))
    with (
        pytest.raises(requite.TransportError) as failed,
        requite.Client(bind=url, insecure=True) as blocking,
    ):
        blocking.call(b"x", timeout=1)
    return [*errors, str(failed.value)]


@pytest.mark.parametrize("wire", [TCP, TLS, WS, IPC], ids=str)
@both_loops
def test_an_address_in_use_is_refused(wire: Wire, loop: Loop, places: Places) -> None:
    scene = Scene(loop, places.new(wire))
    for error in listen_errors(loop, scene.place.listening()):
        assert "in use" in error or "another process is listening there" in error
        assert scene.place.listening().partition("?")[0].removeprefix("sp+") in error
    scene.assert_unharmed()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sp+tcp://192.0.2.1:7000", "192.0.2.1"),
        ("sp+tcp://no-such-host.invalid:7000", "no-such-host.invalid"),
        ("sp+ipc:///nowhere/to/be/found.sock", "/nowhere/to/be/found.sock"),
    ],
)
def test_an_address_of_another_host_is_refused(url: str, expected: str, loop: Loop) -> None:
    for error in listen_errors(loop, url):
        assert expected in error


@both_loops
def test_a_stale_socket_is_replaced_and_any_other_file_is_not(loop: Loop, places: Places) -> None:
    stale, other = places.new(IPC), places.new(IPC)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(stale.file)
        listener.listen()
    Scene(loop, stale)
    Path(other.file).write_text("precious")
    for error in listen_errors(loop, other.listening()):
        assert other.file in error
    assert Path(other.file).read_text() == "precious"


def test_if_one_address_cannot_be_bound_the_others_are_released(
    scene: Scene, loop: Loop, places: Places
) -> None:
    """The addresses that were bound already are released."""
    good = places.new(IPC)
    worker = requite.Worker(echo, bind=[good.listening(), scene.place.listening()])
    with pytest.raises(requite.TransportError):
        loop.do(worker.start())
    loop.do(worker.close())
    assert not Path(good.file).exists()
    Scene(loop, good)


# --- many at once ---------------------------------------------------------------------------------
@pytest.mark.parametrize("wire", [TCP, TLS, WS, IPC], ids=str)
@both_loops
def test_closed_connections_leave_no_descriptor(wire: Wire, loop: Loop, places: Places) -> None:
    scene = Scene(loop, places.new(wire))
    before = how_many()
    for number in range(30):
        client = requite.AsyncClient(scene.place.dialling())
        assert loop.ask(client, b"%d" % number) == b"%d" % number
        loop.do(client.close())
        with requite.Client(scene.place.dialling()) as blocking:
            assert blocking.call(b"%d" % number, timeout=WAIT_S).body == b"%d" % number
    eventually(lambda: how_many() <= before, "all connections are closed")
    scene.assert_unharmed()


def test_log_lines_about_many_bad_peers_are_limited(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(500):
        with HandPeer.dial(scene.place) as peer:
            peer.write(header(16))
            peer.hung_up()
    lines = [record for record in caplog.records if "PAIR" in record.getMessage()]
    took_s = lines[-1].created - lines[0].created
    assert 1 <= len(lines) <= took_s + 20
    scene.assert_unharmed()


def test_a_client_pauses_between_connection_attempts(
    loop: Loop, places: Places, hands: Hands
) -> None:
    """A client waits before it reconnects to a listener that closes each connection."""
    listener = hands.listen(places.new())
    client = loop.client(listener.place)
    call = loop.begin(client.call(b"x", timeout=2.0))
    accepted = 0
    while not call.done():
        if listener.has_caller(0.1):
            accepted += 1
    assert isinstance(call.exception(), requite.CallTimeout)
    assert 2 <= accepted <= 40


def test_a_rep_refuses_another_rep(scene: Scene, loop: Loop) -> None:
    """A REP closes the connection of another REP after the header."""
    loop.worker(scene.place)
    with HandPeer.dial(scene.place) as peer:
        peer.write(header(REP))
        assert peer.hung_up() == header(REP)
    scene.assert_unharmed()
