"""Majordomo 0.2 as specified in 18/MDP, and as implemented by PyPI's `majortomo`.

`majortomo` sends an empty frame first, numbers the client's commands like the worker's, and omits
the service in replies to the client.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from bench.job import SERVICE, Job
from bench.load import zmtp
from bench.load.dialect import Dialect, UnexpectedMessage

READY, REQUEST, FINAL, HEARTBEAT = b"\x01", b"\x02", b"\x04", b"\x05"


class Variant(NamedTuple):
    """The differences: leading frames, and the client's command bytes."""

    front: list[bytes]
    client_request: bytes
    client_final: bytes


RFC18 = Variant([], b"\x01", b"\x03")
MAJORTOMO = Variant([b""], b"\x02", b"\x04")


class Client:
    """A client without request ids; it only counts replies."""

    def __init__(self, variant: Variant, job: Job) -> None:
        front, request, self._final = variant
        self._request = zmtp.encode([*front, b"MDPC02", request, SERVICE, job.body])
        self._command = len(front) + 1
        self._body = job.body
        self._rest = b""

    def hello(self) -> bytes:
        """Return nothing: a client's first message is a request."""
        return b""

    def requests(self, n: int) -> bytes:
        """Return `n` requests."""
        return self._request * n

    def count_replies(self, data: bytes) -> int:
        """Count the final replies, and check that each has the body of the request."""
        messages, self._rest = zmtp.split(self._rest + data)
        for message in messages:
            if message[self._command] != self._final or message[-1] != self._body:
                raise UnexpectedMessage(f"the client was sent {message}")
        return len(messages)


class Worker:
    """A worker with one request at a time, as the RFC requires."""

    def __init__(self, variant: Variant, job: Job, service: bytes) -> None:
        front = [*variant.front, b"MDPW02"]
        self._ready = zmtp.encode([*front, READY, service])
        self._final = zmtp.encode([*front, FINAL], more=True)
        self.heartbeat = zmtp.encode([*front, HEARTBEAT])
        self._command = len(front)
        self._body = job.body
        self._tail = zmtp.encode([b"", job.body])
        self._rest = b""

    def hello(self) -> bytes:
        """Return the READY command."""
        return self._ready

    def answer(self, data: bytes) -> bytes:
        """Return a FINAL with the body of each request, to its client's address."""
        at = self._command
        messages, self._rest = zmtp.split(self._rest + data)
        replies = []
        for message in messages:
            command = message[at]
            if command == REQUEST and message[-1] == self._body:
                address = message[at + 1]
                replies += self._final, bytes((zmtp.MORE, len(address))), address, self._tail
            elif command != HEARTBEAT:
                raise UnexpectedMessage(f"a worker was sent {message}")
        return b"".join(replies)


DIALECTS = {
    name: Dialect(zmtp.connect, partial(Client, variant), partial(Worker, variant))
    for name, variant in {"mdp-0.2": RFC18, "majortomo": MAJORTOMO}.items()
}
