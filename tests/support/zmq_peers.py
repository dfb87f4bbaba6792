"""Hand-written Majordomo peers on raw pyzmq sockets.

The frames follow the tables of 7/MDP and 18/MDP. The peers share no code with requite, so a mistake
in its codecs cannot go unnoticed. Every wait has a time limit; none is a sleep.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Any, Final

import zmq
from zmq.utils.monitor import recv_monitor_message

WAIT_S: Final = 30.0  # time limit of each wait; only a failing test reaches it

_EVENTS: Final = (
    zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
)

Frames = tuple[bytes, ...]


@dataclass(frozen=True)
class Rfc:
    """The heads of the commands of one MDP version: the frames with which each command starts."""

    version: str
    client_request: Frames
    client_partial: Frames | None
    client_final: Frames
    ready: Frames
    worker_request: Frames
    worker_partial: Frames | None
    worker_final: Frames
    heartbeat: Frames
    disconnect: Frames


RFC7: Final = Rfc(
    version="0.1",
    client_request=(b"", b"MDPC01"),
    client_partial=None,
    client_final=(b"", b"MDPC01"),
    ready=(b"", b"MDPW01", b"\x01"),
    worker_request=(b"", b"MDPW01", b"\x02"),
    worker_partial=None,
    worker_final=(b"", b"MDPW01", b"\x03"),
    heartbeat=(b"", b"MDPW01", b"\x04"),
    disconnect=(b"", b"MDPW01", b"\x05"),
)
RFC18: Final = Rfc(
    version="0.2",
    client_request=(b"MDPC02", b"\x01"),
    client_partial=(b"MDPC02", b"\x02"),
    client_final=(b"MDPC02", b"\x03"),
    ready=(b"MDPW02", b"\x01"),
    worker_request=(b"MDPW02", b"\x02"),
    worker_partial=(b"MDPW02", b"\x03"),
    worker_final=(b"MDPW02", b"\x04"),
    heartbeat=(b"MDPW02", b"\x05"),
    disconnect=(b"MDPW02", b"\x06"),
)
RFCS: Final = {rfc.version: rfc for rfc in (RFC7, RFC18)}


class Silence(AssertionError):
    """No message arrived within the time limit."""


class Sockets:
    """Creates the pyzmq sockets of a test, and closes them at its end."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._made: list[zmq.Socket[bytes]] = []

    def make(self, kind: int) -> zmq.Socket[bytes]:
        """Create a socket of this type."""
        return self.keep(self._context.socket(kind))

    def keep(self, socket: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
        """Register a socket of the context; return it."""
        self._made.append(socket)
        return socket

    def close(self) -> None:
        """Close all sockets; unsent messages are dropped."""
        self._context.destroy(linger=0)


class Socket:
    """A pyzmq socket that has dialled `endpoint`. `options` are socket options by name.

    libzmq does not reconnect after a rejected handshake, and then cannot send; `had_event` detects
    this.
    """

    def __init__(
        self,
        sockets: Sockets,
        kind: int,
        endpoint: str,
        identity: bytes = b"",
        **options: Any,
    ) -> None:
        self.zmq: zmq.Socket[bytes] = sockets.make(kind)
        self.zmq.linger = 0
        self.zmq.sndtimeo = int(WAIT_S * 1000)
        if identity:
            options["IDENTITY"] = identity
        for name, value in options.items():
            self.zmq.setsockopt(getattr(zmq, name), value)
        # Created before the connection, so that no event is missed.
        self._monitor = self.zmq.get_monitor_socket(_EVENTS)
        sockets.keep(self._monitor)
        self.zmq.connect(endpoint)

    def send(self, *frames: bytes) -> None:
        """Send one message of these frames."""
        self.zmq.send_multipart(frames)

    def receive(self, within_s: float = WAIT_S) -> list[bytes]:
        """Return the next message. Raises `Silence` if none arrives within `within_s` seconds."""
        if not self.has_message(within_s):
            raise Silence(f"nothing came within {within_s:g} s")
        return self.zmq.recv_multipart()

    def has_message(self, within_s: float = 0.0) -> bool:
        """Return whether a message arrives within `within_s` seconds."""
        return bool(self.zmq.poll(within_s * 1000, zmq.POLLIN))

    def had_event(self, event: int, within_s: float) -> bool:
        """Return whether libzmq reports this event, one of `_EVENTS`, within `within_s` seconds."""
        end = monotonic() + within_s
        while self._monitor.poll(max(0.0, end - monotonic()) * 1000):
            if recv_monitor_message(self._monitor)["event"] == event:
                return True
        return False

    def close(self) -> None:
        """Close the socket; unsent messages are dropped."""
        self.zmq.close(linger=0)

    def __enter__(self) -> Socket:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class HandClient:
    """A client that encodes its own frames. With `kind` zmq.REQ, libzmq adds and removes the empty
    frame of 7/MDP."""

    def __init__(
        self,
        sockets: Sockets,
        endpoint: str,
        rfc: Rfc = RFC18,
        *,
        kind: int = zmq.DEALER,
        identity: bytes = b"",
        **options: Any,
    ) -> None:
        self.rfc = rfc
        self.socket = Socket(sockets, kind, endpoint, identity, **options)
        self._implied = 1 if kind == zmq.REQ else 0

    def request(self, service: bytes, *body: bytes) -> None:
        """Send REQUEST."""
        self.socket.send(*self.rfc.client_request[self._implied :], service, *body)

    def reply(self, within_s: float = WAIT_S) -> tuple[str, bytes, list[bytes]]:
        """Return the next reply: "partial" or "final", its service name, and its body."""
        frames = self.socket.receive(within_s)
        for kind, whole in (("final", self.rfc.client_final), ("partial", self.rfc.client_partial)):
            head = (whole or ())[self._implied :]
            if head and tuple(frames[: len(head)]) == head:
                service, *body = frames[len(head) :]
                return kind, service, body
        raise AssertionError(f"no reply of MDP {self.rfc.version}: {frames}")

    def call(self, service: bytes, *body: bytes) -> list[bytes]:
        """Send a request and return the body of its final reply; fail on a partial reply."""
        self.request(service, *body)
        kind, named, answer = self.reply()
        assert (kind, named) == ("final", service)
        return answer

    def replies(self) -> list[tuple[str, list[bytes]]]:
        """Return kind and body of each reply up to the final one."""
        found = []
        while not found or found[-1][0] != "final":
            kind, _, body = self.reply()
            found.append((kind, body))
        return found


class HandWorker:
    """A worker that encodes its own frames. It takes one request at a time, and sends heartbeats
    only through `heartbeat`."""

    def __init__(
        self,
        sockets: Sockets,
        endpoint: str,
        rfc: Rfc = RFC18,
        *,
        identity: bytes = b"",
        service: bytes | None = b"echo",
        **options: Any,
    ) -> None:
        self.rfc = rfc
        self.heartbeats = 0  # how many the broker has sent
        self.socket = Socket(sockets, zmq.DEALER, endpoint, identity, **options)
        if service is not None:
            self.ready(service)

    def ready(self, service: bytes) -> None:
        """Send READY."""
        self.socket.send(*self.rfc.ready, service)

    def command(self, within_s: float = WAIT_S) -> tuple[str, list[bytes]]:
        """Return the name of the next command and the frames after its head."""
        frames = self.socket.receive(within_s)
        for name in ("worker_request", "heartbeat", "disconnect"):
            head = getattr(self.rfc, name)
            if tuple(frames[: len(head)]) == head:
                return name, frames[len(head) :]
        raise AssertionError(f"no command of MDP {self.rfc.version} to a worker: {frames}")

    def awaited(self, wanted: str, within_s: float = WAIT_S) -> list[bytes]:
        """Return the frames after the head of the next command, which must be `wanted`.

        Skips heartbeats, and counts them in `heartbeats`.
        """
        end = monotonic() + within_s
        while True:
            name, rest = self.command(max(0.0, end - monotonic()))
            if name == "heartbeat":
                self.heartbeats += 1
            if name == wanted:
                return rest
            assert name == "heartbeat", f"{name} came where {wanted} was awaited"

    def take(self, within_s: float = WAIT_S) -> tuple[bytes, list[bytes]]:
        """Return the client address and the body of the next request."""
        address, empty, *body = self.awaited("worker_request", within_s)
        assert empty == b""
        assert body
        return address, body

    def partial(self, address: bytes, *body: bytes) -> None:
        """Send PARTIAL."""
        assert self.rfc.worker_partial is not None
        self.socket.send(*self.rfc.worker_partial, address, b"", *body)

    def final(self, address: bytes, *body: bytes) -> None:
        """Send FINAL; in 7/MDP, REPLY."""
        self.socket.send(*self.rfc.worker_final, address, b"", *body)

    def heartbeat(self) -> None:
        """Send HEARTBEAT."""
        self.socket.send(*self.rfc.heartbeat)

    def disconnect(self) -> None:
        """Send DISCONNECT."""
        self.socket.send(*self.rfc.disconnect)

    def serve_one(self, *answer: bytes) -> list[bytes]:
        """Answer the next request with `answer`, or with its own body; return its body."""
        address, body = self.take()
        self.final(address, *(answer or body))
        return body

    def close(self) -> None:
        """Close the socket without DISCONNECT."""
        self.socket.close()


Handler = Callable[["HandWorker", bytes, list[bytes]], None]


def echo(worker: HandWorker, address: bytes, body: list[bytes]) -> None:
    """Reply with the body of the request."""
    worker.final(address, *body)


def two_partials(worker: HandWorker, address: bytes, body: list[bytes]) -> None:
    """Send two partial replies, then a final one with the body of the request."""
    worker.partial(address, b"one")
    worker.partial(address, b"two")
    worker.final(address, *body)


class ServingWorker:
    """A `HandWorker` on a thread, which runs `handler` for each request and sends heartbeats."""

    def __init__(
        self,
        sockets: Sockets,
        endpoint: str,
        rfc: Rfc,
        handler: Handler = echo,
        *,
        service: bytes = b"echo",
        interval_s: float = 1.0,
        **options: Any,
    ) -> None:
        self._stop = _StopSignal(sockets)
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run,
            args=(sockets, endpoint, rfc, handler, service, interval_s),
            kwargs=options,
        )
        self._thread.start()

    def stop(self) -> None:
        """Send DISCONNECT and end the thread; raise its exception, if any."""
        self._stop.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    def _run(
        self,
        sockets: Sockets,
        endpoint: str,
        rfc: Rfc,
        handler: Handler,
        service: bytes,
        interval_s: float,
        **options: Any,
    ) -> None:
        worker = HandWorker(sockets, endpoint, rfc, service=service, **options)
        try:
            self._serve(worker, handler, interval_s)
            worker.disconnect()
        except BaseException as error:
            self._error = error
        finally:
            worker.socket.zmq.close(linger=1000)  # ms, in which DISCONNECT is sent

    def _serve(self, worker: HandWorker, handler: Handler, interval_s: float) -> None:
        poller = self._stop.poller(worker.socket)
        speak_at = monotonic() + interval_s
        while True:
            events = dict(poller.poll(max(0.0, speak_at - monotonic()) * 1000))
            if self._stop.receiver in events:
                return
            if worker.socket.zmq in events:
                name, rest = worker.command()
                assert name != "disconnect", "the broker sent the worker away"
                if name == "worker_request":
                    handler(worker, rest[0], rest[2:])
            if monotonic() >= speak_at:
                worker.heartbeat()
                speak_at = monotonic() + interval_s

    def __enter__(self) -> ServingWorker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class _StopSignal:
    """Wakes a thread that polls sockets: `set` sends to `receiver`, which the thread polls too."""

    def __init__(self, sockets: Sockets) -> None:
        address = f"inproc://stop-{id(self)}"
        self.receiver: zmq.Socket[bytes] = sockets.make(zmq.PAIR)
        self._sender: zmq.Socket[bytes] = sockets.make(zmq.PAIR)
        self.receiver.bind(address)
        self._sender.connect(address)

    def set(self) -> None:
        self._sender.send(b"")

    def poller(self, *others: Socket) -> zmq.Poller:
        poller = zmq.Poller()
        poller.register(self.receiver, zmq.POLLIN)
        for other in others:
            poller.register(other.zmq, zmq.POLLIN)
        return poller


def first_to_hear(workers: Sequence[HandWorker]) -> HandWorker:
    """Return the first of these workers that receives a message."""
    poller = zmq.Poller()
    for worker in workers:
        poller.register(worker.socket.zmq, zmq.POLLIN)
    came = dict(poller.poll(WAIT_S * 1000))
    for worker in workers:
        if worker.socket.zmq in came:
            return worker
    raise Silence("no worker was sent anything")
