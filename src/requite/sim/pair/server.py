"""One server of a pair: the unchanged `requite.pair.Pair`, on an event loop with virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from requite.engine import Effect, Input
from requite.errors import LocalViolation, PairFailed
from requite.pair import Pair
from requite.protocols.binarystar.peer import BinaryStarPeer
from requite.protocols.binarystar.policy import BinaryStarPolicy
from requite.protocols.binarystar.table import PairRole
from requite.protocols.binarystar.view import PairView
from requite.sim.kernel import virtual
from requite.sim.kernel.program import Main, Program
from requite.sim.kernel.stage import RunStage
from requite.sim.pair.knobs import PairKnobs

PORT: Final = 5560


@dataclass(frozen=True, slots=True)
class PairParts:
    """The engine under test. Mutation tests pass a broken one."""

    engine: Callable[..., BinaryStarPeer] = BinaryStarPeer


@dataclass(slots=True, kw_only=True)
class PairStage(RunStage[PairKnobs, PairParts]):
    """The state that all processes of a run share. `changed` is called when a server's state
    changes."""

    changed: Callable[[PairServer, PairView], object]


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


class PairProgram(Program):
    """A program with one server of a pair; `pair` is new after each start."""

    pair: SimPair

    def __init__(self, role: PairRole, stage: RunStage[Any, Any], main: Main) -> None:
        name, pace = role.name.lower(), stage.knobs.pace
        super().__init__(name, stage.world, stage.network, pace, stage.supervisor, main)
        self.role = role

    @property
    def half(self) -> BinaryStarPeer:
        """The engine of the pair."""
        return self.pair.half

    @property
    def serves(self) -> bool:
        """Whether it may answer clients."""
        with virtual.process(self):
            return self.pair.serves

    def switch(self) -> None:
        """Switch as an operator does, if possible."""
        if self.alive and not self.frozen:
            self.turn(self._switch)

    def _switch(self) -> None:
        with suppress(LocalViolation, PairFailed):
            self.pair.switch()


class PairServer(PairProgram):
    """A server of a pair."""

    def __init__(self, role: PairRole, stage: PairStage) -> None:
        super().__init__(role, stage, self._main)
        self._stage = stage

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

    def vote(self) -> bool:
        """Handle a client's request: return whether it may be answered."""
        try:
            return self.pair.vote()
        except PairFailed:
            return False
