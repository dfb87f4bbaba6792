"""The memory of framings whose connections are idle; sockets and streams are not included."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from requite.framing import Framing, SocketType, SpStream, Zmtp
from requite.framing.websocket import SpWebSocket
from requite.protocols.scalability.wire import REP, REQ

_COUNT = 200

Make = Callable[[], Framing]


def zmtp(own: SocketType, *features: str) -> Make:
    return lambda: Zmtp(own, features=features)


def websocket(*, is_client: bool) -> Make:
    own, peer = (REQ, REP) if is_client else (REP, REQ)
    return lambda: SpWebSocket(own, peer, is_client=is_client, host="localhost", path="/")


def connect(listener: Framing, client: Framing) -> None:
    """Complete the handshake of two framings."""
    to_listener, to_client = client.opening(), listener.opening()
    while to_listener or to_client:
        for framing, chunk in ((listener, to_listener), (client, to_client)):
            if chunk:
                framing.receive(chunk)
        to_listener, to_client = client.output(), listener.output()
    assert listener.ready
    assert client.ready


@pytest.mark.parametrize(
    ("make_listener", "make_client", "size_max"),
    [
        # 330 bytes on CPython 3.11, and 700 with empty lists and sets of their own.
        (zmtp(SocketType.ROUTER), zmtp(SocketType.DEALER, "denied", "principals"), 450),
        # 250 and 500 bytes.
        (lambda: SpStream(REP, REQ), lambda: SpStream(REQ, REP), 350),
        # 600 and 7,000 bytes: wsproto's objects.
        (websocket(is_client=False), websocket(is_client=True), 1000),
    ],
    ids=["ZMTP", "SP", "WebSocket"],
)
def test_the_listener_of_an_idle_connection_holds_little(
    make_listener: Make, make_client: Make, size_max: int
) -> None:
    connect(make_listener(), make_client())  # what is made once
    kept = []
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(_COUNT):
            listener = make_listener()
            connect(listener, make_client())
            kept.append(listener)
        size = (tracemalloc.get_traced_memory()[0] - before) / len(kept)
    finally:
        tracemalloc.stop()
    assert size <= size_max
