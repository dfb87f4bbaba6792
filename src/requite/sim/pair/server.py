"""One server of a pair: the real `requite.pair.Pair` in a simulated program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from requite.engine import Effect, Input
from requite.errors import PairFailed
from requite.pair import Pair
from requite.protocols.binarystar.peer import BinaryStarPeer
from requite.protocols.binarystar.table import PairRole
from requite.protocols.binarystar.view import PairView
from requite.sim.kernel import virtual
from requite.sim.kernel.process import Supervisor
from requite.sim.kernel.program import Program

if TYPE_CHECKING:
    from requite.sim.kernel.network import Network
    from requite.sim.kernel.transcript import Transcript
    from requite.sim.kernel.world import World
    from requite.sim.pair.knobs import PairKnobs

PORT: Final = 5560


@dataclass(frozen=True, slots=True)
class PairParts:
    """The engine under test. Mutation tests pass a broken one."""

    engine: type[BinaryStarPeer] = BinaryStarPeer


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


class PairServer(Program):
    """A server; `pair` is new after each start."""

    pair: Pair

    def __init__(self, role: PairRole, stage: PairStage) -> None:
        name, pace = role.name.lower(), stage.knobs.pace
        super().__init__(name, stage.world, stage.network, pace, stage.supervisor, self.main)
        self.role = role
        self._stage = stage
        self._pair_type = type("SimulatedPair", (Pair,), {"_engine_type": self._engine_type()})

    def _engine_type(self) -> type[BinaryStarPeer]:
        """Return the engine under test; with a transcript, it writes its effects there."""
        tested, transcript = self._stage.parts.engine, self._stage.transcript
        if transcript is None:
            return tested

        def handle(engine: Any, events: Sequence[Input], now: float) -> list[Effect]:
            effects = list(tested.handle(engine, events, now))
            transcript.effects(self, effects)
            return effects

        return type(tested.__name__, (tested,), {"handle": handle})

    # --- life -------------------------------------------------------------------------------------
    def make(self) -> None:
        """Create the event loop and the pair of a new start."""
        super().make()
        with virtual.process(self):
            self.pair = self._pair_type(
                self.role,
                bind=f"tcp://localhost:{PORT}",
                peer=f"tcp://{self.role.other.name.lower()}:{PORT}",
                heartbeat=self._stage.knobs.heartbeat_s,
                on_change=self._changed,
            )

    async def main(self) -> None:
        """Serve until SIGTERM."""
        await self.pair.serve()

    def _changed(self, view: PairView) -> None:
        self._stage.changed(self, view)
        if self._stage.transcript is not None:
            self._stage.transcript.event(
                self.name, f"is {view.state.name.lower()}, epoch {view.epoch}"
            )

    # --- whether to serve -------------------------------------------------------------------------
    @property
    def half(self) -> BinaryStarPeer:
        """The engine of this server."""
        return self.pair._engine

    @property
    def serves(self) -> bool:
        """Whether it may answer."""
        return self.clock() < self.half.serves_until

    def vote(self) -> bool:
        """Handle a client's request: return whether it may be answered."""
        try:
            return self.pair.vote()
        except PairFailed:
            return False

    def switch(self) -> None:
        """Switch as an operator does, if possible."""
        if self.alive and not self.frozen and not self.half.objection(self.clock()):
            self.turn(self._switch)

    def _switch(self) -> None:
        if not self.half.objection(self.clock()):
            self.pair.switch()
