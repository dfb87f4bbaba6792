"""Requests at a rate that does not depend on the replies: an open loop, in MDP 0.3.

A request is due at an instant, and its deadline is `timeout_s` later, even if the broker does not
read it before. A request that could not be sent before its deadline is not sent any more.
"""

from __future__ import annotations

import select
import socket
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

from bench.gauge import Gauge
from bench.job import Job
from bench.load import zmtp
from bench.load.dialect import UnexpectedMessage
from bench.load.mdp03 import CLIENT_FINAL, CLIENT_HEARTBEAT, ID, STATUS, encode_request

OK, OVERLOADED, EXPIRED = 0, 3, 4
_TICK_S = 0.001
_SEND_BYTES = 16_384  # requests wait here, where they can time out, and not in the kernel
_AT_ONCE = 128  # requests that are encoded together
_LATE, _UNSENT = -1, -2  # besides the statuses
_TIMEOUT = slice(17, 21)  # of a request: two bytes of ZMTP, magic, command, request id


class Line:
    """A connection, the numbers of its unsent requests, and what is left of the last write."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.unsent: deque[int] = deque()
        self.output = memoryview(b"")
        self.input = b""
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)


class Offer:
    """Sends requests when they are due; `replies` counts the final replies by status."""

    def __init__(self, job: Job, connections: Sequence[socket.socket]) -> None:
        self._job = job
        self._lines = {sock.fileno(): Line(sock) for sock in connections}
        self._epoll = select.epoll()
        for number in self._lines:
            self._epoll.register(number, select.EPOLLIN)
        request = encode_request(job.service_names[0], job)
        self._pieces = request[:9], request[21:31], request[39:]
        self._started = perf_counter()
        self._made = 0
        self._counted = 0.0, 0.0
        self.replies: Counter[int] = Counter()
        self.latencies_ns: list[int] = []

    def run(self, seconds: float) -> None:
        """Offer requests for some time."""
        ends_at = perf_counter() + seconds
        while (now := perf_counter()) < ends_at:
            self._make(now)
            for line in self._lines.values():
                self._send(line, now)
            for number, _ in self._epoll.poll(_TICK_S):
                self._receive(self._lines[number])

    def count(self, seconds: float) -> None:
        """Count only the replies to requests that are due within the next seconds."""
        now = perf_counter()
        self._counted = now, now + seconds

    def _make(self, now: float) -> None:
        """Give each connection its share of the requests that have become due."""
        due = int((now - self._started) * self._job.rate)
        fresh = range(self._made, due)
        self._made = due
        for at, line in enumerate(self._lines.values()):
            line.unsent.extend(fresh[at :: len(self._lines)])

    def _due_at(self, number: int) -> float:
        return self._started + number / self._job.rate

    def _send(self, line: Line, now: float) -> None:
        while line.output or line.unsent:
            if not line.output:
                line.output = memoryview(self._encode(line, now))
            try:
                sent = line.sock.send(line.output)
            except BlockingIOError:
                return
            line.output = line.output[sent:]

    def _encode(self, line: Line, now: float) -> bytes:
        """Return the next requests, with the time that is left to the oldest."""
        unsent, timeout_s = line.unsent, self._job.timeout_s
        while unsent and self._due_at(unsent[0]) + timeout_s <= now:
            self._note(unsent.popleft(), _UNSENT, now)
        if not unsent:
            return b""
        left_s = self._due_at(unsent[0]) + timeout_s - now
        before, between, after = self._pieces
        middle = max(1, int(left_s * 1000)).to_bytes(4, "big") + between
        numbers = [unsent.popleft().to_bytes(8, "big") for _ in range(min(len(unsent), _AT_ONCE))]
        return b"".join([before + i + middle + i + after for i in numbers])

    def _receive(self, line: Line) -> None:
        data = line.sock.recv(self._job.read_size_bytes)
        if not data:
            raise ConnectionError("the broker closed a connection")
        now = perf_counter()
        messages, line.input = zmtp.split(line.input + data)
        for message in messages:
            header = message[0]
            if header[:7] == CLIENT_HEARTBEAT:
                continue
            if header[:7] != CLIENT_FINAL:
                raise UnexpectedMessage(f"a client was sent {message}")
            self._note(int.from_bytes(header[ID], "big"), header[STATUS], now)

    def _note(self, number: int, status: int, now: float) -> None:
        """Count the end of a request."""
        due_at = self._due_at(number)
        begin, end = self._counted
        if not begin <= due_at < end:
            return
        if status == OK:
            self.latencies_ns.append(round((now - due_at) * 1e9))
            if now - due_at > self._job.timeout_s:
                status = _LATE
        self.replies[status] += 1


def offer(job: Job, connections: Sequence[socket.socket]) -> None:
    """Offer the rate of the job, and print the figures."""
    load = Offer(job, connections)
    gauge = Gauge(replace(job, requests=0))
    load.run(job.warm_up_s)
    load.count(job.seconds)
    gauge.open()
    load.run(job.seconds)
    gauge.stop()
    load.run(job.timeout_s)  # the last replies, under the same load
    names = {OVERLOADED: "refused", EXPIRED: "expired", _LATE: "late", _UNSENT: "unsent"}
    rates = {f"{name}_per_s": load.replies[status] / job.seconds for status, name in names.items()}
    gauge.close(load.replies[OK], load.latencies_ns, {"offered_per_s": job.rate, **rates})
