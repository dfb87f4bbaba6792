"""Observe an engine: report its inputs and effects to the checkers, and change none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from requite.engine import (
    Deliver,
    Disconnect,
    Effect,
    Engine,
    Input,
    PeerJoined,
    PeerLost,
    Received,
    Send,
)

if TYPE_CHECKING:
    from requite.sim.kernel.history import History
    from requite.sim.kernel.process import Process
    from requite.sim.kernel.transcript import Transcript


class BaseHub:
    """An engine under observation, new after each start of its process. `names`: the process at
    the other end of each connection. Subclasses observe more kinds of inputs and effects."""

    def __init__(
        self,
        engine: Engine,
        process: Process,
        kind: str,
        history: History,
        transcript: Transcript | None = None,
    ) -> None:
        self.engine = engine
        self.process = process
        self.name = process.name
        self.kind = kind
        self.deadline = engine.deadline
        self.snapshot: Callable[[], Any] = engine.snapshot
        self.names: dict[Any, str] = {}
        self._transcript = transcript
        self._world = process.world
        self._tell = history.tell
        self._inputs: dict[type, Callable[[Any], object]] = {
            PeerJoined: self._joined,
            PeerLost: lambda event: self._lost(event.peer),
            Received: self._received,
        }
        self._effects: dict[type, Callable[[Any], object]] = {
            Send: self._sent,
            Deliver: self._delivered,
            Disconnect: self._disconnected,
        }

    def __str__(self) -> str:
        return self.name

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`; the engine gets one input at a time."""
        return [effect for event in events for effect in self._handle(event, now)]

    def _handle(self, event: Input, now: float) -> list[Effect]:
        self._look_at(event)
        effects = list(self.engine.handle((event,), now))
        self._watch(effects)
        return effects

    def _look_at(self, event: Input) -> None:
        look = self._inputs.get(event.__class__)
        if look is not None:
            look(event)

    def _watch(self, effects: list[Effect]) -> None:
        if self._transcript is not None:
            self._transcript.effects(self.process, effects)
        for effect in effects:
            look = self._effects.get(effect.__class__)
            if look is not None:
                look(effect)
        self._tell("rested", self)

    # --- for subclasses ---------------------------------------------------------------------------
    def _joined(self, event: PeerJoined) -> None:
        raise NotImplementedError

    def _lost(self, peer: Any) -> None:
        raise NotImplementedError

    def _received(self, event: Received) -> None:
        raise NotImplementedError

    def _sent(self, effect: Send) -> None:
        raise NotImplementedError

    def _delivered(self, effect: Deliver) -> None:
        """Ignore deliveries."""

    def _disconnected(self, effect: Disconnect) -> None:
        self._tell("sent_away", self, effect)
        self._lost(effect.peer)
