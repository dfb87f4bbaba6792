"""A pattern put on stage: its processes, its clients, and what goes wrong with them.

`play` runs any of them in the same way; `names` lists them.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Final, Self

from requite.cli.show.names import PATTERNS
from requite.cli.show.screen import Member, Screen
from requite.cli.show.tally import Tally
from requite.cli.show.traffic import RequestSource, drive
from requite.errors import ConfigurationError
from requite.testing.processes import Child, ProcessFailed, State

if TYPE_CHECKING:
    from typing import Any

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

    @property
    def ended(self) -> int:
        """How many calls have ended."""
        return self._tally.done

    async def goes_on(self, count: int) -> None:
        """Wait until `count` more calls have ended, or none is under way."""
        enough = self._tally.done + count
        give_up_at = asyncio.get_running_loop().time() + _GOES_ON_WITHIN_S
        while self._tally.done < enough and self.outstanding:
            if asyncio.get_running_loop().time() > give_up_at:
                raise ProcessFailed(f"no answers for {_GOES_ON_WITHIN_S:.0f} s")
            await asyncio.sleep(_LOOK_EVERY_S)


class Pattern(ABC):
    """What takes part beside the clients; leaving the `with` block ends all processes.

    A successor takes its predecessor's place in `children`; `members` are those that the screen
    shows. `worker_kills` counts the processes killed that do the work, `broker_kills` those that
    stand in between, `manager_kills` those that do neither (None: there is none). `redelivered` is
    how often somebody in between is known to have given a request to another worker. One that
    `is_audited` keeps journals where the plot says so. What has not been answered within
    `time_limit_s` counts as lost.
    """

    is_audited: ClassVar[bool] = False
    time_limit_s: ClassVar[float] = 100.0
    manager_kills: int | None = None

    def __init__(self, plot: Plot) -> None:
        self.plot = plot
        self.children: list[Child] = []
        self.members: Sequence[Member] = self.children
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

    @classmethod
    def require(cls) -> None:
        """Raise `ConfigurationError` where something is not installed that this pattern needs."""
        airports()

    @property
    def redelivered(self) -> int:
        """See above; 0 where nobody counts."""
        return 0

    def asked(self) -> Sequence[str]:
        """Return the airport of each request, in order: each there is, again and again."""
        codes = list(airports())
        requests = len(codes) if self.plot.requests is None else self.plot.requests
        return list(islice(cycle(codes), requests))

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
        return self._start_reckoner(str(neighbours), str(airports))

    def _start_reckoner(self, *arguments: str) -> Child:
        child = Child("the direct computation", ["-m", "requite.cli.show.direct", *arguments])
        self._others.append(child)
        return child

    def check(self) -> None:
        """Raise `ProcessFailed` if somebody left unasked."""
        for child in self.children:
            child.check()


def load_pattern(name: str) -> type[Pattern]:
    """Return the pattern of a name."""
    module, _, attribute = PATTERNS[name].partition(":")
    found: type[Pattern] = getattr(import_module(module), attribute)
    return found


def airports() -> Mapping[str, Any]:
    """Return all airports, by their codes. Raises `ConfigurationError` where there are none."""
    try:
        import airportsdata
    except ImportError as error:
        raise ConfigurationError(
            "the demo needs the package airportsdata: pip install 'requite[demo]'"
        ) from error
    rows: Mapping[str, Any] = airportsdata.load()
    return rows
