"""Freelance peers on raw pyzmq sockets, written after the Guide's description and 10/FLP.

Nothing of requite is used, so that a slip in its codecs cannot hide itself. Servers run in threads
and end by a message on a socket of their own; every wait has a limit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Final

import zmq

WAIT_S: Final = 20.0

Frames = list[bytes]
Answer = Callable[[Frames], Frames | None]


def echo_model_one(message: Frames) -> Frames:
    """Answer a REP socket's request with itself (`flserver1`)."""
    return message


def ok_model_two(message: Frames) -> Frames:
    """Keep the sequence and say OK (`flserver2`)."""
    assert len(message) == 2, message
    return [message[0], b"OK"]


def ok_model_three(message: Frames) -> Frames | None:
    """Answer PING, and keep the control frame of anything longer (`flserver3`)."""
    client, *rest = message
    if rest == [b"PING"]:
        return [client, b"PONG"]
    return [client, rest[0], b"OK"] if len(rest) > 1 else None


class PeerServer:
    """A server on a thread: `kind` is zmq.REP or zmq.ROUTER; `answer` makes what it sends back.

    Of a ROUTER the endpoint is the identity.
    """

    def __init__(self, kind: int, answer: Answer, endpoint: str = "tcp://127.0.0.1:*") -> None:
        self.seen: list[Frames] = []
        self.mute = threading.Event()
        self.heard = threading.Event()  # lets a mute server go on
        self._kind, self._answer = kind, answer
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._bell = self._context.socket(zmq.PAIR)
        self._bell.bind("inproc://stop")
        self._socket = self._bind(endpoint)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _bind(self, endpoint: str) -> zmq.Socket[bytes]:
        """Bind; a ROUTER's identity has to be known before, so a free port is found first."""
        if endpoint.endswith(":*"):
            with self._context.socket(zmq.REP) as probe:
                probe.bind(endpoint)
                endpoint = probe.last_endpoint.decode().rstrip("\0")
        self.endpoint = endpoint
        sock = self._context.socket(self._kind)
        sock.linger = 0
        if self._kind == zmq.ROUTER:
            sock.setsockopt(zmq.IDENTITY, endpoint.encode())
        end = monotonic() + WAIT_S
        while True:
            try:
                sock.bind(endpoint)
            except zmq.ZMQError:  # the probe's port is still being given back
                assert monotonic() < end
            else:
                return sock

    def _serve(self) -> None:
        stop = self._context.socket(zmq.PAIR)
        stop.connect("inproc://stop")
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(stop, zmq.POLLIN)
        while stop not in (ready := dict(poller.poll())):
            if self._socket in ready:
                self._take(self._socket.recv_multipart())
        self._socket.close()
        stop.close()

    def _take(self, message: Frames) -> None:
        self.seen.append(message)
        if self.mute.is_set():
            self.heard.wait()
            if self._kind == zmq.ROUTER:
                return
        answer = self._answer(message)
        if answer is not None:
            self._socket.send_multipart(answer)

    def silence(self) -> None:
        """Read no more and say nothing, as in a busy loop, until `close` or `speak`."""
        self.heard.clear()
        self.mute.set()

    def speak(self) -> None:
        """Go on; a REP socket answers what it has read."""
        self.mute.clear()
        self.heard.set()

    @property
    def place(self) -> str:
        """Host and port."""
        return self.endpoint.removeprefix("tcp://")

    def requests(self) -> list[Frames]:
        """What came that is no ping."""
        return [message for message in self.seen if message[-1] != b"PING"]

    def close(self) -> None:
        """End; its connections are closed."""
        self.speak()
        if self._thread.is_alive():
            self._bell.send(b"")
            self._thread.join(WAIT_S)
        self._context.destroy(linger=0)


# --- clients --------------------------------------------------------------------------------------
def ask_model_one(endpoints: list[str], request: Frames, timeout_s: float = 1.0) -> Frames | None:
    """Try each server once with a REQ socket (`flclient1`)."""
    with zmq.Context() as context:
        for endpoint in endpoints:
            with context.socket(zmq.REQ) as sock:
                sock.linger = 0
                sock.connect(endpoint)
                sock.send_multipart(request)
                if sock.poll(timeout_s * 1000):
                    return sock.recv_multipart()
    return None


class ModelTwoClient:
    """A DEALER socket that asks all servers (`flclient2`)."""

    def __init__(self, endpoints: list[str]) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._servers = len(endpoints)
        self._sequence = 0
        for endpoint in endpoints:
            self._socket.connect(endpoint)

    def ask(self, *body: bytes) -> Frames:
        """Return the body of the first reply that fits."""
        self._sequence += 1
        for _ in range(self._servers):
            self._socket.send_multipart([b"", b"%d" % self._sequence, *body])
        end = monotonic() + WAIT_S
        while self._socket.poll(max(0.0, end - monotonic()) * 1000):
            empty, sequence, *reply = self._socket.recv_multipart()
            assert empty == b""
            if int(sequence) == self._sequence:
                return reply
        raise AssertionError("no reply")

    def close(self) -> None:
        """Close at once."""
        self._context.destroy(linger=0)


class ModelThreeClient:
    """A ROUTER socket without an identity, which addresses servers by theirs (`flcliapi`)."""

    def __init__(self, *endpoints: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        for endpoint in endpoints:
            self._socket.connect(endpoint)

    def send(self, endpoint: str, *frames: bytes) -> None:
        """Send to the server of that name, as soon as it is known by it."""
        end = monotonic() + WAIT_S
        while True:
            try:
                self._socket.send_multipart([endpoint.encode(), *frames])
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH:
                    raise
                assert monotonic() < end, f"nobody is known as {endpoint}"
                self._socket.poll(10)
            else:
                return

    def receive(self) -> tuple[str, Frames]:
        """Return who spoke, and what."""
        assert self._socket.poll(WAIT_S * 1000), "nothing came"
        server, *frames = self._socket.recv_multipart()
        return server.decode(), frames

    def close(self) -> None:
        """Close at once."""
        self._context.destroy(linger=0)
