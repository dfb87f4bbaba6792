"""Processes of protocols in which any party may listen, and stay connected to others.

They use the host and the `PersistentConnection` of `requite.shell.aio` on the simulated network.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from requite.backoff import Backoff
from requite.engine import Engine
from requite.errors import CallError, RemoteViolation
from requite.framing.base import Framing
from requite.shell.connections import Endpoint, PersistentConnection, no_framing
from requite.shell.host import Host
from requite.shell.link import Link, LinkLimits
from requite.sim.kernel.dialler import SimDialler
from requite.sim.kernel.engine_process import EngineProcess
from requite.sim.kernel.history import History
from requite.sim.kernel.process import Ending, Pace, Supervisor
from requite.transport.address import InprocAddress

if TYPE_CHECKING:
    from requite.sim.kernel.network import Network
    from requite.sim.kernel.stream import SimStream
    from requite.sim.kernel.world import World

MESSAGE_SIZE_MAX: Final = 1 << 20


class Knobs(Protocol):
    """The knobs that a process needs."""

    @property
    def pace(self) -> Pace:
        """The lateness of the process."""

    @property
    def limits(self) -> LinkLimits:
        """The limits of one connection."""


class Stage(Protocol):
    """The state that all processes of a run share, in any protocol."""

    @property
    def world(self) -> World:
        """The virtual clock and the events."""

    @property
    def network(self) -> Network:
        """The network between the processes."""

    @property
    def history(self) -> History:
        """The history, which gets events of calls and engines."""

    @property
    def supervisor(self) -> Supervisor:
        """The supervisor, which gets events of processes."""

    @property
    def knobs(self) -> Knobs:
        """The knobs of the run."""


StageT = TypeVar("StageT", bound=Stage)


@contextmanager
def telling_who_is_expelled(history: History, stream: SimStream) -> Iterator[None]:
    """Report to the history if the framing refuses an honest peer's bytes."""
    try:
        yield
    except RemoteViolation as violation:
        history.tell("expelled", stream.other.process, str(violation))
        raise


class BaseParty(EngineProcess, Generic[StageT]):
    """A process of a run; it may listen."""

    kind: str
    hub: Engine  # its engine under observation; a new one after each start

    def __init__(self, name: str, stage: StageT) -> None:
        super().__init__(name, stage.world, stage.network, stage.knobs.pace, stage.supervisor)
        self.stage = stage

    # --- for subclasses ---------------------------------------------------------------------------
    @abstractmethod
    def make_engine(self) -> Engine:
        """Return a new engine."""

    @abstractmethod
    def make_framing(self, stream: SimStream, place: Any, accepted: bool) -> Framing:
        """Return the framing of a connection from or to `place`, as the engine knows it."""

    def deliver(self, token: Any, what: Any) -> None:
        """Handle a delivery of the engine."""
        raise AssertionError(f"{self.name} was delivered {what!r}")

    def fail(self, token: Any, error: CallError) -> None:
        """Handle a failure that the engine reports."""
        raise AssertionError(f"{self.name} was told {error!r}")

    def abandon(self, token: Any, reason: str) -> None:
        """Abandon a handler."""
        raise AssertionError(f"{self.name} was told to give up: {reason}")

    # --- life -------------------------------------------------------------------------------------
    def started(self) -> None:
        """Dial and listen; called after each start."""
        self.stage.history.tell("hub_started", self.hub)

    def _end(self, what: Ending) -> None:
        super()._end(what)
        self.network.listen_no_more(self)
        self.stage.history.tell("hub_ended", self.hub)

    def has_stopped(self) -> None:
        """Accept no more connections, and exit."""
        self.network.listen_no_more(self)
        super().has_stopped()

    def host_of_hub(self, **options: Any) -> Host:
        """Return a host of the observed engine."""
        return self.host_of(
            self.hub,
            self.stage.knobs.limits,
            deliver=self.deliver,
            fail=self.fail,
            abandon=self.abandon,
            **options,
        )

    # --- connections ------------------------------------------------------------------------------
    def take_connections(self, port: str = "", place: Any = None) -> None:
        """Listen, at a port if one is given."""

        def accept(stream: SimStream) -> None:
            framing = self.make_framing(stream, place, accepted=True)
            options: dict[str, Any] = {"accepted": True, "framing": framing, "place": place}
            self.adopt(stream, lambda: self.host.opened(stream, **options))

        self.network.listen(self, port, accept)


class KeepingParty(BaseParty[StageT]):
    """A party that stays connected to several others, with one connection for each."""

    def __init__(self, name: str, stage: StageT) -> None:
        super().__init__(name, stage)
        self._kept: dict[PersistentConnection, SimDialler] = {}

    @abstractmethod
    def make_hub(self) -> Engine:
        """Return a new engine in its observer."""

    def make_host(self) -> Host:
        """Return a host with a new engine."""
        self._kept = {}
        self.hub = self.make_hub()
        return self.host_of_hub(ended=self._link_ended)

    def keep(self, address: str, place: Any) -> None:
        """Stay connected to a listener; the engine knows the connection by `place`."""
        endpoint = Endpoint(InprocAddress(address), no_framing, place)
        kept = PersistentConnection(endpoint, Backoff(self.rng.random), self.clock)
        self._kept[kept] = dialler = SimDialler(self, kept, partial(self._opened, place))
        dialler.go_on()

    def _opened(self, place: Any, stream: SimStream) -> Link:
        framing = self.make_framing(stream, place, accepted=False)
        return self.host.opened(stream, kept=True, framing=framing, place=place)

    def _link_ended(self, link: Link, reason: str) -> None:
        for kept, dialler in self._kept.items():
            if kept.ended(link, reason):
                dialler.go_on()
