"""Cost of a manager with a thousand groups: creating them, idle, and under activity reports.

The manager and RabbitMQ are real; the driver (noop) starts no processes. One request per key waits
in its queue. At rest no messages arrive; at work, activity reports of workers arrive, each for
another group.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Any, Final, NamedTuple
from urllib.request import urlopen

import pika

from bench.amqp.loops import engine_times
from bench.amqp.pools import Manager, managing, new_pool
from bench.amqp.turns import ask, facts, publish
from bench.gauge import cpu_s, memory_mib
from bench.page import table
from bench.quiet import Quiet
from requite.protocols.amqp.topology import Pool
from requite.testing.processes import ProcessFailed
from requite.testing.rabbitmq import RabbitServer

POOL: Final = "bench-groups"
GROUPS: Final = 1000
REST_S: Final = 20.0
REPORTS_PER_S: Final = 500
_QUICK_GROUPS: Final = 50
_QUICK_REST_S: Final = 3.0
_MADE_S: Final = 300.0
_LOOK_S: Final = 0.5


class Phase(NamedTuple):
    """Duration of a phase, processor time in it, and the manager's memory at its end."""

    name: str
    elapsed_s: float
    manager_s: float
    rabbit_s: float
    memory_mib: float


def run(rabbit: RabbitServer, given: Namespace, how: str) -> list[str]:
    """Measure and report; return what failed."""
    count = _QUICK_GROUPS if given.quick else GROUPS
    rest_s = _QUICK_REST_S if given.quick else REST_S
    quiet = Quiet(given.busy)

    def measure() -> tuple[list[Phase], str]:
        with (
            TemporaryDirectory(prefix="requite-bench-") as name,
            managing(rabbit, pool := new_pool(POOL), Path(name), 'kind = "noop"') as manager,
        ):
            phases = list(_phases(rabbit, manager, pool, count, rest_s, REPORTS_PER_S))
            return phases, _questions(rabbit, manager, pool)

    try:
        phases, questions = quiet.take(measure)
    except (ProcessFailed, TimeoutError) as failure:
        return [f"groups: {failure}"]
    lead = (
        f"{how}: {count:,} groups, the control loops' `interval` at its default of 5 s; at work,"
        f" {REPORTS_PER_S} reports a second. {quiet.words()}"
    )
    parts = [
        lead,
        facts(rabbit),
        _phase_table(phases),
        questions,
        engine_times((count // 4, count)),
    ]
    publish(given, "amqp groups", "\n\n".join(parts))
    return []


def measure(
    rabbit: RabbitServer, pool: str, count: int, rest_s: float, reports_per_s: float
) -> list[Phase]:
    """Return the four phases of a new pool. Raises `ProcessFailed` and `TimeoutError`."""
    with (
        TemporaryDirectory(prefix="requite-bench-") as name,
        managing(rabbit, pool, Path(name), 'kind = "noop"') as manager,
    ):
        return list(_phases(rabbit, manager, pool, count, rest_s, reports_per_s))


# --- phases ---------------------------------------------------------------------------------------
def _phases(
    rabbit: RabbitServer,
    manager: Manager,
    pool: str,
    count: int,
    rest_s: float,
    reports_per_s: float,
) -> Iterator[Phase]:
    keys = [f"key {number}" for number in range(count)]

    def measure(name: str, happen: Callable[[], None]) -> Phase:
        began, pids = perf_counter(), (manager.child.pid, rabbit.pid)
        before = [cpu_s(pid) for pid in pids]
        happen()
        used = [cpu_s(pid) - was for pid, was in zip(pids, before, strict=True)]
        phase = Phase(name, perf_counter() - began, *used, memory_mib(manager.child.pid))
        print(f"{name}: {phase.elapsed_s:.1f} s, {phase.manager_s:.2f} s of CPU", flush=True)
        return phase

    yield measure("no group, at rest", lambda: sleep(rest_s / 3))
    yield measure("all groups are made", lambda: _make(rabbit, manager, pool, keys))
    yield measure("all groups, at rest", lambda: sleep(rest_s))
    yield measure("all groups, at work", lambda: _work(rabbit, pool, keys, rest_s, reports_per_s))


def _make(rabbit: RabbitServer, manager: Manager, pool: str, keys: list[str]) -> None:
    """Send each group its first request; return when all requests are in their queues."""
    exchange = Pool(pool).requests_exchange
    with _connection(rabbit) as connection:
        channel = connection.channel()
        for key in keys:
            channel.basic_publish(exchange, key, b"hello")
    ends_at = perf_counter() + _MADE_S
    while not _is_made(_read_status(manager.url), len(keys)):
        if perf_counter() > ends_at:
            raise TimeoutError(f"{len(keys)} groups: not within {_MADE_S:g} s")
        sleep(_LOOK_S)


def _is_made(status: Any, count: int) -> bool:
    bound = sum(group["queue"] == "bound" and group["running"] for group in status["groups"])
    return bool(bound == count <= status["orphans"]["forwarded"])


def _work(
    rabbit: RabbitServer, pool: str, keys: list[str], seconds: float, reports_per_s: float
) -> None:
    """Report a received request for one group after the other."""
    exchange = Pool(pool).activity_exchange
    properties = pika.BasicProperties(headers={"x-event": "request-received", "x-worker-id": "w"})
    with _connection(rabbit) as connection:
        channel = connection.channel()
        began = perf_counter()
        for number, key in enumerate(cycle(keys)):
            at = began + number / reports_per_s
            if at >= began + seconds:
                break
            sleep(max(0.0, at - perf_counter()))
            channel.basic_publish(exchange, key, b"", properties)


def _connection(rabbit: RabbitServer) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", rabbit.port))


def _read_status(url: str) -> Any:
    with urlopen(f"{url}/status") as answer:
        return json.load(answer)


# --- the report -----------------------------------------------------------------------------------
def _phase_table(phases: list[Phase]) -> str:
    header = ["", "s", "manager's CPU", "RabbitMQ's CPU", "manager's memory, MiB"]
    return table(header, [list(_texts(phase)) for phase in phases])


def _texts(phase: Phase) -> Iterator[str]:
    yield phase.name
    yield f"{phase.elapsed_s:.1f}"
    for used_s in (phase.manager_s, phase.rabbit_s):
        yield f"{used_s:.2f} s ({used_s / phase.elapsed_s:.1%} of a core)"
    yield f"{phase.memory_mib:.0f}"


def _questions(rabbit: RabbitServer, manager: Manager, pool: str) -> str:
    """Measure the management queries of a round of the control loop, and of operators."""
    exchange = Pool(pool).requests_exchange
    columns = "columns=name,messages,consumers,type,arguments"
    asked = {
        "bindings of the requests' exchange": f"/exchanges/%2F/{exchange}/bindings/source",
        "queues": f"/queues/%2F?{columns}",
    }
    rows = [
        [f"the management API: {what}", *_timed(lambda path=path: ask(rabbit, path), rabbit.pid)]
        for what, path in asked.items()
    ]
    rows.append(
        ["the manager: `/status`", *_timed(lambda: _read_status(manager.url), manager.child.pid)]
    )
    return table(["question", "takes, ms", "CPU of who answers, ms", "answer, kB"], rows)


def _timed(question: Callable[[], Any], pid: int, times: int = 5) -> Iterator[str]:
    began, used_s = perf_counter(), cpu_s(pid)
    for _ in range(times):
        answer = question()
    yield f"{(perf_counter() - began) / times * 1000:.0f}"
    yield f"{(cpu_s(pid) - used_s) / times * 1000:.0f}"
    yield f"{len(json.dumps(answer)) / 1000:.0f}"
