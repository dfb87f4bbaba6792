"""All workers of a run in one process, with a socket each: `python -m bench.load.workers JOB`."""

from __future__ import annotations

import select
import socket
import sys
from time import monotonic

from bench.job import Job
from bench.load.dialect import Dialect, WorkerSide
from bench.load.dialects import by_name

HEARTBEAT_S = 1.0
READ_BYTES = 65_536

Workers = dict[int, tuple[socket.socket, WorkerSide]]


def connect(job: Job, dialect: Dialect) -> Workers:
    """Connect and register every worker."""
    workers: Workers = {}
    for _ in range(job.workers):
        sock = dialect.connect(job.port)
        side = dialect.worker(job)
        sock.sendall(side.hello())
        workers[sock.fileno()] = sock, side
    return workers


def serve(workers: Workers) -> None:
    """Answer requests in a loop."""
    epoll = select.epoll()
    for number in workers:
        epoll.register(number, select.EPOLLIN)
    spoke: set[int] = set()
    beat_at = monotonic() + HEARTBEAT_S
    while True:
        for number, _ in epoll.poll(HEARTBEAT_S):
            sock, side = workers[number]
            data = sock.recv(READ_BYTES)
            if not data:
                raise ConnectionError("the broker closed a worker's connection")
            if reply := side.answer(data):
                sock.sendall(reply)
                spoke.add(number)
        if monotonic() >= beat_at:
            beat(workers, spoke)
            beat_at += HEARTBEAT_S


def beat(workers: Workers, spoke: set[int]) -> None:
    """Send a heartbeat for each worker that has sent nothing since the last call."""
    for number, (sock, side) in workers.items():
        if number not in spoke:
            sock.sendall(side.heartbeat)
    spoke.clear()


def main() -> None:
    """Register, print `ready`, and serve until a signal."""
    job = Job.from_argument(sys.argv[1])
    workers = connect(job, by_name(job.dialect))
    print("ready", flush=True)
    serve(workers)


if __name__ == "__main__":
    main()
