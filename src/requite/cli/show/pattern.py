"""A pattern put on stage: its processes, its clients, and what goes wrong with them.

`play` runs any of them in the same way; `names` lists them.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from requite.cli.show.names import PATTERNS
from requite.cli.show.processes import Child, ShowFailed, State
from requite.cli.show.screen import Screen
from requite.cli.show.tally import Tally
from requite.cli.show.traffic import RequestSource, drive

if TYPE_CHECKING:
    from requite.client import AsyncClient

SERVICE: Final = "requite.examples:nearest"
COMMAND: Final = "requite.cli"
_LOOK_EVERY_S: Final = 0.02
_GOES_ON_WITHIN_S: Final = 30.0

Fault = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Plot:
    """How much happens. `requests` None: one per airport; `journal` None: nobody keeps one."""

    pattern: str
    requests: int | None
    workers: int
    clients: int
    concurrency: int
    worker_kills: int
    broker_kills: int
    stops: int
    journal: Path | None = None


class Flow:
    """How the requests go: what a fault waits for."""

    def __init__(self, source: RequestSource, tally: Tally) -> None:
        self._source = source
        self._tally = tally

    @property
    def outstanding(self) -> int:
        """How many calls are under way."""
        return self._source.handed_out - self._tally.done

    async def goes_on(self, count: int) -> None:
        """Wait until `count` more calls have ended, or none is under way."""
        enough = self._tally.done + count
        give_up_at = asyncio.get_running_loop().time() + _GOES_ON_WITHIN_S
        while self._tally.done < enough and self.outstanding:
            if asyncio.get_running_loop().time() > give_up_at:
                raise ShowFailed(f"no answers for {_GOES_ON_WITHIN_S:.0f} s")
            await asyncio.sleep(_LOOK_EVERY_S)


class Pattern(ABC):
    """What takes part beside the clients; leaving the `with` block ends all processes.

    A successor takes its predecessor's place in `children`. `worker_kills` counts the processes
    killed that do the work, `broker_kills` those that stand in between. `redelivered` is how often
    somebody in between is known to have given a request to another worker.
    """

    def __init__(self, plot: Plot) -> None:
        self.plot = plot
        self.children: list[Child] = []
        self._others: list[Child] = []
        self.worker_kills = 0
        self.broker_kills = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in (*self.children, *self._others):
            if child.state is not State.KILLED:
                child.kill()

    @property
    def redelivered(self) -> int:
        """See above; 0 where nobody counts."""
        return 0

    @abstractmethod
    async def enter(self, stack: AsyncExitStack) -> None:
        """Start everybody, and wait until all can serve. What is entered into `stack` is left with
        the show."""

    @abstractmethod
    def new_client(self) -> AsyncClient:
        """Make a client of the service."""

    @abstractmethod
    def faults(self, screen: Screen, flow: Flow) -> list[Fault]:
        """Return what is to go wrong, in order."""

    @abstractmethod
    async def conclude(self) -> None:
        """Look, after the last call, at what is counted elsewhere."""

    async def drive(
        self, client: AsyncClient, source: RequestSource, tally: Tally, neighbours: int
    ) -> None:
        """Make one client's calls."""
        await drive(client, source, tally, neighbours, self.plot.concurrency)

    def start_reckoner(self, neighbours: int, airports: int) -> Child:
        """Start the process that computes what the answers must be, and prints it."""
        module = "requite.cli.show.direct"
        child = Child("the direct computation", module, str(neighbours), str(airports))
        self._others.append(child)
        return child

    def check(self) -> None:
        """Raise `ShowFailed` if somebody left unasked."""
        for child in self.children:
            child.check()


def stage(plot: Plot) -> Pattern:
    """Make the pattern that the plot names."""
    module, _, name = PATTERNS[plot.pattern].partition(":")
    made: Pattern = getattr(import_module(module), name)(plot)
    return made
