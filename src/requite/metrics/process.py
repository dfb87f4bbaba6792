"""The metrics of every process: its version, its event loop, and what the system says of it."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from prometheus_client import ProcessCollector
from prometheus_client.registry import Collector

from requite.core.durations import Durations
from requite.metrics import catalogue as metrics
from requite.metrics.families import Family, singles
from requite.shell import clock

TICK_S: Final = 0.5
_PROCESS: Final = ProcessCollector(registry=None)


class Process(NamedTuple):
    """The version of requite, its build ("pure" or "compiled"), and the command that runs."""

    version: str
    build: str
    command: str


class LoopLag:
    """Measures how late the running event loop is for a timer, twice a second."""

    def __init__(self) -> None:
        self.late: Final = Durations()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start measuring."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(TICK_S, self._tick, clock.now() + TICK_S)

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self, due_at: float) -> None:
        self.late.add(max(0.0, clock.now() - due_at))
        self.start()


def of_process(process: Process, lag: LoopLag, *, is_ready: bool) -> list[Collector]:
    """Return the metrics of this process; those of the system only on Linux."""
    info, late = Family(metrics.INFO), Family(metrics.LOOP_LAG)
    info.add(1, *process)
    late.add_durations(lag.late.counts, lag.late.total_s)
    return [info, *singles((metrics.READY, is_ready)), late, _PROCESS]
