"""Pirate queues and servers on raw pyzmq sockets, written from the Guide's description. They share
no code with requite.

`GuideQueue` is the queue of the Simple or the Paranoid Pirate: it forwards from ROUTER to ROUTER,
picks the least recently used worker, reads requests only while a worker is ready, and treats any
message of a worker as READY. `GuideServer` is the Lazy Pirate's server. Both run on a thread until
they are closed. Tests drive clients and workers themselves, step by step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Final

import zmq

WAIT_S: Final = 20.0
_POLL_MS: Final = 20
READY: Final = (b"\x01", b"READY")
BEATS: Final = (b"\x02", b"HEARTBEAT")


class _Threaded:
    """A loop on a thread, with its own ZeroMQ context."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__)

    def _bound(self, kind: int, port: int = 0) -> tuple[zmq.Socket[bytes], int]:
        socket = self.context.socket(kind)
        socket.linger = 0
        if not port:
            return socket, socket.bind_to_random_port("tcp://127.0.0.1")
        until = monotonic() + WAIT_S
        while True:  # libzmq closes the previous socket on this port in the background
            try:
                socket.bind(f"tcp://127.0.0.1:{port}")
            except zmq.ZMQError:
                if monotonic() > until:
                    raise
            else:
                return socket, port

    def _run(self) -> None:
        with suppress(zmq.ContextTerminated):
            while not self._end.is_set():
                self.turn()

    def turn(self) -> None:
        """Run one iteration of the loop; wait at most `_POLL_MS`."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop the thread and close the sockets."""
        self._end.set()
        self._thread.join(WAIT_S)
        self.context.destroy(linger=0)

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class GuideServer(_Threaded):
    """The Lazy Pirate's server: a REP socket.

    `answer(request)` returns the reply. None simulates a crash: the socket is closed without a
    reply, and a new one binds to the port.
    """

    def __init__(self, answer: Callable[[bytes], bytes | None]) -> None:
        super().__init__()
        self._answer = answer
        self._socket, self.port = self._bound(zmq.REP)
        self.crashes = 0

    def turn(self) -> None:
        if not self._socket.poll(_POLL_MS):
            return
        reply = self._answer(self._socket.recv())
        if reply is not None:
            self._socket.send(reply)
            return
        self.crashes += 1
        self._socket.close(linger=0)
        self._socket, _ = self._bound(zmq.REP, self.port)


class GuideQueue(_Threaded):
    """The queue of the Simple or the Paranoid Pirate.

    `beats_s` is the heartbeat interval (None: Simple Pirate), `beat` the heartbeat's content, and
    `front` and `back` are ports (0: any). `said` has the control messages of workers.
    """

    def __init__(
        self,
        beats_s: float | None = None,
        *,
        beat: bytes = b"\x02",
        front: int = 0,
        back: int = 0,
    ) -> None:
        super().__init__()
        self._front, self.front = self._bound(zmq.ROUTER, front)
        self._back, self.back = self._bound(zmq.ROUTER, back)
        self._beats_s = beats_s
        self._beat = beat
        self._beat_at = monotonic()
        self._workers: dict[bytes, float] = {}  # ready workers, and when each expires
        self.said: list[list[bytes]] = []

    def turn(self) -> None:
        poller = zmq.Poller()
        poller.register(self._back, zmq.POLLIN)
        if self._workers:
            poller.register(self._front, zmq.POLLIN)
        ready = dict(poller.poll(_POLL_MS))
        if self._back in ready:
            self._from_worker(*self._back.recv_multipart())
        if self._front in ready and self._workers:
            worker = next(iter(self._workers))
            del self._workers[worker]
            delimiter = [] if self._beats_s else [b""]
            self._back.send_multipart([worker, *delimiter, *self._front.recv_multipart()])
        if self._beats_s:
            self._keep_alive()

    def _from_worker(self, worker: bytes, *frames: bytes) -> None:
        if not self._beats_s:
            assert frames[0] == b""
            frames = frames[1:]
        self._workers.pop(worker, None)
        self._workers[worker] = monotonic() + 3 * (self._beats_s or 1e9)
        if len(frames) > 1:
            self._front.send_multipart(frames)
        else:
            self.said.append(list(frames))

    def _keep_alive(self) -> None:
        now = monotonic()
        if now >= self._beat_at:
            self._beat_at = now + (self._beats_s or 0)
            for worker in self._workers:
                self._back.send_multipart([worker, self._beat])
        for worker in [w for w, expires in self._workers.items() if expires < now]:
            del self._workers[worker]
