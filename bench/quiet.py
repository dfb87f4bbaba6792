"""Rounds beside other load are dropped and repeated.

Before and after each round, while nothing of the benchmark runs, `Quiet` measures for a moment how
much processor time the machine gives to others. It does not use the load average, which has the
benchmark's own work of the last minutes in it. Time that a hypervisor took away counts, too: also
during the round.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Final, NamedTuple, TypeVar

LIMIT_CORES: Final = 0.1
ATTEMPTS: Final = 10
_LOOK_S: Final = 0.3
_PAUSE_S: Final = 6.0
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
T = TypeVar("T")


class NotQuiet(SystemExit):
    """The machine was busy with other work for all attempts. Its text is for the terminal."""


class Used(NamedTuple):
    """Processor time of all cores since the start of the machine, in seconds: of others than this
    process and its descendants, and the part of it that a hypervisor took (steal)."""

    others_s: float
    stolen_s: float


def used() -> Used:
    """Read the processor time of the machine, and of all processes (proc(5), stat)."""
    first = Path("/proc/stat").read_text().partition("\n")[0]
    user, nice, system, _idle, _wait, irq, softirq, stolen, *_ = map(int, first.split()[1:])
    busy = user + nice + system + irq + softirq + stolen
    return Used((busy - _own_ticks()) / _TICKS_PER_S, stolen / _TICKS_PER_S)


def _own_ticks() -> int:
    """Return the processor time of this process and its descendants, ended ones included."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended: its parent has its time
            # The name in parentheses may contain spaces: count the fields after it.
            fields = stat.read_text().rpartition(")")[2].split()
            ticks[int(stat.parent.name)] = sum(map(int, fields[11:15]))
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, ())
    return sum(ticks[pid] for pid in found)


class Quiet:
    """Takes rounds, and records how quiet the machine was before each.

    With `is_busy`, no round is dropped. Processes of the benchmark that run all the time, such as a
    RabbitMQ, are not other load.
    """

    def __init__(
        self,
        is_busy: bool,
        *,
        read: Callable[[], Used] = used,
        wait: Callable[[float], None] = sleep,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._is_busy = is_busy
        self._read = read
        self._wait = wait
        self._clock = clock
        self._before_cores: list[float] = []
        self.dropped = 0

    def take(self, measure: Callable[[], T]) -> T:
        """Return the result of a round beside no other load. Raises `NotQuiet` after some
        attempts."""
        for _ in range(ATTEMPTS):
            before_cores = self._other_cores()
            if self._is_busy:
                self._before_cores.append(before_cores)
                return measure()
            if self._is_quiet(before_cores, "before"):
                began, stolen_s = self._clock(), self._read().stolen_s
                result = measure()
                stolen_s = self._read().stolen_s - stolen_s
                stolen_cores = stolen_s / max(self._clock() - began, _LOOK_S)
                if self._is_quiet(stolen_cores, "stolen during") and self._is_quiet(
                    self._other_cores(), "after"
                ):
                    self._before_cores.append(before_cores)
                    return result
            self.dropped += 1
            self._wait(_PAUSE_S)
        raise NotQuiet(
            f"the machine was busy with other work in {ATTEMPTS} attempts at one round (more than"
            f" {LIMIT_CORES:.0%} of a core): nothing was reported. End the other programs and start"
            " again; --busy measures regardless, for trials."
        )

    def words(self) -> str:
        """Return in a sentence how quiet the machine was."""
        if not self._before_cores:
            return "No round was measured."
        load = (
            f"ther load before each round: median {median(self._before_cores):.0%}, at most"
            f" {max(self._before_cores):.0%} of a core"
        )
        if self._is_busy:
            return f"**A trial on a busy machine** (`--busy`): o{load}; no round was dropped."
        rounds = "round was" if self.dropped == 1 else "rounds were"
        return f"O{load}; {self.dropped} {rounds} dropped and repeated."

    def _is_quiet(self, cores: float, when: str) -> bool:
        if cores <= LIMIT_CORES:
            return True
        print(f"dropped: other load of {cores:.0%} of a core {when} the round", flush=True)
        return False

    def _other_cores(self) -> float:
        """Return how many cores others use now."""
        began, before_s = self._clock(), self._read().others_s
        self._wait(_LOOK_S)
        spent_s = self._read().others_s - before_s
        return max(0.0, spent_s) / (self._clock() - began)


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `--busy`."""
    parser.add_argument(
        "--busy", action="store_true", help="measure beside other load, too; the report says so"
    )
