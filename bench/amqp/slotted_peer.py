"""A slotted client with 1, 2, 4, ... slots, all in use; and servants that wait or answer at once.

    python -m bench.amqp.slotted_peer client|echo|work JOB

The job's window is the largest number of slots. The client prints a line of JSON for each.
"""

from __future__ import annotations

import asyncio
import json
from time import perf_counter, process_time
from typing import Final

import requite
from bench.gauge import cpu_s
from bench.job import Job
from bench.loop import run
from bench.peers.measure import CALL_TIMEOUT_S
from bench.sp.peer import play

WORK_S: Final = 0.01
CAPACITY: Final = 16
"""Capacity of each servant: the default of `requite.Worker`."""


async def call(job: Job) -> None:
    """Measure 1, 2, 4 ... slots."""
    slots = 1
    while slots <= job.window:
        async with requite.AsyncClient(_service(job), slots=slots) as client:
            await _use(client, slots, job)
        slots *= 2


async def _use(client: requite.AsyncClient, slots: int, job: Job) -> None:
    """Use all slots for a while; print calls per second, mean latency and processor time."""
    latencies_s: list[float] = []
    ends_at = perf_counter() + job.warm_up_s

    async def ask() -> None:
        while (asked := perf_counter()) < ends_at:
            await client.call(job.body, timeout=CALL_TIMEOUT_S)
            latencies_s.append(perf_counter() - asked)

    await asyncio.gather(*(ask() for _ in range(slots)))
    latencies_s.clear()
    began, used_s = perf_counter(), _used_s(job)
    ends_at = began + job.seconds
    await asyncio.gather(*(ask() for _ in range(slots)))
    elapsed_s = perf_counter() - began
    figures = {
        "slots": slots,
        "calls_per_s": len(latencies_s) / elapsed_s,
        "latency_s": sum(latencies_s) / len(latencies_s),
        "cores": (_used_s(job) - used_s) / elapsed_s,
    }
    print(json.dumps(figures), flush=True)


def _used_s(job: Job) -> float:
    """Return the total processor time of the client, the servants and RabbitMQ."""
    return process_time() + sum(map(cpu_s, [job.broker_pid, *job.worker_pids]))


def _service(job: Job) -> str:
    return f"amqp://guest:guest@127.0.0.1:{job.port}/?queue={job.dialect}"


@requite.service("echo")
async def echo(request: requite.Request) -> bytes:
    """Answer at once."""
    return request.body


@requite.service("work")
async def work(request: requite.Request) -> bytes:
    """Answer after a wait."""
    await asyncio.sleep(WORK_S)
    return request.body


def serve(job: Job, service: requite.Service) -> None:
    """Run a worker with the service."""
    worker = requite.Worker(_service(job), service, capacity=CAPACITY)
    worker.run(on_started=lambda: print("ready", flush=True))


if __name__ == "__main__":
    play(
        {
            "client": lambda job: run(call(job)),
            "echo": lambda job: serve(job, echo),
            "work": lambda job: serve(job, work),
        }
    )
