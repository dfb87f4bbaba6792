"""One server of a pair as a simulated process; `requite.pair.Pair` does the same with sockets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from requite.engine import Effect, Engine, Input
from requite.protocols.binarystar.peer import BinaryStarPeer
from requite.protocols.binarystar.policy import BinaryStarPolicy
from requite.protocols.binarystar.table import PairRole
from requite.protocols.binarystar.view import PairView
from requite.shell.host import Host
from requite.sim.kernel.engine_process import EngineProcess
from requite.sim.kernel.process import Ending, Supervisor
from requite.sim.pair.half import HalfShell

if TYPE_CHECKING:
    from requite.sim.kernel.network import Network
    from requite.sim.kernel.transcript import Transcript
    from requite.sim.kernel.world import World
    from requite.sim.pair.knobs import PairKnobs


@dataclass(frozen=True, slots=True)
class PairParts:
    """The engine under test. Mutation tests pass a broken one."""

    engine: Callable[..., BinaryStarPeer] = BinaryStarPeer


@dataclass(frozen=True, slots=True)
class PairStage:
    """The state that all processes of a run share. `changed` is called when a server's state
    changes."""

    world: World
    network: Network
    changed: Callable[[PairServer, PairView], object]
    supervisor: Supervisor
    knobs: PairKnobs
    parts: PairParts
    transcript: Transcript | None = None


class _Watched:
    """The engine, observed for the transcript."""

    def __init__(self, engine: BinaryStarPeer, server: PairServer, transcript: Transcript) -> None:
        self._engine = engine
        self._server = server
        self._transcript = transcript
        self.deadline = engine.deadline
        self.snapshot = engine.snapshot

    def handle(self, events: Sequence[Input], now: float) -> list[Effect]:
        """Feed the engine, and write its effects to the transcript."""
        effects = list(self._engine.handle(events, now))
        self._transcript.effects(self._server, effects)
        return effects


class PairServer(EngineProcess):
    """A server; `half` is its half of the pair, new after each start."""

    half: BinaryStarPeer
    shell: HalfShell

    def __init__(self, role: PairRole, stage: PairStage) -> None:
        name = role.name.lower()
        super().__init__(name, stage.world, stage.network, stage.knobs.pace, stage.supervisor)
        self.role = role
        self._stage = stage
        self._policy = BinaryStarPolicy(role, stage.knobs.heartbeat_s)

    # --- whether to serve -------------------------------------------------------------------------
    @property
    def serves(self) -> bool:
        """Whether it may answer."""
        return self.shell.serves

    def vote(self) -> bool:
        """Handle a client's request: return whether it may be answered."""
        return self.shell.vote()

    def switch(self) -> None:
        """Switch as an operator does, if possible."""
        if self.alive:
            self.shell.switch()

    def reached(self, act: Callable[[], object]) -> None:
        """Deliver a client's request. A process that resumes may handle it first."""
        if self.frozen:
            self._unread = {act: act, **self._unread}
        else:
            self.turn(act)

    # --- life -------------------------------------------------------------------------------------
    def make_host(self) -> Host:
        """Return a host with a new half of the pair."""
        stage = self._stage
        self.half = stage.parts.engine(self._policy, instance=self.rng.getrandbits(63) + 1)
        engine: Engine = self.half
        if stage.transcript is not None:
            engine = _Watched(self.half, self, stage.transcript)
        make_host = partial(self.host_of, engine, deliver=self._told)
        self.shell = HalfShell(self, self.half, self._policy.role.other.name.lower(), make_host)
        return self.shell.host

    def started(self) -> None:
        """Listen, and connect to the other server."""
        self.network.listen(self)
        self.shell.dial()
        self.host.wake()

    def _end(self, what: Ending) -> None:
        super()._end(what)
        self.network.listen_no_more(self)

    def has_stopped(self) -> None:
        """Accept no more connections, and exit."""
        self.network.listen_no_more(self)
        super().has_stopped()

    def _told(self, _token: Any, view: PairView) -> None:
        self._stage.changed(self, view)
        if self._stage.transcript is not None:
            self._stage.transcript.event(
                self.name, f"is {view.state.name.lower()}, epoch {view.epoch}"
            )
