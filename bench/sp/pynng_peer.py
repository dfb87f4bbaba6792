"""pynng, written as in its documentation; a context per request in flight.

    python -m bench.sp.pynng_peer client|threads|tasks|service|device JOB

`threads` has a blocking thread per context, `tasks` an asyncio task. The service has a thread per
context, which is faster than tasks; for one request at a time it is a blocking loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pynng

from bench.job import Job
from bench.loop import run
from bench.peers.measure import CALL_TIMEOUT_S, measure_threads
from bench.sp.measure import measure_tasks
from bench.sp.peer import play, say_where

_ANY_PORT = "tcp://127.0.0.1:0"
_TIMEOUT_MS = int(CALL_TIMEOUT_S * 1000)


def _dialled(job: Job) -> Any:
    return pynng.Req0(
        dial=f"tcp://127.0.0.1:{job.port}", recv_timeout=_TIMEOUT_MS, send_timeout=_TIMEOUT_MS
    )


def call(job: Job) -> None:
    """Measure `socket.send(...)` followed by `socket.recv()`."""
    socket = _dialled(job)
    measure_threads(job, lambda: _asker(socket))


def call_from_threads(job: Job) -> None:
    """Measure `context.send(...)` followed by `context.recv()`."""
    socket = _dialled(job)
    measure_threads(job, lambda: _asker(socket.new_context()))


def _asker(end: Any) -> Callable[[bytes], bytes]:
    def ask(body: bytes) -> bytes:
        end.send(body)
        reply: bytes = end.recv()
        return reply

    return ask


async def call_from_tasks(job: Job) -> None:
    """Measure `await context.asend(...)` followed by `await context.arecv()`."""
    socket = _dialled(job)
    free = [socket.new_context() for _ in range(job.window)]

    async def ask(body: bytes) -> bytes:
        context = free.pop()
        await context.asend(body)
        reply: bytes = await context.arecv()
        free.append(context)
        return reply

    await measure_tasks(job, ask, lambda reply: reply)


def serve(job: Job) -> None:
    """Answer every request with its body."""
    socket = pynng.Rep0(listen=_ANY_PORT)
    ends = [socket] if job.window == 1 else [socket.new_context() for _ in range(job.window)]
    say_where(socket.listeners[0].local_address)
    threads = [threading.Thread(target=_echo, args=(end,)) for end in ends]
    for thread in threads:
        thread.start()


def _echo(end: Any) -> None:
    while True:
        end.send(end.recv())


def forward(job: Job) -> None:
    """Run nng's own device, by its C function: pynng has no method for it."""
    front = pynng.Rep0(listen=_ANY_PORT, opener=pynng.lib.nng_rep0_open_raw)
    back = pynng.Req0(dial=f"tcp://127.0.0.1:{job.port}", opener=pynng.lib.nng_req0_open_raw)
    say_where(front.listeners[0].local_address)
    pynng.check_err(pynng.lib.nng_device(front.socket, back.socket))


if __name__ == "__main__":
    play(
        {
            "client": call,
            "threads": call_from_threads,
            "tasks": lambda job: run(call_from_tasks(job)),
            "service": serve,
            "device": forward,
        }
    )
