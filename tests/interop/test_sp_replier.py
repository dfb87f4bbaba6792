"""REP with valid and invalid clients, byte by byte: requite's worker and nng's socket.

Tests point out where the two differ: the draft leaves a choice, or nng departs from it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support import sp_nng
from tests.support.live import eventually
from tests.support.sp_hand import BOTTOM, REP, REQ, HandPeer, Hands, deep, header, tags
from tests.support.sp_live import Loop
from tests.support.sp_nng import Nng
from tests.support.sp_wires import IPC, TCP, TLS, Place, Places, Wire

import requite

pytestmark = pytest.mark.interop

QUIET_S = 0.15  # without input for so long, none is expected
LIMIT = 1 << 20
WIRES = [TCP, IPC, TLS]

Serve = Callable[[Wire], Place]


@pytest.fixture(params=["requite", "nng"])
def maker(request: pytest.FixtureRequest) -> str:
    """The implementation of the REP."""
    maker: str = request.param
    return maker


@pytest.fixture
def serve(maker: str, nng: Nng, loop: Loop, places: Places) -> Serve:
    """A function that starts an echo service on a wire, and returns its place."""

    def start(wire: Wire = TCP) -> Place:
        if maker == "nng":
            return sp_nng.listen(nng.rep(recv_max_size=LIMIT).socket, places.new(wire))
        return loop.listening_worker(places.new(wire), message_size_max=LIMIT)

    return start


def is_served(peer: HandPeer) -> bool:
    """Return whether a call on this connection gets its reply."""
    peer.send(deep(1, request_id=99) + b"still there?")
    return peer.receive() == deep(1, request_id=99) + b"still there?"


# --- headers --------------------------------------------------------------------------------------
@pytest.mark.parametrize("wire", WIRES, ids=str)
def test_the_header_comes_without_waiting_for_ours(serve: Serve, wire: Wire, hands: Hands) -> None:
    assert hands.dial(serve(wire)).read(8) == header(REP)


@pytest.mark.parametrize("wire", WIRES, ids=str)
def test_a_header_may_come_in_pieces_and_a_request_with_it(
    serve: Serve, wire: Wire, hands: Hands
) -> None:
    peer = hands.dial(serve(wire))
    spoken = header(REQ) + peer.frame(deep(1) + b"Hello")
    for number in range(len(spoken) - 1):
        peer.write(spoken[number : number + 1])
    peer.write(spoken[-1:] + peer.frame(deep(1, request_id=8) + b"World"))
    assert peer.read(8) == header(REP)
    assert peer.receive() == deep(1) + b"Hello"
    assert peer.receive() == deep(1, request_id=8) + b"World"


@pytest.mark.parametrize(
    "said",
    [
        header(REP),
        header(16),
        header(17),
        header(98),
        header(0),
        b"\0SP\x01\0\x30\0\0",
        b"\0SP\0\0\x30\0\x01",
        b"\0SP\0\0\x30\x01\0",
        b"\x01SP\0\0\x30\0\0",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\xff" * 64,
        bytes(64),
        b"\0SP\0\xff\xff\0\0",
    ],
    ids=lambda said: said[:8].hex(),
)
def test_whoever_is_no_client_is_hung_up_on(said: bytes, serve: Serve, hands: Hands) -> None:
    place = serve(TCP)
    stranger, client = hands.dial(place), hands.client(place)
    stranger.write(said)
    assert stranger.hung_up() in (b"", header(REP))
    assert is_served(client)


def test_the_log_names_the_type_of_a_stranger(
    loop: Loop, places: Places, hands: Hands, caplog: pytest.LogCaptureFixture
) -> None:
    peer = hands.dial(loop.listening_worker(places.new()))
    peer.write(header(16))
    peer.hung_up()
    eventually(lambda: "16" in caplog.text, "a line in the log")
    assert "PAIR" in caplog.text
    assert "REP" in caplog.text


# --- the stack ------------------------------------------------------------------------------------
@pytest.mark.parametrize("wire", WIRES, ids=str)
def test_the_whole_stack_comes_back(serve: Serve, wire: Wire, hands: Hands) -> None:
    """The figure of the draft: "Hello" through two devices."""
    peer = hands.client(serve(wire))
    stack = tags(446, 299, BOTTOM | 823)
    peer.send(stack + b"Hello")
    assert peer.receive() == stack + b"Hello"


@pytest.mark.parametrize("depth", [1, 2, 7, 8])
def test_up_to_eight_tags_are_answered(depth: int, serve: Serve, hands: Hands) -> None:
    peer = hands.client(serve(TCP))
    peer.send(deep(depth) + b"x")
    assert peer.receive() == deep(depth) + b"x"


@pytest.mark.parametrize("depth", [9, 10, 100])
def test_more_tags_are_dropped_and_the_connection_is_kept(
    depth: int, serve: Serve, hands: Hands
) -> None:
    peer = hands.client(serve(TCP))
    peer.send(deep(depth) + b"x")
    assert is_served(peer)


def test_the_user_sets_how_many_tags_are_taken(loop: Loop, places: Places, hands: Hands) -> None:
    peer = hands.client(loop.listening_worker(places.new(), hops=2))
    peer.send(deep(2) + b"x")
    assert peer.receive() == deep(2) + b"x"
    peer.send(deep(3) + b"x")
    assert is_served(peer)


@pytest.mark.parametrize("request_id", [0, 1, BOTTOM - 1])
def test_any_request_id_will_do(request_id: int, serve: Serve, hands: Hands) -> None:
    peer = hands.client(serve(TCP))
    peer.send(tags(BOTTOM | request_id) + b"x")
    assert peer.receive() == tags(BOTTOM | request_id) + b"x"


@pytest.mark.parametrize(
    "payload", [b"", b"abc", tags(1), tags(1, 2, 3), tags(1, 2) + b"abc"], ids=bytes.hex
)
def test_a_request_without_a_bottom_is_ignored(
    payload: bytes, maker: str, serve: Serve, hands: Hands
) -> None:
    """requite keeps the connection, since the draft says to ignore the request; nng closes it."""
    place = serve(TCP)
    peer, client = hands.client(place), hands.client(place)
    peer.send(payload)
    if maker == "nng":
        assert peer.hung_up() == b""
    else:
        assert is_served(peer)
    assert is_served(client)


# --- sizes ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("wire", WIRES, ids=str)
@pytest.mark.parametrize("size", [2 * LIMIT, 1 << 40, 1 << 63, (1 << 64) - 1])
def test_an_announcement_over_the_limit_is_refused_at_once(
    size: int, wire: Wire, serve: Serve, hands: Hands
) -> None:
    """No byte of the payload is read first."""
    place = serve(wire)
    peer, client = hands.client(place), hands.client(place)
    peer.write(peer.frame(b"")[:-8] + size.to_bytes(8, "big"))
    assert peer.hung_up() == b""
    assert is_served(client)


@pytest.mark.parametrize("kind", [0, 2, 255])
def test_over_ipc_only_messages_of_type_1_are_taken(kind: int, serve: Serve, hands: Hands) -> None:
    place = serve(IPC)
    peer, client = hands.client(place), hands.client(place)
    peer.write(bytes([kind]) + peer.frame(deep(1) + b"x")[1:])
    assert peer.hung_up() == b""
    assert is_served(client)


# --- the end of connections -----------------------------------------------------------------------
@pytest.mark.parametrize("at", [1, 8, 12, 20])
def test_a_connection_cut_in_the_middle_of_a_request(at: int, serve: Serve, hands: Hands) -> None:
    place = serve(TCP)
    peer, client = hands.client(place), hands.client(place)
    peer.write(peer.frame(deep(1) + b"a request of some length")[:at])
    peer.close()
    assert is_served(client)


def test_a_client_that_reads_no_replies_stops_nobody(
    loop: Loop, hands: Hands, places: Places
) -> None:
    """Unread replies are dropped. nng's REP blocks instead, and serves no other client."""
    place = loop.listening_worker(places.new())
    hog, client = hands.client(place), hands.client(place)
    ask = hog.frame(deep(1) + bytes(1000)) * 100
    hog.socket.setblocking(False)
    sent = 0
    while sent < 64 << 20:
        try:
            sent += hog.socket.send(ask[sent % len(ask) :])
        except BlockingIOError:
            if not is_served(client) or hog.is_stuck(QUIET_S):
                break
    assert is_served(client)


# --- cancelling -----------------------------------------------------------------------------------
def test_a_request_that_the_handler_refuses_gets_no_reply(
    loop: Loop, places: Places, hands: Hands
) -> None:
    """SP has no negative reply: the request is cancelled, and the connection remains."""

    @requite.service("picky")
    async def picky(request: requite.Request) -> bytes:
        if request.body == b"bad":
            raise requite.RemoteFailure("no such thing")
        return request.body

    peer = hands.client(loop.listening_worker(places.new(), service=picky))
    peer.send(deep(1) + b"bad")
    assert is_served(peer)
