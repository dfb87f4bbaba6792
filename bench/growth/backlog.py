"""Titanic's backlog: requests that wait on disk for a worker, and the start with them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from time import perf_counter, sleep
from typing import Final

import requite
from bench.gauge import cpu_s, memory_mib
from bench.growth.curve import CPU, Curve, Shown
from bench.growth.point import Broker, Figures, Point, Settings, folder, start_broker
from bench.loop import run
from requite.testing.processes import Children, ProcessFailed

_LINE: Final = "requests of 11 B"
_IN_FLIGHT: Final = 64
_SUBMIT_S: Final = 30.0
_DRAIN_S: Final = 60.0
_BODY: Final = b"hello world"
_SERVICE: Final = "absent"


def _run(settings: Settings, values: Sequence[float]) -> Iterator[Point]:
    """Fill one store more and more; with each backlog, start the broker again."""
    with folder() as place, Children() as children:
        options = [f"--titanic={place / 'titanic'}"]
        stored = 0
        try:
            broker = start_broker(children, options)
            for value in map(int, values):
                filled = _submit(broker, value - stored)
                stored = value
                full = {"broker_memory_mib": memory_mib(broker.child.pid)}
                broker.child.end(_DRAIN_S)
                started_at = perf_counter()
                broker = start_broker(children, options)
                started = _started(broker, perf_counter() - started_at, settings)
                yield Point(_LINE, value, {**filled, **full, **started})
        except ProcessFailed as failure:
            raise ProcessFailed(f"{failure}\n{children.report()}") from None


def _submit(broker: Broker, count: int) -> dict[str, float]:
    """Submit requests over one connection; return their rate and cost."""
    used_s, started_at = cpu_s(broker.child.pid), perf_counter()

    async def submit() -> None:
        left = count
        url = f"mdp://127.0.0.1:{broker.port}/{_SERVICE}"
        async with requite.AsyncClient(url, timeout=_SUBMIT_S) as client:

            async def fill() -> None:
                nonlocal left
                while left > 0:
                    left -= 1
                    await client.submit(_BODY)

            await asyncio.gather(*(fill() for _ in range(_IN_FLIGHT)))

    run(submit())
    return {
        "requests_per_s": count / (perf_counter() - started_at),
        "broker_cpu_us": (cpu_s(broker.child.pid) - used_s) / count * 1e6,
    }


def _started(broker: Broker, start_s: float, settings: Settings) -> Figures:
    """Return what a start cost, and what the broker uses after it."""
    pid = broker.child.pid
    start_cpu_s = cpu_s(pid)
    rest_s = max(settings.seconds, 0.5)
    sleep(rest_s)
    return {
        "start_s": start_s,
        "start_cpu_s": start_cpu_s,
        "started_memory_mib": memory_mib(pid),
        "rest_cores": (cpu_s(pid) - start_cpu_s) / rest_s,
    }


CURVES: Final = (
    Curve(
        "backlog",
        "stored requests",
        f"Requests of 11 bytes to a service without workers are submitted over one connection,"
        f" {_IN_FLIGHT} at a time, to a broker with `--titanic`; then the broker is started again.",
        (1_000, 10_000, 100_000, 1_000_000),
        (
            CPU,
            Shown("broker_memory_mib", "broker's memory, MiB", ",.0f"),
            Shown("start_s", "start, s", ".2f"),
            Shown("started_memory_mib", "memory after the start, MiB", ",.0f"),
            Shown("rest_cores", "cores used at rest after the start", ".2f"),
        ),
        _run,
        long_values=(10_000_000,),
    ),
)
