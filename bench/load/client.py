"""One client that keeps a window of requests in flight: `python -m bench.load.client JOB`."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from time import perf_counter_ns

from bench.gauge import Gauge
from bench.job import Job
from bench.load.dialect import ClientSide
from bench.load.dialects import by_name

READ_BYTES = 262_144


class Load:
    """A connection with a full window of requests; each reply lets it send the next request."""

    def __init__(self, sock: socket.socket, side: ClientSide, window: int) -> None:
        self._sock = sock
        self._side = side
        sock.settimeout(10)  # a lost reply fails the run instead of blocking it
        sock.sendall(side.hello() + side.requests(window))

    def run_until(self, is_over: Callable[[int], bool]) -> int:
        """Keep the window full until `is_over(answered)`; return the number of replies."""
        receive, send, side = self._sock.recv, self._sock.sendall, self._side
        answered = 0
        while not is_over(answered):
            data = receive(READ_BYTES)
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
    load = Load(dialect.connect(job.port), dialect.client(job), job.window)
    gauge = Gauge(job)
    load.run_until(gauge.is_warm)
    gauge.open()
    latencies = load.run_timed(gauge.is_over) if job.window == 1 else []
    answered = len(latencies) or load.run_until(gauge.is_over)
    gauge.close(answered, latencies)


if __name__ == "__main__":
    main()
