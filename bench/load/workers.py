"""All workers of a run in one process, with a socket each: `python -m bench.load.workers JOB`."""

from __future__ import annotations

import select
import socket
import sys
from collections import deque
from time import monotonic

from bench.job import Job
from bench.load.dialect import Dialect, WorkerSide
from bench.load.dialects import by_name

HEARTBEAT_S = 1.0

Workers = dict[int, tuple[socket.socket, WorkerSide]]


class Crew:
    """The workers of a job; services get them in turn."""

    def __init__(self, job: Job, dialect: Dialect) -> None:
        self._work_s = job.work_s
        self._read_size_bytes = job.read_size_bytes
        self._workers: Workers = {}
        self._spoke: set[int] = set()
        self._beat_at = monotonic() + HEARTBEAT_S
        self._working: deque[tuple[float, int, bytes]] = deque()  # until when, who, and the reply
        self._epoll = select.epoll()
        names = job.service_names
        for number in range(job.workers):
            sock = dialect.connect(job.port)
            side = dialect.worker(job, names[number % len(names)])
            sock.sendall(side.hello())
            self._workers[sock.fileno()] = sock, side
            self._epoll.register(sock.fileno(), select.EPOLLIN)
            self._beat()

    def serve(self) -> None:
        """Answer requests for ever."""
        while True:
            for number, _ in self._epoll.poll(self._pause_s()):
                sock, side = self._workers[number]
                data = sock.recv(self._read_size_bytes)
                if not data:
                    raise ConnectionError("the broker closed a worker's connection")
                if not (reply := side.answer(data)):
                    continue
                if self._work_s:
                    self._working.append((monotonic() + self._work_s, number, reply))
                else:
                    self._reply(number, reply)
            while self._working and self._working[0][0] <= monotonic():
                self._reply(*self._working.popleft()[1:])
            self._beat()

    def _pause_s(self) -> float:
        """Return the time until a worker has worked for long enough, or must send a heartbeat."""
        if not self._working:
            return HEARTBEAT_S
        return min(HEARTBEAT_S, max(0.0, self._working[0][0] - monotonic()))

    def _reply(self, number: int, reply: bytes) -> None:
        self._workers[number][0].sendall(reply)
        self._spoke.add(number)

    def _beat(self) -> None:
        """Once a second, send a heartbeat for each worker that has sent nothing since."""
        if monotonic() < self._beat_at:
            return
        self._beat_at += HEARTBEAT_S
        for number, (sock, side) in self._workers.items():
            if number not in self._spoke:
                sock.sendall(side.heartbeat)
        self._spoke.clear()


def main() -> None:
    """Register, print `ready`, and serve until a signal."""
    job = Job.from_argument(sys.argv[1])
    crew = Crew(job, by_name(job.dialect))
    print("ready", flush=True)
    crew.serve()


if __name__ == "__main__":
    main()
