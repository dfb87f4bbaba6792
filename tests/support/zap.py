"""A handler of ZAP by the text of 27/ZAP, on a REP socket of libzmq, in a thread.

It shares no code with requite. `answer` turns a request's frames into the reply's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self, TypeAlias

import zmq

VERSION: Final = b"1.0"
_LOOK_EVERY_MS: Final = 20

Answer: TypeAlias = Callable[[list[bytes]], Sequence[bytes]]


def verdict(status: str, text: str = "", user: str = "") -> Answer:
    """Return an answer that is always the same."""
    return lambda request: [VERSION, request[1], status.encode(), text.encode(), user.encode(), b""]


class ZapHandler:
    """Answers requests during a `with` block; `requests` has those that it got."""

    def __init__(self, answer: Answer, place: str = "tcp://127.0.0.1:*") -> None:
        self.answer = answer
        self.requests: list[list[bytes]] = []
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.REP)
        self._socket.bind(place)
        self.url = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._ends.set()
        self._thread.join()
        self._context.destroy(linger=0)

    def _serve(self) -> None:
        while not self._ends.is_set():
            if self._socket.poll(_LOOK_EVERY_MS):
                request = self._socket.recv_multipart()
                self.requests.append(request)
                self._socket.send_multipart(self.answer(request))
