"""Processes with places of their own, and what goes wrong with them.

For patterns in which nobody can be asked how it is: whether all is well is told by the answers.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from itertools import cycle
from typing import Final

from requite.cli.show.faults import count, plan, since
from requite.cli.show.pattern import COMMAND, Fault, Flow, Pattern
from requite.cli.show.screen import Screen
from requite.testing.processes import Child

_ENOUGH: Final = 50  # answers after which the others are seen to do the work
_STOPPED_S: Final = 1.0  # longer than anybody here waits for a sign of life

Start = Callable[[], Child]


class Troupe(Pattern):
    """`middles` and `workers` tell how to start the processes that stand in between, and those that
    do the work; in this order they are the children."""

    @abstractmethod
    def middles(self) -> Sequence[Start]:
        """Return how to start those in between; each stands before the next one starts."""

    @abstractmethod
    def workers(self) -> Sequence[Start]:
        """Return how to start those that do the work."""

    async def enter(self, _stack: AsyncExitStack) -> None:
        """Start everybody; each says when it is there."""
        middles, workers = self.middles(), self.workers()
        self._starts = [*middles, *workers]
        self._middles = range(len(middles))
        for start in middles:
            self.children.append(start())
            await asyncio.to_thread(self.children[-1].read_line)
        self.children += [start() for start in workers]
        for child in self.children[len(middles) :]:
            await asyncio.to_thread(child.read_line)

    def faults(self, screen: Screen, flow: Flow) -> list[Fault]:
        """Kill and stop whoever there is."""
        workers = range(len(self._middles), len(self.children))
        return plan(Accidents(self, screen, flow, self._middles, workers), self.plot)

    async def conclude(self) -> None:
        """Nothing is counted elsewhere."""

    async def restart(self, number: int) -> None:
        """Start a successor of a killed process in its place."""
        self.children[number] = self._starts[number]()
        await asyncio.to_thread(self.children[number].read_line)


class Accidents:
    """Kills, stops and restarts children of a troupe while the requests go on."""

    def __init__(
        self,
        troupe: Troupe,
        screen: Screen,
        flow: Flow,
        middles: Sequence[int],
        workers: Sequence[int],
    ) -> None:
        self._troupe = troupe
        self._screen = screen
        self._flow = flow
        self._middles = cycle(middles)
        self._in_between = len(middles)
        self._workers = cycle(workers)
        self._is_alone = len(workers) == 1

    async def kill_worker(self) -> None:
        """SIGKILL one; the others go on, if there are any. Then start its successor."""
        self._troupe.worker_kills += 1
        number = next(self._workers)
        await self._kill(number, waits=not self._is_alone)

    async def kill_broker(self) -> None:
        """SIGKILL who stands in between, and start a successor: at once, if nobody takes over."""
        if self._in_between:
            self._troupe.broker_kills += 1
            await self._kill(next(self._middles), waits=self._in_between > 1)

    async def stop_worker(self) -> None:
        """SIGSTOP one: its connections stay up, yet it does nothing."""
        child = self._troupe.children[next(self._workers)]
        child.stop()
        began = time.monotonic()
        await asyncio.sleep(_STOPPED_S)
        await self._flow.goes_on(0 if self._is_alone else _ENOUGH)
        child.resume()
        self._screen.note(f"{child.name} stopped (SIGSTOP) for {since(began)}, resumed (SIGCONT)")
        await self._flow.goes_on(1)

    async def _kill(self, number: int, *, waits: bool) -> None:
        child = self._troupe.children[number]
        child.kill()
        self._screen.note(f"{child.name} killed (SIGKILL), {count(self._flow.outstanding)} out")
        began = time.monotonic()
        if waits:
            await self._flow.goes_on(_ENOUGH)
            self._screen.note(f"{_ENOUGH} answers from the others within {since(began)}")
        await self._troupe.restart(number)
        self._screen.note(f"{child.name} started anew {since(began)} later")
        await self._flow.goes_on(1)
        if not waits:
            self._screen.note(f"the first answer {since(began)} after the kill")


def command(name: str, verb: str, *arguments: str) -> Start:
    """Return what starts a verb of the command."""
    return lambda: Child(name, ["-m", COMMAND, verb, *arguments])
