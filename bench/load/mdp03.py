"""Majordomo 0.3, with the layouts of `docs/protocols/mdp-0.3.md`, "Messages"."""

from __future__ import annotations

import struct
from functools import partial
from itertools import cycle

from bench.job import Job
from bench.load import zmtp
from bench.load.dialect import Dialect, UnexpectedMessage

LEASE_MS = 30_000
HEARTBEAT_MS = 1_000

_REQUEST_REST = struct.Struct(">IBB")  # timeout, flags, length of the service's name
_READY = struct.Struct(">HII")  # capacity, interval, lease
_ORIGIN = b"a client"  # the first half of its call ids
INSTANCE = b"a worker"
ID, STATUS = slice(7, 15), 15  # of a client's FINAL
CLIENT_FINAL = b"MDPC03\x03"
CLIENT_HEARTBEAT = b"MDPC03\x05"
_WORKER_REQUESTS = (b"MDPW03\x02", b"MDPW03\x0a")  # REQUEST, and REQUEST_OF a principal
_WORKER_NOTICES = (b"MDPW03\x05", b"MDPW03\x09")  # HEARTBEAT, CANCEL
_WORKER_FINAL_BYTES = 16  # magic, command, dispatch id, status
_OK = 0


class Client:
    """A client with request ids, which calls the services of the job in turn."""

    def __init__(self, job: Job) -> None:
        requests = [encode_request(service, job) for service in job.service_names]
        # Two bytes of ZMTP in front of the header: the request id starts nine bytes in; the call
        # id ends with the same number, 14 bytes after it.
        self._pieces = requests[0][:9], requests[0][17:31]
        self._ends = cycle([request[39:] for request in requests])
        self._body = job.body
        self._next_id = 1
        self._rest = b""

    def hello(self) -> bytes:
        """Return nothing: a client's first message is a request."""
        return b""

    def requests(self, n: int) -> bytes:
        """Return `n` requests with new ids."""
        before, between = self._pieces
        first = self._next_id
        self._next_id += n
        numbers = [i.to_bytes(8, "big") for i in range(first, first + n)]
        pairs = zip(numbers, self._ends, strict=False)
        return b"".join([before + i + between + i + end for i, end in pairs])

    def count_replies(self, data: bytes) -> int:
        """Count the final replies, and check that each has the body of the request."""
        messages, self._rest = zmtp.split(self._rest + data)
        body = self._body
        count = 0
        for message in messages:
            header = message[0]
            if header[:7] == CLIENT_FINAL and header[STATUS] == _OK and message[-1] == body:
                count += 1
            elif header[:7] != CLIENT_HEARTBEAT:  # sent while it receives a large body
                raise UnexpectedMessage(f"the client was sent {message[0]!r}")
        return count


def encode_request(service: bytes, job: Job) -> bytes:
    """Return a request for a service, with the number 0."""
    timeout_ms = round(job.timeout_s * 1000)
    rest = _REQUEST_REST.pack(timeout_ms, 0, len(service)) + _ORIGIN + bytes(8) + service
    return zmtp.encode([b"MDPC03\x01" + bytes(8) + rest, job.body])


class Worker:
    """A worker that accepts `capacity` requests at a time. It ignores cancellations."""

    heartbeat = zmtp.encode([_WORKER_NOTICES[0] + HEARTBEAT_MS.to_bytes(4, "big")])

    def __init__(self, job: Job, service: bytes) -> None:
        ready = _READY.pack(job.capacity, HEARTBEAT_MS, LEASE_MS) + INSTANCE
        self._ready = zmtp.encode([b"MDPW03\x01" + ready + service])
        final = b"MDPW03\x04" + bytes(_WORKER_FINAL_BYTES - 7)
        reply = zmtp.encode([final, job.body])
        # As the client's: the dispatch id starts nine bytes in; the status stays 0.
        self._before_id, self._after_id = reply[:9], reply[17:]
        self._body = job.body
        self._rest = b""

    def hello(self) -> bytes:
        """Return the READY command."""
        return self._ready

    def answer(self, data: bytes) -> bytes:
        """Return a FINAL with the body of each request, under its dispatch id."""
        messages, self._rest = zmtp.split(self._rest + data)
        before, after, body = self._before_id, self._after_id, self._body
        replies = []
        for message in messages:
            header = message[0]
            if header[:7] in _WORKER_REQUESTS and message[-1] == body:
                replies.append(before + header[ID] + after)
            elif header[:7] not in _WORKER_NOTICES:
                raise UnexpectedMessage(f"a worker was sent {message}")
        return b"".join(replies)


# As clients and workers of requite announce.
DIALECT = Dialect(partial(zmtp.connect, features=b"denied principals"), Client, Worker)
