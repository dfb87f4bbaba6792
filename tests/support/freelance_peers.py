"""Freelance peers on raw pyzmq sockets, written from the Guide's description and 10/FLP.

They share no code with requite, so a mistake in its codecs cannot go unnoticed. Each server runs on
a thread, and ends when it receives a message on an inproc socket. Every wait has a time limit.
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
    """Echo a REP socket's request (`flserver1`)."""
    return message


def ok_model_two(message: Frames) -> Frames:
    """Answer OK with the sequence number of the request (`flserver2`)."""
    assert len(message) == 2, message
    return [message[0], b"OK"]


def ok_model_three(message: Frames) -> Frames | None:
    """Answer PONG to PING, and OK with the control frame of a request (`flserver3`)."""
    client, *rest = message
    if rest == [b"PING"]:
        return [client, b"PONG"]
    return [client, rest[0], b"OK"] if len(rest) > 1 else None


class PeerServer:
    """A server on a thread. `kind` is zmq.REP or zmq.ROUTER; `answer` returns the reply to a
    message, or None for no reply.

    A ROUTER's identity is its endpoint.
    """

    def __init__(self, kind: int, answer: Answer, endpoint: str = "tcp://127.0.0.1:*") -> None:
        self.seen: list[Frames] = []
        self._is_silent = threading.Event()
        self._resumed = threading.Event()
        self._kind, self._answer = kind, answer
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._bell = self._context.socket(zmq.PAIR)
        self._bell.bind("inproc://stop")
        self._socket = self._bind(endpoint)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _bind(self, endpoint: str) -> zmq.Socket[bytes]:
        """Bind a socket. A ROUTER's identity must be set before it binds and has the port in it, so
        a probe finds a free port first."""
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
            except zmq.ZMQError:  # libzmq closes the probe's port in the background
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
        if self._is_silent.is_set():
            self._resumed.wait()
            if self._kind == zmq.ROUTER:
                return
        answer = self._answer(message)
        if answer is not None:
            self._socket.send_multipart(answer)

    def silence(self) -> None:
        """Stop reading and answering, as in a busy loop, until `speak` or `close`."""
        self._resumed.clear()
        self._is_silent.set()

    def speak(self) -> None:
        """Resume. A REP socket answers the request that it has read; a ROUTER drops it."""
        self._is_silent.clear()
        self._resumed.set()

    @property
    def place(self) -> str:
        """Host and port of the endpoint."""
        return self.endpoint.removeprefix("tcp://")

    def requests(self) -> list[Frames]:
        """Return the received messages without PINGs."""
        return [message for message in self.seen if message[-1] != b"PING"]

    def close(self) -> None:
        """Stop the server and close its connections."""
        self.speak()
        if self._thread.is_alive():
            self._bell.send(b"")
            self._thread.join(WAIT_S)
        self._context.destroy(linger=0)


# --- clients --------------------------------------------------------------------------------------
def ask_model_one(endpoints: list[str], request: Frames, timeout_s: float = 1.0) -> Frames | None:
    """Send a request to one server after the other, until one replies within `timeout_s`
    (`flclient1`). Return its reply, or None."""
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
    """A DEALER socket that sends each request to all servers (`flclient2`)."""

    def __init__(self, endpoints: list[str]) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._servers = len(endpoints)
        self._sequence = 0
        for endpoint in endpoints:
            self._socket.connect(endpoint)

    def ask(self, *body: bytes) -> Frames:
        """Send a request; return the body of the first reply with its sequence number."""
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
        """Close the socket; unsent messages are dropped."""
        self._context.destroy(linger=0)


class ModelThreeClient:
    """A ROUTER socket without an identity, which addresses servers by identity (`flcliapi`)."""

    def __init__(self, *endpoints: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        for endpoint in endpoints:
            self._socket.connect(endpoint)

    def send(self, endpoint: str, *frames: bytes) -> None:
        """Send a message to a server, as soon as its handshake has announced this identity."""
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
        """Return the identity of the sender, and the frames of its next message."""
        assert self._socket.poll(WAIT_S * 1000), "nothing came"
        server, *frames = self._socket.recv_multipart()
        return server.decode(), frames

    def close(self) -> None:
        """Close the socket; unsent messages are dropped."""
        self._context.destroy(linger=0)
