"""requite's public API, as a user writes it.

    python -m bench.amqp.requite_peer async-client|async-client-direct|client|worker JOB

The job's dialect is the queue of the service.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import requite
from bench.job import Job
from bench.loop import run
from bench.peers.measure import CALL_TIMEOUT_S, measure_threads
from bench.sp.measure import measure_tasks
from bench.sp.peer import play


async def call(job: Job, options: str = "") -> None:
    """Measure `await client.call(...)`."""
    async with requite.AsyncClient(_service(job) + options) as client:
        await measure_tasks(
            job, lambda body: client.call(body, timeout=CALL_TIMEOUT_S), attrgetter("body")
        )


def call_blocking(job: Job) -> None:
    """Measure `client.call(...)` of the blocking client, from a thread per call in flight."""
    with requite.Client(_service(job)) as client:

        def connect() -> Callable[[bytes], bytes]:
            return lambda body: client.call(body, timeout=CALL_TIMEOUT_S).body

        measure_threads(job, connect)


def _service(job: Job) -> str:
    return f"amqp://guest:guest@127.0.0.1:{job.port}/?queue={job.dialect}"


@requite.service("echo")
async def echo(request: requite.Request) -> bytes:
    """Answer with the request's body."""
    return request.body


def serve(job: Job) -> None:
    """Answer every request with its body."""
    worker = requite.Worker(_service(job), echo, capacity=job.capacity)
    worker.run(on_started=lambda: print("ready", flush=True))


if __name__ == "__main__":
    play(
        {
            "async-client": lambda job: run(call(job)),
            "async-client-direct": lambda job: run(call(job, "&reply=direct")),
            "client": call_blocking,
            "worker": serve,
        }
    )
