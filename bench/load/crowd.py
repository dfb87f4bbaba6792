"""Many connections of clients in one process."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace

from bench.job import Job
from bench.load.dialect import ClientSide, Dialect

_LOST_S = 10.0  # a lost reply fails the run instead of blocking it

Connection = tuple[socket.socket, ClientSide]


class Crowd:
    """Connections with a window of requests together: for each reply, the next one in turn sends a
    request."""

    def __init__(self, connections: Sequence[Connection], job: Job) -> None:
        self._connections = connections
        self._numbers = {sock.fileno(): at for at, (sock, _) in enumerate(connections)}
        self._read_size_bytes = job.read_size_bytes
        self._next = 0
        self._epoll = select.epoll()
        for sock, side in connections:
            self._epoll.register(sock.fileno(), select.EPOLLIN)
            sock.sendall(side.hello())
        self._send(job.window)

    def run_until(self, is_over: Callable[[int], bool]) -> int:
        """Keep the window full until `is_over(answered)`; return the number of replies."""
        size, connections, numbers = self._read_size_bytes, self._connections, self._numbers
        answered = 0
        while not is_over(answered):
            ready = self._epoll.poll(_LOST_S)
            if not ready:
                raise TimeoutError(f"no reply within {_LOST_S:g} s")
            count = 0
            for number, _ in ready:
                sock, side = connections[numbers[number]]
                data = sock.recv(size)
                if not data:
                    raise ConnectionError("the broker closed a connection")
                count += side.count_replies(data)
            if count:
                answered += count
                self._send(count)
        return answered

    def _send(self, count: int) -> None:
        """Send requests over the next connections in turn."""
        connections = self._connections
        total = len(connections)
        each, more = divmod(count, total)
        for offset in range(total if each else more):
            sock, side = connections[(self._next + offset) % total]
            sock.sendall(side.requests(each + (offset < more)))
        self._next = (self._next + count) % total


def connect_idle(job: Job, dialect: Dialect) -> list[socket.socket]:
    """Open the idle connections of a job; each has made a request."""
    side = dialect.client(replace(job, services=1, body_size_bytes=11))
    idle = []
    for _ in range(job.idle):
        sock = dialect.connect(job.port)
        sock.sendall(side.hello() + side.requests(1))
        while not side.count_replies(sock.recv(job.read_size_bytes)):
            pass
        idle.append(sock)
    return idle
