"""A hand-written Majordomo broker on one pyzmq ROUTER socket, for 7/MDP or 18/MDP.

It implements the minimum of the RFCs, and injects faults when a test sets them. It shares the
tables of frames with `zmq_peers`, and no code with requite.
"""

from __future__ import annotations

import errno
import queue
import socket
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from time import monotonic
from typing import Final

import zmq
from tests.support.live import eventually
from tests.support.zmq_peers import WAIT_S, Rfc, Sockets

INTERVAL_S: Final = 0.1
_TICK_MS: Final = 10

Message = list[bytes]


class HandBroker:
    """A broker on a thread, listening at `endpoint`.

    - `heard`: for each received message: identity of the peer, name of the command, frames after
      the command's head.
    - `swallow`: how many of the next requests it drops.
    - `beats`: whether it sends heartbeats.
    """

    def __init__(
        self, sockets: Sockets, rfc: Rfc, endpoint: str = "tcp://127.0.0.1:*", **options: int
    ) -> None:
        self.rfc = rfc
        self.heard: list[tuple[bytes, str, Message]] = []
        self.swallow = 0
        self.beats = True
        self._workers: dict[bytes, bytes] = {}  # identity: service
        self._idle: dict[bytes, deque[bytes]] = defaultdict(deque)
        self._requests: dict[bytes, deque[tuple[bytes, Message]]] = defaultdict(deque)
        self._beat_at = monotonic() + INTERVAL_S
        self._todo: queue.Queue[Callable[[], object]] = queue.Queue()
        self._ends = False
        self._error: BaseException | None = None
        self._router = sockets.make(zmq.ROUTER)
        self._router.linger = 0
        for name, value in options.items():
            self._router.setsockopt(getattr(zmq, name), value)
        eventually(lambda: self._is_bound(endpoint), f"{endpoint} is free")
        self.endpoint = self._router.last_endpoint.decode().rstrip("\0")
        self._thread = threading.Thread(target=self._run, name="hand-written broker")
        self._thread.start()

    @property
    def url(self) -> str:
        """The URL for clients and workers of requite."""
        return self.endpoint.replace("tcp://", "mdp://")

    def stop(self) -> None:
        """Close the socket without DISCONNECT; raise the exception of its thread, if any."""
        if not self._ends:  # otherwise, another broker may listen there by now
            self._ends = True
            self._thread.join(WAIT_S)
            assert not self._thread.is_alive()
            eventually(self._is_gone, "libzmq has closed the socket")
        if self._error is not None:
            raise self._error

    def said(self, command: str) -> list[tuple[bytes, Message]]:
        """Return each received message with this command: the peer's identity and the frames after
        the command's head."""
        return [(who, rest) for who, kind, rest in list(self.heard) if kind == command]

    def send(self, peer: bytes, *frames: bytes) -> None:
        """Have the broker's thread send a message to a peer."""
        self._todo.put(lambda: self._router.send_multipart([peer, *frames]))

    def _is_gone(self) -> bool:
        """Return whether connections are refused: libzmq closes sockets in the background."""
        host, _, port = self.endpoint.removeprefix("tcp://").rpartition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == errno.ECONNREFUSED

    def _is_bound(self, endpoint: str) -> bool:
        """Try to bind; return False if the address is in use. libzmq releases the address of a
        closed socket with a delay."""
        try:
            self._router.bind(endpoint)
        except zmq.ZMQError as error:
            if error.errno == zmq.EADDRINUSE:
                return False
            raise
        return True

    # --- its thread -----------------------------------------------------------------------------
    def _run(self) -> None:
        try:
            while not self._ends:
                if self._router.poll(_TICK_MS):
                    self._take(self._router.recv_multipart())
                while not self._todo.empty():
                    self._todo.get()()
                self._beat()
        except BaseException as error:
            self._error = error
        finally:
            self._router.close(linger=0)

    def _take(self, message: Message) -> None:
        who, *frames = message
        command, rest = self._name(frames)
        self.heard.append((who, command, rest))
        if command == "client_request":
            self._request(who, rest)
        elif command == "ready":
            assert who not in self._workers, "READY came twice on one connection"
            self._workers[who] = rest[0]
            self._offer(who)
        elif who not in self._workers:
            self._router.send_multipart([who, *self.rfc.disconnect])
        elif command == "disconnect":
            self._forget(who)
        elif command != "heartbeat":
            self._reply(who, command, rest)

    def _name(self, frames: Message) -> tuple[str, Message]:
        """Return the name of a command and the frames after its head."""
        for name in (
            "client_request", "ready", "worker_partial", "worker_final", "heartbeat", "disconnect",
        ):  # fmt: skip
            head = getattr(self.rfc, name)
            if head is not None and tuple(frames[: len(head)]) == head:
                return name, frames[len(head) :]
        raise AssertionError(f"no command of MDP {self.rfc.version} to a broker: {frames}")

    def _request(self, client: bytes, rest: Message) -> None:
        service, *body = rest
        assert body, "a request without a body"
        if self.swallow:
            self.swallow -= 1
        elif self._idle[service]:
            self._hand(self._idle[service].popleft(), client, body)
        else:
            self._requests[service].append((client, body))

    def _hand(self, worker: bytes, client: bytes, body: Message) -> None:
        self._router.send_multipart([worker, *self.rfc.worker_request, client, b"", *body])

    def _offer(self, worker: bytes) -> None:
        service = self._workers[worker]
        if self._requests[service]:
            self._hand(worker, *self._requests[service].popleft())
        else:
            self._idle[service].append(worker)

    def _reply(self, worker: bytes, command: str, rest: Message) -> None:
        client, empty, *body = rest
        assert empty == b""
        assert body, "a reply without a body"
        is_final = command == "worker_final"
        head = self.rfc.client_final if is_final else self.rfc.client_partial
        assert head is not None
        self._router.send_multipart([client, *head, self._workers[worker], *body])
        if is_final:
            self._offer(worker)

    def _forget(self, worker: bytes) -> None:
        service = self._workers.pop(worker)
        if worker in self._idle[service]:
            self._idle[service].remove(worker)

    def _beat(self) -> None:
        if monotonic() >= self._beat_at:
            self._beat_at = monotonic() + INTERVAL_S
            for worker in self._workers if self.beats else ():
                self._router.send_multipart([worker, *self.rfc.heartbeat])
