"""Latency of the first request of a new key in a pool, by component.

Three kinds of workers: processes that the manager starts, as for users; tasks on the manager's own
event loop, without a start; and workers that were started before, whose queues were declared after
their reports. For comparison, a Python process that does nothing, and one that imports the modules
of a worker.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

import requite
from bench.amqp.pools import managing, new_pool, pool_url, processes
from bench.amqp.turns import START_S, facts, publish
from bench.page import table
from bench.quiet import Quiet
from requite.testing.processes import Children, ProcessFailed
from requite.testing.rabbitmq import RabbitServer

KEYS: Final = 20
_QUICK: Final = 3
_PEER: Final = ("-m", "bench.amqp.start_peer")
_WORKER: Final = (
    *(sys.executable, "-m", "requite.cli"),
    *("worker", "bench.amqp.pool_worker:echo", "--pool"),
)
_LOADS: Final = (
    "import requite.cli.worker, requite.speaks.amqp, requite.protocols.amqp.responder,"
    " bench.amqp.pool_worker"
)
_TIMEOUT_S: Final = 60.0

Times = list[float]
Way = Callable[[RabbitServer, Path, int], Times]


def run(rabbit: RabbitServer, given: Namespace, how: str) -> list[str]:
    """Measure and report; return what failed."""
    count = _QUICK if given.quick else KEYS
    rows: dict[str, Times] = {}
    quiet = Quiet(given.busy)

    def measure(way: Way) -> Times:
        with TemporaryDirectory(prefix="requite-bench-") as name:
            return way(rabbit, Path(name), count)

    try:
        for what, way in _WAYS.items():
            rows[what] = quiet.take(partial(measure, way))
            print(f"{what}: {median(rows[what]):.3f} s", flush=True)
    except (ProcessFailed, requite.CallError) as failure:
        return [f"{what}: {failure}"]
    header = ["", "median, ms", "95 %, ms", "shortest, ms"]
    lead = f"{how}: {count} keys, one after the other. {quiet.words()}"
    text = table(header, [[what, *_texts(times)] for what, times in rows.items()])
    publish(given, "amqp start", "\n\n".join([lead, facts(rabbit), text]))
    return []


def _texts(times: Times) -> Iterator[str]:
    ordered = sorted(times)
    at = min(len(ordered) - 1, round(0.95 * len(ordered)))
    for time_s in (median(ordered), ordered[at], ordered[0]):
        yield f"{time_s * 1000:,.0f}"


# --- by a manager ---------------------------------------------------------------------------------
def _by_processes(rabbit: RabbitServer, folder: Path, count: int) -> Times:
    pool = new_pool("bench-processes")
    keys = [f"process {number}" for number in range(count + 1)]
    with managing(rabbit, pool, folder, processes(folder, _WORKER)):
        return asyncio.run(_first_calls(rabbit, pool, keys))


def _by_waiting(rabbit: RabbitServer, folder: Path, count: int) -> Times:
    pool = new_pool("bench-waiting")
    keys = [f"waiting {number}" for number in range(count + 1)]
    with managing(rabbit, pool, folder, 'kind = "noop"'), Children() as children:
        command = [sys.executable, *_PEER, "waiting", pool_url(rabbit, pool), *keys]
        children.start(command, name="the workers").wait_for("^ready$", START_S)
        return asyncio.run(_first_calls(rabbit, pool, keys))


def _by_tasks(rabbit: RabbitServer, folder: Path, count: int) -> Times:
    pool = new_pool("bench-tasks")
    keys = [f"task {number}" for number in range(count + 1)]
    with managing(rabbit, pool, folder, 'kind = "noop"', (*_PEER, "manager")):
        return asyncio.run(_first_calls(rabbit, pool, keys))


async def _first_calls(rabbit: RabbitServer, pool: str, keys: Sequence[str]) -> Times:
    """Call each key once, over an open connection."""
    times = []
    async with requite.AsyncClient(pool_url(rabbit, pool), timeout=_TIMEOUT_S) as client:
        for key in keys:
            asked = perf_counter()
            await client.call(b"hello", service=key)
            times.append(perf_counter() - asked)
    return times[1:]  # the first one includes the connection


# --- without a manager ----------------------------------------------------------------------------
def _python(program: str) -> Way:
    def measure(_rabbit: RabbitServer, _folder: Path, count: int) -> Times:
        times = []
        for _ in range(count):
            began = perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True)
            times.append(perf_counter() - began)
        return times

    return measure


_WAYS: Final[dict[str, Way]] = {
    "first reply, workers are processes": _by_processes,
    "first reply, workers need not start": _by_tasks,
    "first reply, workers were there before": _by_waiting,
    "a Python process that does nothing": _python("pass"),
    "a Python process that loads what a worker needs": _python(_LOADS),
}
