"""Clients that keep a window of requests in flight, or offer a rate of requests:
`python -m bench.load.client JOB`."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from time import perf_counter, perf_counter_ns, sleep

from bench.gauge import Gauge, cpu_s, memory_mib
from bench.job import Job
from bench.load.crowd import Crowd, connect_idle
from bench.load.dialect import ClientSide
from bench.load.dialects import by_name
from bench.load.offered import offer


class Load:
    """A connection with a full window of requests; each reply lets it send the next request."""

    def __init__(self, sock: socket.socket, side: ClientSide, job: Job) -> None:
        self._sock = sock
        self._side = side
        self._read_size_bytes = job.read_size_bytes
        sock.settimeout(10)  # a lost reply fails the run instead of blocking it
        sock.sendall(side.hello() + side.requests(job.window))

    def run_until(self, is_over: Callable[[int], bool]) -> int:
        """Keep the window full until `is_over(answered)`; return the number of replies."""
        receive, send, side = self._sock.recv, self._sock.sendall, self._side
        size = self._read_size_bytes
        answered = 0
        while not is_over(answered):
            data = receive(size)
            if not data:
                raise ConnectionError("the broker closed the connection")
            if count := side.count_replies(data):
                answered += count
                send(side.requests(count))
        return answered

    def run_timed(self, is_over: Callable[[int], bool]) -> list[int]:
        """Like `run_until` with one request in flight; return the latencies in ns."""
        latencies: list[int] = []
        asked = perf_counter_ns()

        def note(answered: int) -> bool:
            nonlocal asked
            now = perf_counter_ns()
            if answered > len(latencies):
                latencies.append(now - asked)
                asked = now
            return is_over(answered)

        self.run_until(note)
        return latencies


def main() -> None:
    """Warm up, measure, print the figures."""
    job = Job.from_argument(sys.argv[1])
    dialect = by_name(job.dialect)
    idle = connect_idle(job, dialect)
    connections = [dialect.connect(job.port) for _ in range(job.connections)]
    at_rest = measure_rest(job)
    if job.rate:
        offer(job, connections)
        return
    load: Load | Crowd
    if job.connections == 1:
        load = Load(connections[0], dialect.client(job), job)
    else:
        load = Crowd([(sock, dialect.client(job)) for sock in connections], job)
    gauge = Gauge(job)
    # Warm: each request of the first window was answered.
    load.run_until(lambda answered: answered >= job.window and gauge.is_warm())
    gauge.open()
    latencies = load.run_timed(gauge.is_over) if isinstance(load, Load) and job.window == 1 else []
    answered = len(latencies) or load.run_until(gauge.is_over)
    gauge.close(answered, latencies, at_rest)
    del idle


def measure_rest(job: Job) -> dict[str, float]:
    """Return how many cores the broker uses while nothing is sent, and its memory."""
    if not job.rest_s:
        return {}
    used_s, started = cpu_s(job.broker_pid), perf_counter()
    sleep(job.rest_s)
    used_s = cpu_s(job.broker_pid) - used_s
    return {
        "rest_cores": used_s / (perf_counter() - started),
        "rest_memory_mib": memory_mib(job.broker_pid),
    }


if __name__ == "__main__":
    main()
