"""Measure a client on an event loop with little overhead.

With 64 calls in flight a call takes a few microseconds, and reading the clock after each would add
10 %. So calls are only counted, and a timer checks whether the warm-up or the run is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter_ns
from typing import Any, Final

from bench.gauge import Gauge
from bench.job import Job
from bench.peers.measure import WrongReply

_LOOK_S: Final = 0.02


class Counter:
    """Counts answers, and opens and closes the gauge on time; `is_over` is true after that."""

    def __init__(self, job: Job) -> None:
        self.answered = 0
        self.latencies_ns: list[int] = []
        self.is_over = False
        self.done = asyncio.Event()
        self._gauge = Gauge(job)
        self._is_open = False
        self._loop = asyncio.get_running_loop()
        self._look()

    def _look(self) -> None:
        if not self._is_open and self._gauge.is_warm():
            self._is_open = True
            self.answered = 0
            self.latencies_ns.clear()
            self._gauge.open()
        elif self._is_open and self._gauge.is_over(self.answered):
            self._gauge.close(self.answered, self.latencies_ns)
            self.is_over = True
            self.done.set()
            return
        self._loop.call_later(_LOOK_S, self._look)


async def measure_tasks(
    job: Job, call: Callable[[bytes], Awaitable[Any]], body_of: Callable[[Any], bytes]
) -> None:
    """Measure `await call(body)` in as many tasks as the job's window."""
    body = job.body
    counter = Counter(job)

    async def ask() -> None:
        while not counter.is_over:
            if body_of(await call(body)) != body:
                raise WrongReply
            counter.answered += 1

    async def ask_timed() -> None:
        while not counter.is_over:
            asked = perf_counter_ns()
            reply = await call(body)
            counter.latencies_ns.append(perf_counter_ns() - asked)
            if body_of(reply) != body:
                raise WrongReply
            counter.answered += 1

    if job.window == 1:
        await ask_timed()
    else:
        await asyncio.gather(*(ask() for _ in range(job.window)))
