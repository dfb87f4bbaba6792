"""NATS request-reply in its client protocol: PUB with a reply subject, and a queue group.

https://docs.nats.io/reference/reference-protocols/nats-protocol
"""

from __future__ import annotations

import socket

from bench.job import SERVICE, Job
from bench.load.dialect import Dialect, UnexpectedMessage

INBOX = b"_INBOX.bench"
_PING, _PONG = b"PING\r\n", b"PONG\r\n"


def connect(port: int) -> socket.socket:
    """Connect, send CONNECT, and wait until the server has processed it."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(b'CONNECT {"verbose":false,"pedantic":false,"headers":false}\r\nPING\r\n')
    answer = b""
    while not answer.endswith(_PONG):
        chunk = sock.recv(65536)
        if not chunk:
            raise ConnectionError(f"the server closed the connection after {answer!r}")
        answer += chunk
    return sock


class Client:
    """A client with one inbox for all replies."""

    def __init__(self, job: Job) -> None:
        self._request = b"PUB %b %b %d\r\n%b\r\n" % (SERVICE, INBOX, len(job.body), job.body)
        self._reply = b"MSG %b 1 %d\r\n%b\r\n" % (INBOX, len(job.body), job.body)
        self._rest = b""

    def hello(self) -> bytes:
        """Return the subscription to the inbox."""
        return b"SUB %b 1\r\n" % INBOX

    def requests(self, n: int) -> bytes:
        """Return `n` requests."""
        return self._request * n

    def count_replies(self, data: bytes) -> int:
        """Count the replies, which all have the same bytes."""
        count, self._rest = count_repeats(self._reply, self._rest + data)
        return count


class Worker:
    """A member of the service's queue group; it may receive any number of requests at once."""

    heartbeat = b""  # NATS clients send no heartbeats of their own

    def __init__(self, job: Job, service: bytes) -> None:
        size = len(job.body)
        self._subscription = b"SUB %b workers 2\r\n" % service
        # The reply subject is known, so that all requests have the same bytes, too.
        self._request = b"MSG %b 2 %b %d\r\n%b\r\n" % (service, INBOX, size, job.body)
        self._reply = b"PUB %b %d\r\n%b\r\n" % (INBOX, size, job.body)
        self._rest = b""

    def hello(self) -> bytes:
        """Return the subscription."""
        return self._subscription

    def answer(self, data: bytes) -> bytes:
        """Publish the body of each request to its reply subject."""
        count, self._rest = count_repeats(self._request, self._rest + data)
        return self._reply * count


def count_repeats(message: bytes, data: bytes) -> tuple[int, bytes]:
    """Return how often `data` repeats `message`, and the remaining bytes.

    Skips the server's PINGs without answering: the server closes a connection after two unanswered
    ones, two minutes apart, and no run lasts that long.
    """
    if _PING in data:
        data = data.replace(_PING, b"")
    count, left = divmod(len(data), len(message))
    at = len(data) - left
    if data[:at] != message * count:
        raise UnexpectedMessage(f"the server sent {data[:200]!r}")
    return count, data[at:]


DIALECT = Dialect(connect, Client, Worker)
