"""The clients: one per request of the job's window, each with its own connection.

    python -m bench.durable.peer titanic|titanic-shared|pika|aio-pika|sqlite|sqlite-grouped JOB

The job has the broker's port; the variable BENCH_FOLDER names the folder of SQLite's file.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import requite
from bench.job import Job
from bench.loop import run
from bench.peers.measure import CALL_TIMEOUT_S, measure_tasks, measure_threads
from bench.sp.peer import play

_QUEUE: Final = "requite-bench"
_INSERT: Final = "insert into requests (body) values (?)"

Keep = Callable[[bytes], Awaitable[Any]]


async def _measure(job: Job, keepers: Sequence[Keep]) -> None:
    """Measure tasks that each use a keeper exclusively for a request."""
    free = list(keepers)

    async def keep(body: bytes) -> bytes:
        keeper = free.pop()
        await keeper(body)
        free.append(keeper)
        return body

    await measure_tasks(job, keep, lambda body: body)


# --- requite --------------------------------------------------------------------------------------
async def titanic(job: Job) -> None:
    """Submit over a connection per client."""
    async with AsyncExitStack() as stack:
        url = f"mdp://127.0.0.1:{job.port}/echo"
        clients = [
            await stack.enter_async_context(requite.AsyncClient(url)) for _ in range(job.window)
        ]
        await _measure(job, [_submitter(client) for client in clients])


async def titanic_shared(job: Job) -> None:
    """Submit from all tasks over one connection, as a program with one client does."""
    async with requite.AsyncClient(f"mdp://127.0.0.1:{job.port}/echo") as client:
        await _measure(job, [_submitter(client)] * job.window)


def _submitter(client: requite.AsyncClient) -> Keep:
    return lambda body: client.submit(body, timeout=CALL_TIMEOUT_S)


# --- RabbitMQ -------------------------------------------------------------------------------------
async def aio_pika(job: Job) -> None:
    """Publish over a connection per client."""
    import aio_pika

    async def publisher(connection: Any) -> Keep:
        channel = await connection.channel(publisher_confirms=True)
        await channel.declare_queue(_QUEUE, durable=True)
        mode = aio_pika.DeliveryMode.PERSISTENT
        exchange = channel.default_exchange
        return lambda body: exchange.publish(aio_pika.Message(body, delivery_mode=mode), _QUEUE)

    async with AsyncExitStack() as stack:
        connections = [
            await stack.enter_async_context(
                await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{job.port}/")
            )
            for _ in range(job.window)
        ]
        await _measure(job, [await publisher(connection) for connection in connections])


def pika(job: Job) -> None:
    """Publish over a connection and in a thread per client."""
    import pika

    persistent = pika.BasicProperties(delivery_mode=2)

    def connect() -> Callable[[bytes], bytes]:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", job.port))
        channel = connection.channel()
        channel.queue_declare(_QUEUE, durable=True)
        channel.confirm_delivery()

        def keep(body: bytes) -> bytes:
            channel.basic_publish("", _QUEUE, body, persistent)
            return body

        return keep

    measure_threads(job, connect)


# --- SQLite ---------------------------------------------------------------------------------------
def _open() -> sqlite3.Connection:
    path = Path(os.environ["BENCH_FOLDER"]) / "requests.sqlite"
    connection = sqlite3.connect(path, isolation_level=None, timeout=CALL_TIMEOUT_S)
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=full")
    connection.execute(
        "create table if not exists requests (number integer primary key, body blob)"
    )
    return connection


def sqlite(job: Job) -> None:
    """Commit each request separately, over a connection and in a thread per client."""

    def connect() -> Callable[[bytes], bytes]:
        connection = _open()

        def keep(body: bytes) -> bytes:
            connection.execute(_INSERT, (body,))
            return body

        return keep

    _open().close()
    measure_threads(job, connect)


def sqlite_grouped(job: Job) -> None:
    """Commit the pending requests of all clients together, in one thread."""
    waiting: queue.SimpleQueue[tuple[bytes, threading.Event]] = queue.SimpleQueue()

    def write() -> None:
        connection = _open()
        while True:
            taken = [waiting.get()]
            while not waiting.empty():
                taken.append(waiting.get())
            connection.execute("begin")
            connection.executemany(_INSERT, [(body,) for body, _ in taken])
            connection.execute("commit")
            for _, kept in taken:
                kept.set()

    def connect() -> Callable[[bytes], bytes]:
        kept = threading.Event()

        def keep(body: bytes) -> bytes:
            kept.clear()
            waiting.put((body, kept))
            kept.wait()
            return body

        return keep

    threading.Thread(target=write, daemon=True).start()
    measure_threads(job, connect)


if __name__ == "__main__":
    play(
        {
            "titanic": lambda job: run(titanic(job)),
            "titanic-shared": lambda job: run(titanic_shared(job)),
            "pika": pika,
            "aio-pika": lambda job: run(aio_pika(job)),
            "sqlite": sqlite,
            "sqlite-grouped": sqlite_grouped,
        }
    )
