"""requite's public API: `AsyncClient` and `Worker`, over MDP 0.3."""

from __future__ import annotations

from operator import attrgetter

import requite
from bench.job import SERVICE, Job
from bench.loop import run
from bench.peers import play, ready
from bench.peers.measure import CALL_TIMEOUT_S, measure_tasks

NAME = SERVICE.decode()


async def call(job: Job) -> None:
    """Measure `await client.call(...)`."""
    async with requite.AsyncClient(f"mdp://127.0.0.1:{job.port}/{NAME}{job.query}") as client:
        await measure_tasks(
            job, lambda body: client.call(body, timeout=CALL_TIMEOUT_S), attrgetter("body")
        )


@requite.service(NAME)
async def echo(request: requite.Request) -> bytes:
    """Answer with the request's body."""
    return request.body


def serve(job: Job) -> None:
    """Answer every request with its body."""
    worker = requite.Worker(f"mdp://127.0.0.1:{job.port}{job.query}", echo, capacity=job.capacity)
    ready()
    worker.run()


if __name__ == "__main__":
    play(client=lambda job: run(call(job)), worker=serve)
