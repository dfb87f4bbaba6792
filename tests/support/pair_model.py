"""A state machine of a fail-over pair, its client and its operator, for exhaustive search.

A `Model` is one state: both engines, the messages in flight between them, and the clock. `steps`
yields the possible next steps, and `after` returns the state after one. So a search can visit every
order of events, up to a depth and a number of faults.

The clock advances by a heartbeat (1 s) or by a quarter of one. In each quarter, every running
server has a turn.

Not modelled, unlike in the simulator: a second connection between the servers, a process that is
paused between two quarters of a heartbeat, and the operator's own connection.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from requite.engine import (
    Deliver,
    Disconnect,
    Drain,
    PeerJoined,
    PeerLost,
    Received,
    Send,
    Stopped,
    Wake,
)
from requite.protocols.binarystar.links import PeerLink, PeerLinks
from requite.protocols.binarystar.peer import DIALLED, BinaryStarPeer
from requite.protocols.binarystar.policy import BinaryStarPolicy
from requite.protocols.binarystar.table import PairRole, State
from requite.protocols.binarystar.view import SwitchOver, Vote
from requite.protocols.binarystar.wire import Word, decode

SIDES = ("primary", "backup")
OTHER = {"primary": "backup", "backup": "primary"}
_QUARTERS = 4
_HEAL_BEATS = 6
_DRAIN_BEATS = 3
_INBOX_MAX = 12
_DELIVERIES_MAX = 500
_HEALED_OF_A_KIND = 2

MakeEngine = Callable[..., BinaryStarPeer]


class Step(NamedTuple):
    """One transition of the model, at one server or (`side` "") at both. A search limits the number
    of faults."""

    verb: str
    side: str = ""
    is_fault: bool = False

    def __str__(self) -> str:
        return f"{self.verb} {self.side}".strip()


class Joined(NamedTuple):
    """In an inbox: a connection has been established."""

    link: int


class Lost(NamedTuple):
    """In an inbox: a connection has ended."""

    link: int


class Said(NamedTuple):
    """In an inbox: a message has arrived."""

    link: int
    frame: bytes


@dataclass(slots=True)
class Model:
    """One state of the pair.

    - `timely`: the network delivers every message before the clock advances, and loses none between
      running servers.
    - `quarters`: by how many quarters of a heartbeat a `beat` step advances the clock.
    """

    timely: bool
    make: MakeEngine = BinaryStarPeer
    quarters: int = _QUARTERS
    now: float = 0.0
    faults: int = 0
    engines: dict[str, BinaryStarPeer | None] = field(default_factory=dict)
    inboxes: dict[str, list[Any]] = field(default_factory=lambda: {side: [] for side in SIDES})
    stalled: frozenset[str] = frozenset()
    link: int = 0
    lives: int = 0
    history: tuple[Step, ...] = ()

    @classmethod
    def begin(
        cls, *, timely: bool, make: MakeEngine = BinaryStarPeer, quarters: int = _QUARTERS
    ) -> Model:
        """Return the initial state: both servers have just started."""
        model = cls(timely, make, quarters, engines=dict.fromkeys(SIDES))
        for side in SIDES:
            model._start(side)
        return model

    def settled(self) -> Model:
        """Return a copy in which all messages in flight have been delivered."""
        model = self._clone()
        model._deliver_all()
        return model

    # --- transitions ------------------------------------------------------------------------------
    def steps(self, faults_max: int) -> Iterator[Step]:
        """Yield the possible next steps; no faults once `faults_max` have happened."""
        faulty = self.faults < faults_max
        for side in SIDES:
            yield from self._steps_of(side, faulty)
        if faulty and not self.timely and all(self.engines.values()):
            yield Step("reset", is_fault=True)
        if not self.timely or not any(self._is_awake(s) and self.inboxes[s] for s in SIDES):
            yield Step("beat")

    def _steps_of(self, side: str, faulty: bool) -> Iterator[Step]:
        engine = self.engines[side]
        if engine is None:
            yield Step("start", side)
            return
        if side in self.stalled:
            yield Step("wake", side)
        else:
            if self.inboxes[side]:
                yield Step("deliver", side)
                if faulty and not self.timely and isinstance(self.inboxes[side][0], Said):
                    yield Step("drop", side, is_fault=True)
            if self.now >= engine.serves_until:
                yield Step("ask", side)
            if faulty and not engine.objection(self.now):
                yield Step("switch", side, is_fault=True)
            if faulty:
                yield Step("stall", side, is_fault=True)
            if faulty and not engine._draining:
                yield Step("drain", side, is_fault=True)
        if faulty:
            yield Step("crash", side, is_fault=True)

    def after(self, step: Step) -> Model:
        """Return a copy in which a step has been taken."""
        model = self._clone()
        model.history = (*self.history, step)
        model.faults += step.is_fault
        getattr(model, f"_{step.verb}")(*([step.side] if step.side else []))
        return model

    # --- invariants -------------------------------------------------------------------------------
    @property
    def serving(self) -> list[BinaryStarPeer]:
        """The servers that would answer a client now."""
        return [
            engine
            for side, engine in self.engines.items()
            if engine is not None and side not in self.stalled and self.now < engine.serves_until
        ]

    def check(self) -> None:
        """Raise `AssertionError` if an invariant is violated.

        With a timely network, at most one server serves. Otherwise both may, but not in the same
        epoch. No server fails.
        """
        serving = self.serving
        if len(serving) > 1:
            assert len({each.epoch for each in serving}) == 2, f"one epoch, {self.story}"
            assert not self.timely, f"two serve at once: {self.story}"
        for engine in filter(None, self.engines.values()):
            assert engine.state is not State.FAILED, f"{engine.trouble}: {self.story}"

    def check_heals(self) -> None:
        """Raise `AssertionError` unless the pair recovers within a few heartbeats after the faults.

        Both servers must agree on one active server. A server whose peer is down must serve
        clients, unless it is a backup that has received no heartbeat since its start.
        """
        for side in SIDES:
            if self.engines[side] is not None:
                self._clone()._heal([side])
        self._clone()._heal([*SIDES])

    @property
    def states(self) -> tuple[State | None, ...]:
        """The states of the two servers; None: not running."""
        return tuple(engine and engine.state for engine in self.engines.values())

    @property
    def story(self) -> str:
        """The steps so far, as text."""
        return ", ".join(map(str, self.history))

    def key(self) -> Hashable:
        """Return a value that is equal for equivalent states: in it, times, heartbeat numbers and
        instances are relative."""
        return (
            tuple(self._side_key(side) for side in SIDES),
            tuple(self._inbox_key(side) for side in SIDES),
            self.stalled,
            self.faults,
        )

    # --- the steps --------------------------------------------------------------------------------
    def _start(self, side: str) -> None:
        self.lives += 1
        policy = BinaryStarPolicy(PairRole[side.upper()])
        self.engines[side] = self.make(policy, instance=self.lives)
        self._feed(side, Wake())
        if all(self.engines.values()):
            self._connect()

    def _crash(self, side: str) -> None:
        self.engines[side] = None
        self.stalled -= {side}
        self.inboxes[side] = []
        if self.engines[OTHER[side]] is not None:
            self.inboxes[OTHER[side]].append(Lost(self.link))

    def _stall(self, side: str) -> None:
        self.stalled |= {side}

    def _wake(self, side: str) -> None:
        """Resume a paused server. It may answer clients before its first turn, so check here."""
        self.stalled -= {side}
        self.check()

    def _deliver(self, side: str) -> None:
        item = self.inboxes[side].pop(0)
        match item:
            case Joined(link):
                self._feed(side, PeerJoined(link, b"", DIALLED if side == "primary" else None))
            case Lost(link):
                self._feed(side, PeerLost(link))
            case Said(link, frame):
                self._feed(side, Received(link, [[frame]]))

    def _drop(self, side: str) -> None:
        self.inboxes[side].pop(0)

    def _reset(self) -> None:
        for side in SIDES:
            self.inboxes[side] = [i for i in self.inboxes[side] if not isinstance(i, Said)]
            self.inboxes[side].append(Lost(self.link))
        self._connect()

    def _ask(self, side: str) -> None:
        self._feed(side, Vote())

    def _drain(self, side: str) -> None:
        self._feed(side, Drain())

    def _switch(self, side: str) -> None:
        self._feed(side, SwitchOver())

    def _beat(self) -> None:
        for _ in range(self.quarters):
            self.now += 1 / _QUARTERS
            self.check()
            for side in SIDES:
                if self._is_awake(side):
                    self._feed(side, Wake())
            self.check()

    def _heal(self, alive: list[str]) -> None:
        self.quarters = _QUARTERS
        for side in SIDES:
            if side in self.stalled:
                self._wake(side)
        self._await_drained()
        for side in SIDES:
            if (self.engines[side] is None) == (side in alive):
                (self._start if side in alive else self._crash)(side)
        self.timely = False  # messages in flight may still be late
        for _ in range(_HEAL_BEATS):
            self._deliver_all()
            for side in alive:
                self._ask(side)
            self._deliver_all()
            self._beat()
        self._check_healed(alive)

    def _await_drained(self) -> None:
        """Run until the draining servers have stopped."""
        for _ in range(_DRAIN_BEATS):
            if any(engine and engine._draining for engine in self.engines.values()):
                self._deliver_all()
                self._beat()
        for side, engine in self.engines.items():
            assert not (engine and engine._draining), f"the {side} does not end: {self.story}"

    def _deliver_all(self) -> None:
        for _ in range(_DELIVERIES_MAX):
            busy = [side for side in SIDES if self.engines[side] and self.inboxes[side]]
            if not busy:
                return
            self._deliver(busy[0])
        raise AssertionError(f"they talk without end: {self.story}")

    def _check_healed(self, alive: list[str]) -> None:
        states = sorted(engine.state for side in alive if (engine := self.engines[side]))
        is_lonely_backup = states == [State.BACKUP]
        assert len(self.serving) == 1 or is_lonely_backup, f"{states} after {self.story}"
        assert len(alive) == 1 or states == [State.ACTIVE, State.PASSIVE], f"{states}: {self.story}"

    # --- internals --------------------------------------------------------------------------------
    def _is_awake(self, side: str) -> bool:
        return self.engines[side] is not None and side not in self.stalled

    def _connect(self) -> None:
        self.link += 1
        for side in SIDES:
            self.inboxes[side].append(Joined(self.link))

    def _feed(self, side: str, event: Any) -> None:
        engine = self.engines[side]
        assert engine is not None
        for effect in engine.handle([event], self.now):
            match effect:
                case Send(link, [frame]):
                    self._send(OTHER[side], Said(link, frame))
                case Disconnect(link):
                    self._hang_up(side, link)
                case Deliver(_, view):
                    serves = self.now < engine.serves_until
                    assert view.serves == serves, f"{view}: {self.story}"
                case Stopped():
                    self._crash(side)
        self.check()

    def _send(self, side: str, said: Said) -> None:
        if self.engines[side] is not None and said.link == self.link:
            self.inboxes[side].append(said)
            del self.inboxes[side][:-_INBOX_MAX]

    def _hang_up(self, side: str, link: int) -> None:
        if link == self.link and self.engines[OTHER[side]] is not None:
            self.inboxes[OTHER[side]].append(Lost(link))
            self._connect()

    def _clone(self) -> Model:
        model = copy.copy(self)
        model.engines = {
            side: e and _clone_engine(e, self.make) for side, e in self.engines.items()
        }
        model.inboxes = {side: list(inbox) for side, inbox in self.inboxes.items()}
        return model

    def _side_key(self, side: str) -> Hashable:
        engine = self.engines[side]
        if engine is None:
            return None
        other = self.engines[OTHER[side]]
        word = engine._other.word
        is_current = word and other and other._instance == word.instance
        times = (
            engine.serves_until,
            engine._sent_at,
            engine._turn_at,
            engine._other.liveness.gone_at(),
            engine._doubt._asked_at,
            min(engine._stop_at, self.now + 9.0),
        )
        return (
            engine.state,
            engine.epoch,
            engine._draining,
            min(engine._silent_joins, 4),
            engine._doubt.is_there,
            engine._number - engine._doubt._asked,
            word and (word.state, word.epoch),
            # Which of the other's heartbeats this server has received: this can settle a doubt.
            word and other and is_current and word.number - other._number,
            tuple(max(-9.0, at - self.now) for at in times),
            tuple(self._link_key(link, other) for link in engine._links._links.values()),
        )

    def _link_key(self, link: PeerLink, other: BinaryStarPeer | None) -> Hashable:
        speaker = link.instance and (other is not None and link.instance == other._instance)
        return link.peer == self.link, link.is_peer, speaker, max(-9.0, link.heard_at - self.now)

    def _inbox_key(self, side: str) -> Hashable:
        return tuple(self._item_key(side, item) for item in self.inboxes[side])

    def _item_key(self, side: str, item: Any) -> Hashable:
        is_current = item.link == self.link
        if not isinstance(item, Said):
            return type(item).__name__, is_current
        word = decode([item.frame])
        if not isinstance(word, Word):
            return word, is_current
        engine, sender = self.engines[side], self.engines[OTHER[side]]
        answered = (
            engine and word.heard_instance == engine._instance and word.heard - engine._number
        )
        age = sender and sender._instance == word.instance and word.number - sender._number
        return word.state, word.epoch, answered, age, is_current


def _clone_engine(engine: BinaryStarPeer, make: MakeEngine) -> BinaryStarPeer:
    clone = make(engine.policy, instance=engine._instance)
    for name, value in vars(engine).items():
        if name not in ("_inputs", "_commands"):
            setattr(clone, name, value)
    clone._out = []
    clone._other = copy.copy(engine._other)
    clone._other.liveness = copy.copy(engine._other.liveness)
    clone._doubt = copy.copy(engine._doubt)
    links = PeerLinks(engine._links._patience_s)
    links._links = {peer: copy.copy(link) for peer, link in engine._links._links.items()}
    clone._links = links
    return clone


def explore(model: Model, depth: int, faults_max: int, *, heal_every: int = 0) -> int:
    """Visit every state within `depth` steps and `faults_max` faults; return their number.

    Recovery is checked in the first two states of each kind, and in one of `heal_every` states (0:
    in none at all). A kind is a step with the servers' states before and after it. The search is
    breadth first: an `AssertionError` lists the steps to the first violation, and no shorter
    sequence violates an invariant.
    """
    seen = {model.key()}
    layer = [model]
    kinds: Counter[Hashable] = Counter()
    for _ in range(depth):
        following = []
        for before in layer:
            for step in before.steps(faults_max):
                after = before.after(step)
                key = after.key()
                if key not in seen:
                    seen.add(key)
                    following.append(after)
                    kind = step, before.states, after.states
                    kinds[kind] += 1
                    is_rare = kinds[kind] <= _HEALED_OF_A_KIND
                    if heal_every and (is_rare or not len(seen) % heal_every):
                        after.check_heals()
        layer = following
    return len(seen)


def wander(model: Model, random: Random, length: int) -> Model:
    """Take `length` random steps without a limit on faults, check recovery, return the model."""
    for _ in range(length):
        steps = list(model.steps(length))
        # Faults are less likely than other steps: otherwise no server would ever be active.
        weights = [0.2 if step.is_fault else 1.0 for step in steps]
        (step,) = random.choices(steps, weights)
        model = model.after(step)
    model.check_heals()
    return model
