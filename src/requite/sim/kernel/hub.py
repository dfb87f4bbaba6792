"""Observe an engine: report its inputs and effects to the checkers, and change none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from requite.engine import (
    Deliver,
    Disconnect,
    Drain,
    Effect,
    Engine,
    Fail,
    Input,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    ResumeReading,
    Send,
    Stopped,
    StopReading,
)
from requite.request import Request
from requite.sim.kernel.transcript import name_of
from requite.sim.kernel.workload import Task, parse_task

if TYPE_CHECKING:
    from requite.sim.kernel.history import Call, History
    from requite.sim.kernel.transcript import Transcript
    from requite.sim.kernel.world import World


class Hub:
    """The engine of a party (`requite.sim.kernel.party`) under observation, new after each start.

    It tells the checkers about connections over which the party sends requests (`channel_up`,
    `channel_down`) or gets them (`caller_up`, `caller_down`), and about messages: `request_came`,
    `reply_came`, `request_sent`, `reply_sent`, and for a planned call of a client also `call_sent`.

    By connection: `names`, the process at the other end, also of lost ones; `places` of the ones
    that are open; `heard_at`, the world's time of the last bytes; `open`, those without
    back-pressure; `unread`, those that the engine stopped reading. `ending`: what the current input
    ends, by its token.
    """

    def __init__(self, engine: Engine, process: Any) -> None:
        self.engine = engine
        self.process = process
        self.name: str = process.name
        self.kind: str = process.kind
        self.deadline = engine.deadline
        self.snapshot: Callable[[], Any] = engine.snapshot
        self.names: dict[Any, str] = {}
        self.places: dict[Any, Any] = {}
        self.heard_at: dict[Any, float] = {}
        self.open: dict[Any, None] = {}
        self.unread: dict[Any, None] = {}
        self.ending: dict[Any, Any] = {}
        self.draining = self.stopped = False
        self._history: History = process.stage.history
        self._transcript: Transcript | None = process.stage.transcript
        self._world: World = process.world
        self._tell = self._history.tell
        self._hearers = self._history.hearers
        self._asking: dict[Any, None] = {}  # the open connections over which it sends requests
        self._inputs: dict[type, Callable[[Any], object]] = {
            PeerJoined: self._joined,
            PeerLost: lambda event: self._lost(event.peer),
            PeerBlocked: lambda event: self._blocked(event.peer),
            PeerWritable: lambda event: self._writable(event.peer),
            Received: self._received,
            Drain: self._drained,
        }
        self._effects: dict[type, Callable[[Any], object]] = {
            Send: self._sent,
            Deliver: self._delivered,
            Fail: lambda effect: self.ending.setdefault(effect.token, effect.error),
            Disconnect: self._disconnected,
            StopReading: lambda effect: self.unread.setdefault(effect.peer),
            ResumeReading: lambda effect: self.unread.pop(effect.peer, None),
            Stopped: self._has_stopped,
        }

    def __str__(self) -> str:
        return self.name

    @property
    def now(self) -> float:
        """The world's time, minus the time that the process was frozen."""
        frozen_s: float = self.process.frozen_s
        return self._world.now - frozen_s

    def asks(self, peer: Any) -> bool:
        """Whether the party sends requests over an open connection, and gets replies."""
        return peer in self._asking

    # --- for subclasses ---------------------------------------------------------------------------
    def read(self, message: Sequence[bytes]) -> Any:
        """Return a message as the checkers get it."""
        return list(message)

    def task_of(self, message: Any) -> Task | None:
        """Return the task in a request of a client; None for any other message."""
        return parse_task(message)

    def queues(self, message: Any) -> bool:
        """Whether a received message is a request that the party serves, and not one it drops."""
        return True

    def _taken(self, token: Any, request: Request) -> None:
        """Observe that a handler starts."""

    # --- the engine -------------------------------------------------------------------------------
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
        for hear in self._hearers["rested"]:
            hear(self)
        self.ending.clear()

    def call_of(self, message: Any) -> Call | None:
        """Return the planned call in a request of a client; None for any other message."""
        task = self.task_of(message)
        return None if task is None else self._history.calls.get(task.number)

    # --- inputs -----------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined) -> None:
        self.places[event.peer] = event.place
        if self.process.asks(event.place):
            self._asking[event.peer] = None
        self.names[event.peer] = name_of(event.peer)
        self.heard_at[event.peer] = self._world.now
        self._writable(event.peer)

    def _lost(self, peer: Any) -> None:
        if peer in self.places:
            self._blocked(peer)
            self._tell("channel_lost", self, peer)
            del self.places[peer], self.heard_at[peer]
            self._asking.pop(peer, None)
            self.unread.pop(peer, None)

    def _blocked(self, peer: Any) -> None:
        self.open.pop(peer, None)
        self._tell("channel_down" if self.asks(peer) else "caller_down", self, peer)

    def _writable(self, peer: Any) -> None:
        self.open[peer] = None
        self._tell("channel_up" if self.asks(peer) else "caller_up", self, peer)

    def _received(self, event: Received) -> None:
        if event.peer not in self.places:
            return  # disconnected while the host still had its first messages
        for hear in self._hearers["batch_came"]:
            hear(self, event.peer)
        self.heard_at[event.peer] = self._world.now
        hearers = self._hearers["reply_came" if event.peer in self._asking else "request_came"]
        for message in event.messages if hearers else ():
            read = self.read(message)
            for hear in hearers:
                hear(self, event.peer, read)

    def _drained(self, _event: Drain) -> None:
        self.draining = True

    # --- effects ----------------------------------------------------------------------------------
    def _sent(self, effect: Send) -> None:
        peer, message = effect.peer, self.read(effect.message)
        if peer in self._asking:
            what = "request_sent"
        else:
            what = "reply_sent" if peer in self.places else "sent_in_vain"
        for hear in self._hearers[what]:
            hear(self, peer, message)
        call = self.call_of(message) if what == "request_sent" and self.kind == "client" else None
        if call is not None:
            self._tell("call_sent", self, peer, call)

    def _delivered(self, effect: Deliver) -> None:
        self.ending[effect.token] = effect.what
        if isinstance(effect.what, Request):
            self._taken(effect.token, effect.what)

    def _disconnected(self, effect: Disconnect) -> None:
        self._tell("sent_away", self, effect)
        self._lost(effect.peer)

    def _has_stopped(self, _effect: Stopped) -> None:
        self.stopped = True
