"""The clock and the randomness that shells use during a run.

All shells use `requite.shell.clock` and `requite.shell.entropy`. A run replaces the functions in
these modules, and seeds the module `random`, which handlers may use.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from requite.shell import clock, entropy
from requite.sim.kernel.world import World

if TYPE_CHECKING:
    from requite.sim.kernel.process import Process

_EPOCH_S: Final = 1_700_000_000.0  # the wall-clock time at the start of a run

_running: list[Process] = []  # the running process is the last one


class process:
    """While the context is open, make shells use the clock of this process."""

    __slots__ = ("_which",)

    def __init__(self, which: Process) -> None:
        self._which = which

    def __enter__(self) -> None:
        _running.append(self._which)

    def __exit__(self, *_error: object) -> None:
        _running.pop()


def running(default: str) -> str:
    """Return the name of the process that is running, or `default`."""
    return _running[-1].name if _running else default


@contextmanager
def quiet() -> Iterator[None]:
    """Disable the shells' logging: in a simulation most warnings are caused by injected faults."""
    loggers = [logging.getLogger(name) for name in ("requite", "asyncio")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def world(which: World) -> Iterator[None]:
    """While the context is open, make shells use the clock of the running process, and the seed of
    a world."""

    def now() -> float:
        return _running[-1].clock() if _running else which.now

    def wall() -> float:
        return _EPOCH_S + which.now

    before = clock.now, clock.wall, entropy.source, entropy.jitter, random.getstate()
    rng = which.rng("entropy")
    clock.now, clock.wall, entropy.source, entropy.jitter = now, wall, rng, rng.random
    random.seed(f"{which.seed}/random")
    try:
        yield
    finally:
        clock.now, clock.wall, entropy.source, entropy.jitter, state = before
        random.setstate(state)
