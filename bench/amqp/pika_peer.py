"""RPC written with pika: on an event loop with futures, and from pika's own callbacks.

    python -m bench.amqp.pika_peer client|client-bare|servant|servant-bare JOB

The job's dialect is the queue of the service. The plain parts give the same guarantees as requite:
requests are mandatory and expire with the caller's timeout, and the servant acknowledges a request
when its reply is confirmed. The bare ones omit all options: no reply queue (direct reply-to), no
expiration, no confirms; their client has no API, but is a loop that sends the next request when a
reply arrives, which is the minimum with pika.
"""

from __future__ import annotations

import asyncio
from itertools import count
from time import perf_counter_ns
from typing import Any, Final

import pika
from pika.adapters.asyncio_connection import AsyncioConnection

from bench.gauge import Gauge
from bench.job import Job
from bench.loop import run
from bench.peers.measure import CALL_TIMEOUT_S, WrongReply
from bench.sp.measure import measure_tasks
from bench.sp.peer import play

_DIRECT: Final = "amq.rabbitmq.reply-to"
_EXPIRATION: Final = str(int(CALL_TIMEOUT_S * 1000))


# --- on an event loop -----------------------------------------------------------------------------
class Caller:
    """Outstanding calls of a client."""

    def __init__(self, channel: Any, queue: str, reply_to: str) -> None:
        self._channel = channel
        self._queue = queue
        self._reply_to = reply_to
        self._calls: dict[str, asyncio.Future[bytes]] = {}
        self._numbers = map(str, count())
        self._loop = asyncio.get_running_loop()

    async def call(self, body: bytes) -> bytes:
        """Return the reply to a request."""
        number = next(self._numbers)
        future = self._calls[number] = self._loop.create_future()
        properties = pika.BasicProperties(
            correlation_id=number, reply_to=self._reply_to, expiration=_EXPIRATION
        )
        self._channel.basic_publish("", self._queue, body, properties, mandatory=True)
        return await future

    def replied(self, _channel: Any, _method: Any, properties: Any, body: bytes) -> None:
        """Handle a reply."""
        future = self._calls.pop(properties.correlation_id, None)
        if future is not None and not future.done():
            future.set_result(body)


async def call(job: Job) -> None:
    """Measure calls."""
    connection, channel = await _connect(job)
    declared = await _answer_of(channel.queue_declare, "", exclusive=True, auto_delete=True)
    caller = Caller(channel, job.dialect, declared.method.queue)
    channel.basic_consume(declared.method.queue, caller.replied, auto_ack=True)
    await measure_tasks(job, caller.call, lambda body: body)
    connection.close()


async def serve(job: Job) -> None:
    """Answer every request with its body; acknowledge it when that has been confirmed."""
    _, channel = await _connect(job)
    unconfirmed: dict[int, int] = {}
    numbers = count(1)

    def confirmed(frame: Any) -> None:
        number = frame.method.delivery_tag
        upto = [each for each in unconfirmed if each <= number] if frame.method.multiple else None
        for each in [number] if upto is None else upto:
            channel.basic_ack(unconfirmed.pop(each))

    def answer(_channel: Any, method: Any, properties: Any, body: bytes) -> None:
        unconfirmed[next(numbers)] = method.delivery_tag
        reply = pika.BasicProperties(correlation_id=properties.correlation_id)
        channel.basic_publish("", properties.reply_to, body, reply)

    await _answer_of(channel.confirm_delivery, confirmed)
    await _answer_of(channel.basic_qos, prefetch_count=job.capacity)
    channel.basic_consume(job.dialect, answer)
    print("ready", flush=True)
    await asyncio.Event().wait()


async def _connect(job: Job) -> tuple[Any, Any]:
    opened = asyncio.get_running_loop().create_future()

    def failed(_connection: Any, error: Any) -> None:
        opened.set_exception(ConnectionError(str(error)))

    AsyncioConnection(
        _parameters(job),
        on_open_callback=opened.set_result,
        on_open_error_callback=failed,
    )
    connection = await opened
    return connection, await _answer_of(connection.channel, name="on_open_callback")


async def _answer_of(method: Any, *arguments: Any, name: str = "callback", **more: Any) -> Any:
    """Call a method of pika; return the argument of its callback."""
    answered = asyncio.get_running_loop().create_future()
    method(*arguments, **{name: answered.set_result}, **more)
    return await answered


def _parameters(job: Job) -> pika.ConnectionParameters:
    return pika.ConnectionParameters("127.0.0.1", job.port)


# --- from callbacks -------------------------------------------------------------------------------
def call_bare(job: Job) -> None:
    """Measure a loop that sends the next request on each reply."""
    channel = pika.BlockingConnection(_parameters(job)).channel()
    body = job.body
    gauge = Gauge(job)
    latencies: list[int] = []
    is_open, answered, asked = False, 0, 0

    def ask() -> None:
        nonlocal asked
        asked = perf_counter_ns()
        properties = pika.BasicProperties(correlation_id="0", reply_to=_DIRECT)
        channel.basic_publish("", job.dialect, body, properties)

    def replied(_channel: Any, _method: Any, _properties: Any, reply: bytes) -> None:
        nonlocal is_open, answered
        if reply != body:
            raise WrongReply
        answered += 1
        if is_open and job.window == 1:
            latencies.append(perf_counter_ns() - asked)
        if not is_open and gauge.is_warm():
            is_open, answered = True, 0
            gauge.open()
        elif is_open and gauge.is_over(answered):
            channel.stop_consuming()
            return
        ask()

    channel.basic_consume(_DIRECT, replied, auto_ack=True)
    for _ in range(job.window):
        ask()
    channel.start_consuming()
    gauge.close(answered, latencies)


def serve_bare(job: Job) -> None:
    """Answer every request with its body, and acknowledge it."""
    channel = pika.BlockingConnection(_parameters(job)).channel()
    channel.basic_qos(prefetch_count=job.capacity)

    def answer(_channel: Any, method: Any, properties: Any, body: bytes) -> None:
        reply = pika.BasicProperties(correlation_id=properties.correlation_id)
        channel.basic_publish("", properties.reply_to, body, reply)
        channel.basic_ack(method.delivery_tag)

    channel.basic_consume(job.dialect, answer)
    print("ready", flush=True)
    channel.start_consuming()


if __name__ == "__main__":
    play(
        {
            "client": lambda job: run(call(job)),
            "client-bare": call_bare,
            "servant": lambda job: run(serve(job)),
            "servant-bare": serve_bare,
        }
    )
