"""What the generator must know of a wire format."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import NamedTuple, Protocol

from bench.job import Job


class ClientSide(Protocol):
    """The client's end of one connection."""

    def hello(self) -> bytes:
        """Return what has to go before the first request."""
        ...

    def requests(self, n: int) -> bytes:
        """Return `n` requests."""
        ...

    def count_replies(self, data: bytes) -> int:
        """Return how many final replies `data` completes. Raises on anything but the echo."""
        ...


class WorkerSide(Protocol):
    """A worker's end of one connection. `heartbeat` is sent in each second without a reply."""

    heartbeat: bytes

    def hello(self) -> bytes:
        """Return what registers the worker."""
        ...

    def answer(self, data: bytes) -> bytes:
        """Return the replies to the requests that `data` completes."""
        ...


class Dialect(NamedTuple):
    """How to connect, and what to say then."""

    connect: Callable[[int], socket.socket]
    client: Callable[[Job], ClientSide]
    worker: Callable[[Job], WorkerSide]


class UnexpectedMessage(Exception):
    """The broker sent something that has no place in an echo of requests."""
