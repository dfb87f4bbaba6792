"""Stand between a host and its engine, and observe every input and effect.

This is for engines of clients and workers; `watch_broker.py` has the broker's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from requite.engine import Disconnect, Effect, Engine, Input, Received, Send
from requite.sim.kernel.history import History
from requite.sim.kernel.workload import parse_task

if TYPE_CHECKING:
    from requite.sim.kernel.process import Process
    from requite.sim.kernel.transcript import Transcript


class Pulse:
    """The time of the last message on each connection, to detect a silence that was too long.

    The time that the process was frozen does not count.
    """

    def __init__(self, process: Process, history: History) -> None:
        self._process = process
        self._history = history
        self._spoke: dict[Any, float] = {}

    def begin(self, peer: Any) -> None:
        """Start measuring the silence of a connection."""
        self._spoke[peer] = self._now()

    def end(self, peer: Any) -> None:
        """Stop measuring it."""
        self._spoke.pop(peer, None)

    def spoke(self, peer: Any) -> None:
        """Record a message, and report the silence before it."""
        before = self._spoke.get(peer)
        if before is not None:
            now = self._spoke[peer] = self._now()
            self._history.tell("spoke", self._process.name, name_of(peer), now - before)

    def _now(self) -> float:
        return self._process.world.now - self._process.frozen_s


class Watched:
    """The engine of a client or worker, under observation."""

    def __init__(
        self,
        engine: Engine,
        process: Process,
        history: History,
        transcript: Transcript | None = None,
    ) -> None:
        self.engine = engine
        self.process = process
        self.transcript = transcript
        self.deadline = engine.deadline
        self.snapshot = engine.snapshot
        self._history = history
        self._heard_at: dict[Any, float] = {}  # by connection whose peer has sent a message

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`; the engine gets one input at a time."""
        return [effect for event in events for effect in self._handle(event, now)]

    def _handle(self, event: Input, now: float) -> Iterable[Effect]:
        if event.__class__ is Received:
            self._heard_at[event.peer] = self.process.world.now
        effects = list(self.engine.handle((event,), now))
        if self.transcript is not None:
            self.transcript.effects(self.process, effects)
        for effect in effects:
            if effect.__class__ is Send:
                self._sent(effect)
            elif effect.__class__ is Disconnect:
                self._left(effect)
        return effects

    def _sent(self, effect: Send) -> None:
        """Observe a message; see the subclasses."""

    def _left(self, effect: Disconnect) -> None:
        heard_at = self._heard_at.pop(effect.peer, None)
        silent_s = inf if heard_at is None else self.process.world.now - heard_at
        self._history.tell("gave_up_on_broker", self.process.name, effect, silent_s)


class WatchedClient(Watched):
    """A client's engine: it may send no expired call."""

    def _sent(self, effect: Send) -> None:
        task = parse_task(effect.message[-2:])
        call = None if task is None else self._history.calls.get(task.number)
        if call is not None:
            self._history.tell("sent", call)


class WatchedWorker(Watched):
    """A worker's engine: after READY it must send at least once per interval."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._pulse = Pulse(self.process, self._history)

    def _sent(self, effect: Send) -> None:
        if effect.peer not in self._heard_at:  # no interval is negotiated before the broker sends
            self._pulse.begin(effect.peer)
        self._pulse.spoke(effect.peer)

    def _left(self, effect: Disconnect) -> None:
        super()._left(effect)
        self._pulse.end(effect.peer)


def name_of(peer: Any) -> str:
    """Return the name of the process at the other end of a connection."""
    name: str = peer.stream.other.process.name
    return name
