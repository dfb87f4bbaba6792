"""One server of a pair: the unchanged `requite.pair.Pair`, on an event loop with virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from requite.engine import Effect, Input
from requite.errors import LocalViolation, PairFailed
from requite.pair import Pair
from requite.protocols.binarystar.peer import BinaryStarPeer
from requite.protocols.binarystar.policy import BinaryStarPolicy
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


class SimPair(Pair):
    """A real `Pair` with the engine under test, `half`; the other server is the other node."""

    half: BinaryStarPeer

    def __init__(
        self,
        role: PairRole,
        make_half: Callable[..., BinaryStarPeer],
        heartbeat_s: float,
        on_change: Callable[[PairView], object],
    ) -> None:
        self._make_half = make_half
        super().__init__(
            role,
            bind=f"tcp://localhost:{PORT}",
            peer=f"tcp://{role.other.name.lower()}:{PORT}",
            heartbeat=heartbeat_s,
            on_change=on_change,
        )

    def _make_engine(
        self, policy: BinaryStarPolicy, instance: int, why_unheard: Callable[[], str]
    ) -> BinaryStarPeer:
        """Return the engine under test."""
        self.half = self._make_half(policy, instance=instance, why_unheard=why_unheard)
        return self.half


class PairServer(Program):
    """A server; `pair` is new after each start."""

    pair: SimPair

    def __init__(self, role: PairRole, stage: PairStage) -> None:
        name, pace = role.name.lower(), stage.knobs.pace
        super().__init__(name, stage.world, stage.network, pace, stage.supervisor, self._main)
        self.role = role
        self._stage = stage

    # --- life -------------------------------------------------------------------------------------
    def make(self) -> None:
        """Create the event loop and the pair of a new start."""
        super().make()
        stage = self._stage
        with virtual.process(self):
            self.pair = SimPair(self.role, self._make_half, stage.knobs.heartbeat_s, self._changed)

    def _make_half(self, *args: Any, **settings: Any) -> BinaryStarPeer:
        """Return the engine under test, observed for the transcript."""
        half = self._stage.parts.engine(*args, **settings)
        transcript, handle = self._stage.transcript, half.handle
        if transcript is not None:

            def handle_and_record(events: Sequence[Input], now: float) -> list[Effect]:
                effects = list(handle(events, now))
                transcript.effects(self, effects)
                return effects

            half.handle = handle_and_record  # type: ignore[method-assign]
        return half

    async def _main(self) -> None:
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
        """The engine."""
        return self.pair.half

    @property
    def serves(self) -> bool:
        """Whether it may answer."""
        with virtual.process(self):
            return self.pair.serves

    def vote(self) -> bool:
        """Handle a client's request: return whether it may be answered."""
        try:
            return self.pair.vote()
        except PairFailed:
            return False

    def switch(self) -> None:
        """Switch as an operator does, if possible."""
        if self.alive and not self.frozen:
            self.turn(self._switch)

    def _switch(self) -> None:
        with suppress(LocalViolation, PairFailed):
            self.pair.switch()
