"""requite's public API, as a user writes it.

python -m bench.sp.requite_peer async-client|client|worker|device JOB
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from operator import attrgetter

import requite
from bench.job import Job
from bench.loop import run
from bench.peers.measure import CALL_TIMEOUT_S, measure_threads
from bench.sp.measure import measure_tasks
from bench.sp.peer import play, say_where

_ANY_PORT = "sp+tcp://127.0.0.1:0"


async def call(job: Job) -> None:
    """Measure `await client.call(...)`."""
    async with requite.AsyncClient(_service(job)) as client:
        await measure_tasks(
            job, lambda body: client.call(body, timeout=CALL_TIMEOUT_S), attrgetter("body")
        )


def call_blocking(job: Job) -> None:
    """Measure `client.call(...)` of the blocking client."""
    with requite.Client(_service(job)) as client:

        def connect() -> Callable[[bytes], bytes]:
            return lambda body: client.call(body, timeout=CALL_TIMEOUT_S).body

        measure_threads(job, connect)


def _service(job: Job) -> str:
    return f"sp+tcp://127.0.0.1:{job.port}"


@requite.service("echo")
async def echo(request: requite.Request) -> bytes:
    """Answer with the request's body."""
    return request.body


def serve(job: Job) -> None:
    """Answer every request with its body."""
    worker = requite.Worker(echo, bind=_ANY_PORT, capacity=job.capacity)
    worker.run(on_started=lambda: say_where(worker.addresses[0]))


async def forward(job: Job) -> None:
    """Forward between client and service."""
    from requite import sp

    async with sp.Device(front=[_ANY_PORT], back=[], connect_back=[_service(job)]) as device:
        say_where(device.front_addresses[0])
        await asyncio.Event().wait()


if __name__ == "__main__":
    play(
        {
            "async-client": lambda job: run(call(job)),
            "client": call_blocking,
            "worker": serve,
            "device": lambda job: run(forward(job)),
        }
    )
