"""NATS with `nats-py`: request-reply; the workers are a queue group."""

from __future__ import annotations

import asyncio
from operator import attrgetter

import nats
from nats.aio.msg import Msg

from bench.job import SERVICE, Job
from bench.loop import run
from bench.peers import play, ready
from bench.peers.measure import CALL_TIMEOUT_S, measure_tasks

SUBJECT = SERVICE.decode()


async def call(job: Job) -> None:
    """Measure `await connection.request(...)`."""
    connection = await nats.connect(f"nats://127.0.0.1:{job.port}")
    await measure_tasks(
        job,
        lambda body: connection.request(SUBJECT, body, timeout=CALL_TIMEOUT_S),
        attrgetter("data"),
    )
    await connection.close()


async def serve(job: Job) -> None:
    """Answer every request with its body."""

    async def echo(message: Msg) -> None:
        await message.respond(message.data)

    connection = await nats.connect(f"nats://127.0.0.1:{job.port}")
    await connection.subscribe(SUBJECT, queue="workers", cb=echo)
    await connection.flush()
    ready()
    await asyncio.Event().wait()


if __name__ == "__main__":
    play(client=lambda job: run(call(job)), worker=lambda job: run(serve(job)))
