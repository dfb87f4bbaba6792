"""Hand-written Majordomo peers on raw pyzmq sockets.

The frames are spelt out here from the tables of 7/MDP and 18/MDP. Nothing of requite is used, so
that a slip in its codecs cannot hide itself. Every wait has a limit; none is a sleep.
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

WAIT_S: Final = 30.0  # for what must come; only a failing test waits so long

_EVENTS: Final = (
    zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
)

Frames = tuple[bytes, ...]


@dataclass(frozen=True)
class Rfc:
    """The frames that the commands of one version of MDP start with."""

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
    """Nothing came in time."""


class Sockets:
    """Makes the sockets of a test, and closes all of them at its end."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._made: list[zmq.Socket[bytes]] = []

    def make(self, kind: int) -> zmq.Socket[bytes]:
        """Make a socket."""
        return self.keep(self._context.socket(kind))

    def keep(self, socket: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
        """Close this one, too."""
        self._made.append(socket)
        return socket

    def close(self) -> None:
        """Close everything at once."""
        self._context.destroy(linger=0)


class Socket:
    """A pyzmq socket that has dialled `endpoint`. `options` are socket options by name.

    libzmq does not connect again when its handshake was refused, and then has nobody to send to:
    `had_event` tells of that.
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
        # Before it connects, or the first events are missed.
        self._monitor = self.zmq.get_monitor_socket(_EVENTS)
        sockets.keep(self._monitor)
        self.zmq.connect(endpoint)

    def send(self, *frames: bytes) -> None:
        """Send one message of these frames."""
        self.zmq.send_multipart(frames)

    def receive(self, within_s: float = WAIT_S) -> list[bytes]:
        """Return the next message. Raises `Silence` if none comes in time."""
        if not self.has_message(within_s):
            raise Silence(f"nothing came within {within_s:g} s")
        return self.zmq.recv_multipart()

    def has_message(self, within_s: float = 0.0) -> bool:
        """Tell whether a message is there, or comes in time."""
        return bool(self.zmq.poll(within_s * 1000, zmq.POLLIN))

    def had_event(self, event: int, within_s: float) -> bool:
        """Tell whether libzmq reports one of `_EVENTS` in time."""
        end = monotonic() + within_s
        while self._monitor.poll(max(0.0, end - monotonic()) * 1000):
            if recv_monitor_message(self._monitor)["event"] == event:
                return True
        return False

    def close(self) -> None:
        """Close at once."""
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
    """A client that writes its frames itself; a REQ socket adds and takes 7/MDP's empty frame."""

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
        """Return what came next: "partial" or "final", the service it names, and its body."""
        frames = self.socket.receive(within_s)
        for kind, whole in (("final", self.rfc.client_final), ("partial", self.rfc.client_partial)):
            head = (whole or ())[self._implied :]
            if head and tuple(frames[: len(head)]) == head:
                service, *body = frames[len(head) :]
                return kind, service, body
        raise AssertionError(f"no reply of MDP {self.rfc.version}: {frames}")

    def call(self, service: bytes, *body: bytes) -> list[bytes]:
        """Send a request and return the body of its final reply, which must be the only one."""
        self.request(service, *body)
        kind, named, answer = self.reply()
        assert (kind, named) == ("final", service)
        return answer

    def replies(self) -> list[tuple[str, list[bytes]]]:
        """Return all replies up to the final one, as kind and body."""
        found = []
        while not found or found[-1][0] != "final":
            kind, _, body = self.reply()
            found.append((kind, body))
        return found


class HandWorker:
    """A worker that writes its frames itself; one request at a time, and no heartbeats unasked."""

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
        """Return the name of the next command and what follows its head."""
        frames = self.socket.receive(within_s)
        for name in ("worker_request", "heartbeat", "disconnect"):
            head = getattr(self.rfc, name)
            if tuple(frames[: len(head)]) == head:
                return name, frames[len(head) :]
        raise AssertionError(f"no command of MDP {self.rfc.version} to a worker: {frames}")

    def awaited(self, wanted: str, within_s: float = WAIT_S) -> list[bytes]:
        """Return what follows the head of the next command, which must be `wanted`.

        Heartbeats before it are counted.
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
        """Send FINAL, or what 7/MDP calls REPLY."""
        self.socket.send(*self.rfc.worker_final, address, b"", *body)

    def heartbeat(self) -> None:
        """Send HEARTBEAT."""
        self.socket.send(*self.rfc.heartbeat)

    def disconnect(self) -> None:
        """Send DISCONNECT."""
        self.socket.send(*self.rfc.disconnect)

    def serve_one(self, *answer: bytes) -> list[bytes]:
        """Answer the next request, with its own body unless told otherwise; return that body."""
        address, body = self.take()
        self.final(address, *(answer or body))
        return body

    def close(self) -> None:
        """Vanish without a word."""
        self.socket.close()


Handler = Callable[["HandWorker", bytes, list[bytes]], None]


def echo(worker: HandWorker, address: bytes, body: list[bytes]) -> None:
    """Answer with the body of the request."""
    worker.final(address, *body)


def two_partials(worker: HandWorker, address: bytes, body: list[bytes]) -> None:
    """Answer with two partial replies in front of the final one."""
    worker.partial(address, b"one")
    worker.partial(address, b"two")
    worker.final(address, *body)


class ServingWorker:
    """A `HandWorker` at work on a thread of its own, which also sends its heartbeats."""

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
        self._stop = _Bell(sockets)
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run,
            args=(sockets, endpoint, rfc, handler, service, interval_s),
            kwargs=options,
        )
        self._thread.start()

    def stop(self) -> None:
        """Send DISCONNECT and end; raise what went wrong meanwhile."""
        self._stop.ring()
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
            worker.socket.zmq.close(linger=1000)  # DISCONNECT is to leave

    def _serve(self, worker: HandWorker, handler: Handler, interval_s: float) -> None:
        poller = self._stop.poller(worker.socket)
        speak_at = monotonic() + interval_s
        while True:
            events = dict(poller.poll(max(0.0, speak_at - monotonic()) * 1000))
            if self._stop.rung in events:
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


class _Bell:
    """Interrupts a thread that polls sockets: it has `rung`, and who rings has `rope`."""

    def __init__(self, sockets: Sockets) -> None:
        address = f"inproc://bell-{id(self)}"
        self.rung: zmq.Socket[bytes] = sockets.make(zmq.PAIR)
        self.rope: zmq.Socket[bytes] = sockets.make(zmq.PAIR)
        self.rung.bind(address)
        self.rope.connect(address)

    def ring(self) -> None:
        self.rope.send(b"")

    def poller(self, *others: Socket) -> zmq.Poller:
        poller = zmq.Poller()
        poller.register(self.rung, zmq.POLLIN)
        for other in others:
            poller.register(other.zmq, zmq.POLLIN)
        return poller


def first_to_hear(workers: Sequence[HandWorker]) -> HandWorker:
    """Return the first of these to which a message comes."""
    poller = zmq.Poller()
    for worker in workers:
        poller.register(worker.socket.zmq, zmq.POLLIN)
    came = dict(poller.poll(WAIT_S * 1000))
    for worker in workers:
        if worker.socket.zmq in came:
            return worker
    raise Silence("no worker was sent anything")
