"""The interface of a wire format to the generator."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import NamedTuple, Protocol

from bench.job import Job


class ClientSide(Protocol):
    """The client's end of one connection."""

    def hello(self) -> bytes:
        """Return the bytes to send before the first request."""
        ...

    def requests(self, n: int) -> bytes:
        """Return `n` requests."""
        ...

    def count_replies(self, data: bytes) -> int:
        """Return how many final replies `data` completes. Raises if a reply is not the echo."""
        ...


class WorkerSide(Protocol):
    """A worker's end of one connection. `heartbeat` is sent in each second without a reply."""

    heartbeat: bytes

    def hello(self) -> bytes:
        """Return the bytes that register the worker."""
        ...

    def answer(self, data: bytes) -> bytes:
        """Return the replies to the requests that `data` completes."""
        ...


class Dialect(NamedTuple):
    """How to connect, and the client's side and that of a worker of a service."""

    connect: Callable[[int], socket.socket]
    client: Callable[[Job], ClientSide]
    worker: Callable[[Job, bytes], WorkerSide]


class UnexpectedMessage(Exception):
    """The broker sent a message that does not belong to an echo of requests."""
