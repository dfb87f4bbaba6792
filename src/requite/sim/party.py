"""The processes of the protocols in which everybody may listen, and keep connected to others.

What `requite.shell.aio` does with sockets is done here on the simulated network, with the same host
and the same `PersistentConnection`.
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
from requite.sim.dialler import SimDialler
from requite.sim.engine_process import EngineProcess
from requite.sim.history import History
from requite.sim.process import Pace, Supervisor
from requite.transport.address import InprocAddress

if TYPE_CHECKING:
    from requite.sim.network import Network
    from requite.sim.stream import SimStream
    from requite.sim.world import World

MESSAGE_SIZE_MAX: Final = 1 << 20


class Knobs(Protocol):
    """What a process needs to know of a run's knobs."""

    @property
    def pace(self) -> Pace:
        """How late it is."""

    @property
    def limits(self) -> LinkLimits:
        """What one connection may cost."""


class Stage(Protocol):
    """What all processes of a run share, whatever the protocol."""

    @property
    def world(self) -> World:
        """Whose time passes."""

    @property
    def network(self) -> Network:
        """What joins them."""

    @property
    def history(self) -> History:
        """Who is told what happens."""

    @property
    def supervisor(self) -> Supervisor:
        """Who is told what happens to processes as such."""

    @property
    def knobs(self) -> Knobs:
        """What was drawn."""


StageT = TypeVar("StageT", bound=Stage)


@contextmanager
def telling_who_is_expelled(history: History, stream: SimStream) -> Iterator[None]:
    """Note if bytes are refused: whoever is honest never breaks a rule of the framing."""
    try:
        yield
    except RemoteViolation as violation:
        history.tell("expelled", stream.other.process, str(violation))
        raise


class BaseParty(EngineProcess, Generic[StageT]):
    """Anybody who takes part; it may listen."""

    kind: str
    hub: Engine  # its engine, looked at from outside; one for each life

    def __init__(self, name: str, stage: StageT) -> None:
        super().__init__(name, stage.world, stage.network, stage.knobs.pace, stage.supervisor)
        self.stage = stage

    # --- for subclasses ---------------------------------------------------------------------------
    @abstractmethod
    def make_engine(self) -> Engine:
        """Make the engine of a new life."""

    @abstractmethod
    def make_framing(self, stream: SimStream, place: Any, accepted: bool) -> Framing:
        """Make the framing of a connection from, or to, one of the places that the engine knows."""

    def deliver(self, token: Any, what: Any) -> None:
        """Take what the engine delivers."""
        raise AssertionError(f"{self.name} was delivered {what!r}")

    def fail(self, token: Any, error: CallError) -> None:
        """Take a failure."""
        raise AssertionError(f"{self.name} was told {error!r}")

    def abandon(self, token: Any, reason: str) -> None:
        """Give work up."""
        raise AssertionError(f"{self.name} was told to give up: {reason}")

    # --- life -------------------------------------------------------------------------------------
    def started(self) -> None:
        """Begin."""
        self.stage.history.tell("hub_started", self.hub)

    def _end(self, what: str) -> None:
        super()._end(what)
        self.network.listen_no_more(self)
        self.stage.history.tell("hub_ended", self.hub)

    def has_stopped(self) -> None:
        """Take no more connections, and leave."""
        self.network.listen_no_more(self)
        super().has_stopped()

    # --- connections ------------------------------------------------------------------------------
    def take_connections(self, port: str = "", place: Any = None) -> None:
        """Listen, at a port if there is one."""

        def accept(stream: SimStream) -> None:
            framing = self.make_framing(stream, place, accepted=True)
            options: dict[str, Any] = {"accepted": True, "framing": framing, "place": place}
            self.adopt(stream, lambda: self.host.opened(stream, **options))

        self.network.listen(self, port, accept)


class KeepingParty(BaseParty[StageT]):
    """Somebody who stays connected to several others, all the time and to each by itself."""

    def __init__(self, name: str, stage: StageT) -> None:
        super().__init__(name, stage)
        self._kept: dict[PersistentConnection, SimDialler] = {}

    @abstractmethod
    def make_hub(self) -> Engine:
        """Make what looks at the engine of a new life, around it."""

    def make_host(self) -> Host:
        """Make an engine that remembers nothing, and its host."""
        self._kept = {}
        self.hub = self.make_hub()
        return Host(
            self.hub,
            self.clock,
            no_framing,
            wake_at=self.wake_at,
            want_flush=self.want_flush,
            ended=self._link_ended,
            deliver=self.deliver,
            fail=self.fail,
            abandon=self.abandon,
            stopped=self.has_stopped,
            limits=self.stage.knobs.limits,
            logger="requite.sim",
        )

    def keep(self, address: str, place: Any) -> None:
        """Stay connected to somebody who listens; the engine knows the place by that name."""
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
