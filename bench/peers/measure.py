"""Measure a client with `window` callers, each with one call in flight."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from time import perf_counter_ns
from typing import Any

from bench.gauge import Gauge
from bench.job import Job

CALL_TIMEOUT_S = 30.0  # for all contenders; never reached, but set, as in real programs

IsOver = Callable[[int], bool]


class WrongReply(Exception):
    """The reply of a call differs from its request."""


async def measure_tasks(
    job: Job, call: Callable[[bytes], Awaitable[Any]], body_of: Callable[[Any], bytes]
) -> None:
    """Measure `await call(body)` in `window` tasks; `body_of` returns the body of a reply."""
    body = job.body
    answered = 0

    async def ask(is_over: IsOver) -> None:
        nonlocal answered
        while not is_over(answered):
            if body_of(await call(body)) != body:
                raise WrongReply
            answered += 1

    async def ask_timed(latencies: list[int]) -> None:
        while not gauge.is_over(len(latencies)):
            asked = perf_counter_ns()
            reply = await call(body)
            latencies.append(perf_counter_ns() - asked)
            if body_of(reply) != body:
                raise WrongReply

    gauge = Gauge(job)
    await asyncio.gather(*(ask(gauge.is_warm) for _ in range(job.window)))
    answered = 0
    latencies: list[int] = []
    gauge.open()
    if job.window == 1:
        await ask_timed(latencies)
    else:
        await asyncio.gather(*(ask(gauge.is_over) for _ in range(job.window)))
    gauge.close(answered or len(latencies), latencies)


def measure_threads(job: Job, make_call: Callable[[], Callable[[bytes], bytes]]) -> None:
    """Measure a blocking client: a thread with its own client per request in flight."""
    gauge = Gauge(job)
    tallies: list[list[int]] = [[] for _ in range(job.window)]
    steady = threading.Barrier(job.window, action=gauge.open)
    failures: list[BaseException] = []

    def ask(latencies: list[int]) -> None:
        try:
            call, body = make_call(), job.body
            while not gauge.is_warm():
                call(body)
            steady.wait()
            while not gauge.is_over(len(latencies) * job.window):  # extrapolated from this thread
                asked = perf_counter_ns()
                if call(body) != body:
                    raise WrongReply
                latencies.append(perf_counter_ns() - asked)
        except BaseException as failure:
            failures.append(failure)
            steady.abort()

    threads = [threading.Thread(target=ask, args=(tally,)) for tally in tallies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    gauge.close(sum(map(len, tallies)), tallies[0] if job.window == 1 else [])
