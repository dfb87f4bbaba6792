"""nng peers through pynng: REQ, REP, and devices, for which pynng exposes only the C function."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

import pynng
import pytest
from pynng import TLSConfig, check_err, ffi, lib
from tests.support.sp_wires import Place

WAIT_S: Final = 20.0  # time limit of each wait; only a failing test reaches it
SIZE_MAX: Final = 8 << 20
_RECONNECT_MS: Final = 20

Answer = Callable[[bytes], bytes | None]


def port_of(listener: Any, place: Place) -> Place:
    """Return a listener's place with its actual port; WebSockets report it only by this option."""
    if place.file:
        return place
    port = ffi.new("int *")
    check_err(lib.nng_listener_get_int(listener.listener, b"tcp-bound-port", port))
    return place.at(port[0])


def prepare(socket: pynng.Socket, **options: int) -> None:
    """Set a socket's options: fast reconnects, large messages, and time limits."""
    settings: dict[str, int] = {
        "reconnect_time_min": _RECONNECT_MS,
        "reconnect_time_max": _RECONNECT_MS,
        "recv_max_size": SIZE_MAX,
        "recv_timeout": int(WAIT_S * 1000),
        "send_timeout": int(WAIT_S * 1000),
    }
    for name, value in (settings | options).items():
        setattr(socket, name, value)


def listen(socket: pynng.Socket, place: Place, **tls: Any) -> Place:
    """Listen at a place; return it with its actual port. `tls` has options of `TLSConfig`."""
    if place.wire.is_secure:
        socket.tls_config = TLSConfig(TLSConfig.MODE_SERVER, **own(place), **tls)
    return port_of(socket.listen(place.nng), place)


def dial(socket: pynng.Socket, place: Place, **tls: Any) -> None:
    """Dial a place in the background, with retries. `tls` has options of `TLSConfig`."""
    if place.wire.is_secure:
        ca = place.certificates.ca.read_text()
        settings = {"ca_string": ca, "server_name": "localhost"} | tls
        socket.tls_config = TLSConfig(TLSConfig.MODE_CLIENT, **settings)
    socket.dial(place.nng, block=False)


def own(place: Place) -> dict[str, str]:
    """Return the options of `TLSConfig` that present the valid certificate."""
    return {
        "own_cert_string": place.certificates.certificate.read_text(),
        "own_key_string": place.certificates.key.read_text(),
    }


def join(socket: pynng.Socket, place: Place, listens: bool) -> Place:
    """Listen at a place or dial it; return it with its actual port."""
    if listens:
        return listen(socket, place)
    dial(socket, place)
    return place


class NngReq:
    """A client: a REQ socket."""

    def __init__(self, **options: int) -> None:
        self.socket = pynng.Req0()
        prepare(self.socket, **options)

    def ask(self, body: bytes) -> bytes:
        """Send a request; wait for its reply and return it."""
        self.socket.send(body)
        reply: bytes = self.socket.recv_msg().bytes  # `recv` cannot return an empty one
        return reply

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


class NngRep:
    """A service on a thread: a REP socket. `answer` returns the reply to a body, or None to drop
    the request."""

    def __init__(self, answer: Answer = bytes, **options: int) -> None:
        self.socket = pynng.Rep0()
        prepare(self.socket, **({"recv_timeout": -1} | options))
        self.requests: list[bytes] = []
        self._answer = answer
        self._thread = threading.Thread(target=self._serve, name="nng service")
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                body = self.socket.recv_msg().bytes
                self.requests.append(body)
                if (reply := self._answer(body)) is not None:
                    self.socket.send(reply)
            except pynng.Closed:
                return

    def close(self) -> None:
        """Close the socket and end the thread."""
        self.socket.close()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


class NngContexts:
    """An echo service with `n` contexts of one REP socket, each on a thread."""

    def __init__(self, n: int) -> None:
        self.socket = pynng.Rep0()
        prepare(self.socket, recv_timeout=-1)
        self._threads = [threading.Thread(target=self._serve) for _ in range(n)]
        for thread in self._threads:
            thread.start()

    def _serve(self) -> None:
        with suppress(pynng.Closed), self.socket.new_context() as context:
            while True:
                context.send(context.recv())

    def close(self) -> None:
        """Close the socket and end the threads."""
        self.socket.close()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()


class NngDevice:
    """A device on a thread: `nng_device` between a raw REP and a raw REQ socket."""

    def __init__(self) -> None:
        self.front = pynng.Socket(opener=lib.nng_rep0_open_raw)
        self.back = pynng.Socket(opener=lib.nng_req0_open_raw)
        for socket in (self.front, self.back):
            prepare(socket, recv_timeout=-1, send_timeout=-1)
        self._thread = threading.Thread(target=self._forward, name="nng device")
        self._thread.start()

    def _forward(self) -> None:
        lib.nng_device(self.front.socket, self.back.socket)  # returns when a socket is closed

    def close(self) -> None:
        """Close both sockets and end the thread."""
        self.front.close()
        self.back.close()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


class Nng:
    """Creates nng peers, and closes them after the test."""

    def __init__(self) -> None:
        self._made: list[NngReq | NngRep | NngContexts | NngDevice] = []
        self._pools: list[ThreadPoolExecutor] = []

    def req(self, **options: int) -> NngReq:
        """Create a client."""
        return self._keep(NngReq(**options))

    def rep(self, answer: Answer = bytes, **options: int) -> NngRep:
        """Create a service."""
        return self._keep(NngRep(answer, **options))

    def rep_with_contexts(self, n: int) -> NngContexts:
        """Create an echo service that answers `n` requests concurrently."""
        return self._keep(NngContexts(n))

    def device(self) -> NngDevice:
        """Create a device."""
        return self._keep(NngDevice())

    def in_background(self, function: Callable[[bytes], bytes]) -> Callable[[bytes], Future[bytes]]:
        """Return a function that runs `function` on a thread, and returns the future of its
        result."""
        pool = ThreadPoolExecutor()
        self._pools.append(pool)
        return lambda body: pool.submit(function, body)

    def _keep(self, peer: Any) -> Any:
        self._made.append(peer)
        return peer

    def close(self) -> None:
        """Close all peers, the newest first, and wait for the background calls."""
        for peer in reversed(self._made):
            peer.close()
        for pool in self._pools:
            pool.shutdown()


@pytest.fixture
def nng() -> Iterator[Nng]:
    """nng peers."""
    nng = Nng()
    yield nng
    nng.close()
