"""RPC written with aio-pika: futures by correlation id, one consumer of replies.

    python -m bench.amqp.aio_pika_peer client|client-bare|servant|servant-bare JOB

The job's dialect is the queue of the service. The plain parts give the same guarantees as requite:
requests are mandatory and expire with the caller's timeout, and the servant acknowledges a request
when its reply is confirmed. The bare ones omit all options: no reply queue (direct reply-to), no
expiration, no confirms.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from typing import Any, Final

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from bench.job import Job
from bench.loop import run
from bench.peers.measure import CALL_TIMEOUT_S
from bench.sp.measure import measure_tasks
from bench.sp.peer import play

_DIRECT: Final = "amq.rabbitmq.reply-to"


class Caller:
    """Outstanding calls of a client."""

    def __init__(self, queue: str, exchange: Any, reply_to: str) -> None:
        self._publish = partial(exchange.publish, routing_key=queue)
        self._reply_to = reply_to
        self._expiration = None if reply_to == _DIRECT else CALL_TIMEOUT_S
        self._calls: dict[str, asyncio.Future[bytes]] = {}
        self._numbers = map(str, count())
        self._loop = asyncio.get_running_loop()

    async def call(self, body: bytes) -> bytes:
        """Return the reply to a request."""
        number = next(self._numbers)
        future = self._calls[number] = self._loop.create_future()
        message = aio_pika.Message(
            body,
            correlation_id=number,
            reply_to=self._reply_to,
            expiration=self._expiration,
            delivery_mode=aio_pika.DeliveryMode.NOT_PERSISTENT,
        )
        await self._publish(message)
        return await future

    def replied(self, message: AbstractIncomingMessage) -> None:
        """Handle a reply."""
        future = self._calls.pop(message.correlation_id or "", None)
        if future is not None and not future.done():
            future.set_result(message.body)


async def call(job: Job, *, direct: bool) -> None:
    """Measure calls."""
    async with await aio_pika.connect(_url(job)) as connection:
        channel = await connection.channel(publisher_confirms=False)
        if direct:
            queue = await channel.get_queue(_DIRECT, ensure=False)
        else:
            queue = await channel.declare_queue(exclusive=True, auto_delete=True)
        caller = Caller(job.dialect, channel.default_exchange, queue.name)
        await queue.consume(caller.replied, no_ack=True)
        await measure_tasks(job, caller.call, lambda body: body)


async def serve(job: Job, *, confirms: bool) -> None:
    """Answer every request with its body."""
    async with await aio_pika.connect(_url(job)) as connection:
        channel = await connection.channel(publisher_confirms=confirms)
        await channel.set_qos(prefetch_count=job.capacity)
        queue = await channel.get_queue(job.dialect)
        publish = channel.default_exchange.publish

        async def answer(request: AbstractIncomingMessage) -> None:
            reply = aio_pika.Message(
                request.body,
                correlation_id=request.correlation_id,
                delivery_mode=aio_pika.DeliveryMode.NOT_PERSISTENT,
            )
            await publish(reply, request.reply_to or "", mandatory=False)
            await request.ack()

        await queue.consume(answer)
        print("ready", flush=True)
        await asyncio.Event().wait()


def _url(job: Job) -> str:
    return f"amqp://guest:guest@127.0.0.1:{job.port}/"


if __name__ == "__main__":
    play(
        {
            "client": lambda job: run(call(job, direct=False)),
            "client-bare": lambda job: run(call(job, direct=True)),
            "servant": lambda job: run(serve(job, confirms=True)),
            "servant-bare": lambda job: run(serve(job, confirms=False)),
        }
    )
