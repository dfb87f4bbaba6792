"""Journals of simulated runs, and the simulator's record of each call, to compare the verdicts.

Every engine of a run gets a chronicle, whose rows become events as `format("requite")` yields them.
Ids contain the number of the run, so that many runs fit into one journal. A killed process loses
the newest rows of its journal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from random import Random
from typing import Any, Final

from tests.spark.events import NOON, Event, instant

from requite.chronicle import NO_CALL, Chronicle, EventRow, Kind, Span, WriterRole
from requite.engine import Deliver, Started, Submit
from requite.journal import meaning
from requite.pool.recorder import PoolRecorder
from requite.protocols.amqp.caller import AmqpCaller
from requite.protocols.amqp.responder import AmqpResponder
from requite.protocols.freelance.server import FreelanceServer
from requite.protocols.majordomo.broker import MajordomoBroker
from requite.protocols.majordomo.client import client_engine
from requite.protocols.majordomo.worker import MajordomoWorker
from requite.protocols.pirate.client import LazyPirate
from requite.protocols.pirate.queue import PirateQueue
from requite.protocols.pirate.server import PirateServer
from requite.protocols.pirate.worker import PirateWorker
from requite.protocols.scalability.rep import ScalabilityWorker
from requite.protocols.scalability.req import ScalabilityClient
from requite.request import Request
from requite.sim.amqp.parties import AmqpParts
from requite.sim.freelance.parties import FlpParts
from requite.sim.kernel.history import Call
from requite.sim.kernel.result import Options
from requite.sim.kernel.simulation import Simulation
from requite.sim.majordomo.parties import MajordomoParts
from requite.sim.pirate.parties import PirateParts
from requite.sim.pool.manager import Manager, SimPoolManager
from requite.sim.pool.simulation import PoolSimulation
from requite.sim.run import draw, prepare
from requite.sim.scalability.parties import SpParts, one_by_one

GROUPS: Final = ("mdp", "dedup", "pair-broker", "sp", "flp", "pirate", "amqp", "pool")
"""The groups of scenarios with journals; in runs of a pool, only managers have one.

The others have none: `titanic` tests a disk, whose log is not a journal, and `pair` tests votes.
"""

_SPREAD: Final = 0x9E3779B1  # odd, so that no two multiples of it have the same 32 bits

_FLUSH_S: Final = 0.05  # as in `JournalSettings`

MDP_GROUPS: Final = ("mdp", "dedup", "pair-broker")

Made = Callable[..., Any]


@dataclass
class Life:
    """An engine from its start to its stop, with its chronicle."""

    role: WriterRole
    name: bytes
    engine: Any
    chronicle: Chronicle
    offset_s: float = 0.0  # of its clock from the clock of the world
    last_event_at: float = 0.0  # time of its last event, by the clock of the world


@dataclass
class Run:
    """One simulated run. `calls` has the calls whose id is known, by request id."""

    number: int
    seed: int
    scenario: str
    options: Options = field(default_factory=Options)
    lives: list[Life] = field(default_factory=list)
    calls: dict[str, Call] = field(default_factory=dict)
    violated: set[str] = field(default_factory=set)
    grace_s: float = 1.0
    _numbers: Iterator[int] = field(default_factory=partial(count, 1))

    def play(self) -> Run:
        """Run the simulation, and record its calls and violations; return this object."""
        options = self.options_with_journals()
        self._simulation: Simulation = prepare(draw(self.seed, self.scenario, options), options)
        if isinstance(self._simulation, PoolSimulation):
            for manager in self._simulation.managers:
                manager.make_shell = self._with_journal(manager)  # type: ignore[method-assign]
        self._simulation.run()
        self.violated = {each.invariant for each in self._simulation.history.violations}
        self._ended_at = self._simulation.world.now
        return self

    def options_with_journals(self) -> Options:
        """Return options whose parts, intact or broken as given, have chronicles."""
        given, numbers = self.options.parts_of(MajordomoParts), self._numbers

        def wrap(make: Made, role: WriterRole, name: str) -> Made:
            def made(*args: Any, **more: Any) -> Any:
                chronicle = Chronicle()
                own = self._name(role, next(numbers))
                engine = make(*args, **(more | {name: own, "chronicle": chronicle}))
                life = Life(role, own, engine, chronicle)
                self.lives.append(life)
                engine.handle = self._recorded(life, engine.handle)
                return engine

            return made

        def client(make: Made) -> Made:
            return wrap(make, WriterRole.CLIENT, "origin")

        def worker(make: Made) -> Made:
            return wrap(make, WriterRole.WORKER, "instance")

        flp = FlpParts()
        return replace(
            self.options,
            parts=(
                MajordomoParts(
                    wrap(given.broker, WriterRole.BROKER, "origin"),
                    client(given.client),
                    worker(given.worker),
                    given.dedup,
                    given.gate,
                    given.half,
                ),
                SpParts(client=client(ScalabilityClient), worker=worker(ScalabilityWorker)),
                FlpParts(
                    {model: client(make) for model, make in flp.clients.items()},
                    worker(FreelanceServer),
                ),
                PirateParts(
                    client(LazyPirate),
                    worker(PirateServer),
                    wrap(PirateQueue, WriterRole.BROKER, "instance"),
                    worker(PirateWorker),
                ),
                AmqpParts(client(AmqpCaller), worker(AmqpResponder)),
            ),
        )

    def _name(self, role: WriterRole, number: int) -> bytes:
        if role is WriterRole.BROKER:  # ids that it generates contain the first half of its name
            return (self.number << 8 | number).to_bytes(4, "big") + bytes(4)
        if role is WriterRole.WORKER:  # it numbers its runs from there, far from other workers
            return (number * _SPREAD % 2**32).to_bytes(4, "big") + self.number.to_bytes(4, "big")
        return self.number.to_bytes(4, "big") + number.to_bytes(4, "big")

    def _recorded(self, life: Life, handle: Made) -> Made:
        """Wrap `handle` to record the clock and the call ids, and to start handlers at once."""

        def recorded(events: Sequence[Any], now: float) -> list[Any]:
            return [effect for event in events for effect in recorded_one(event, now)]

        def recorded_one(event: Any, now: float) -> list[Any]:
            world = self._simulation.world
            life.offset_s, life.last_event_at = now - world.now, world.now
            effects = [each for effect in handle([event], now) for each in one_by_one(effect)]
            if isinstance(event, Submit):
                self._record_call(life, event.token)
            if life.role is WriterRole.WORKER and not self.scenario.startswith("dedup"):
                for effect in list(effects):
                    if isinstance(effect, Deliver) and isinstance(effect.what, Request):
                        effects += handle([Started(effect.token)], now)
            return effects

        return recorded

    def _with_journal(self, manager: Manager) -> Callable[[], SimPoolManager]:
        """Return a function that makes a manager, and records its engine as a journal would."""
        make = manager.make_shell

        def made() -> SimPoolManager:
            shell, chronicle = make(), Chronicle()
            engine: Any = shell.engine
            recorder, handle = PoolRecorder(chronicle), engine.handle
            life = Life(
                WriterRole.MANAGER,
                self._name(WriterRole.MANAGER, next(self._numbers)),
                engine,
                chronicle,
            )
            self.lives.append(life)

            def recorded(events: Any, now: float) -> list[Any]:
                life.offset_s = now - self._simulation.world.now
                life.last_event_at = self._simulation.world.now
                effects: list[Any] = handle(events, now)
                for event in events:
                    recorder.record(event, effects, engine.tracker, now)
                return effects

            engine.handle = recorded
            return shell

        return made

    def _record_call(self, life: Life, token: Any) -> None:
        call = getattr(life.engine, "calls", {}).get(token)
        if call is not None and isinstance(token, Call):
            self.calls[self.name_of(call.call_id.hex())] = token

    # --- events -----------------------------------------------------------------------------------
    def events(
        self, rng: Random, skews_s: Mapping[WriterRole, float] | None = None
    ) -> Iterator[Event]:
        """Yield the events of the journals; `skews_s` sets the clocks of a role forward."""
        for life in self.lives:
            skew_s = (skews_s or {}).get(life.role, 0.0)
            for event in _events_of(life, self._was_stopped(life), rng, skew_s):
                if event["request_id"] is not None:
                    event["request_id"] = self.name_of(event["request_id"])
                yield event

    def name_of(self, request_id: str) -> str:
        """Return the id of a request in the common journal, with the number of the run.

        Some simulated clients choose ids without it.
        """
        prefix = f"{self.number:08x}"
        is_ours = request_id.startswith(prefix) or request_id[0] >= "8"
        return request_id if is_ours else request_id[:2] + prefix[2:] + request_id[8:]

    def _was_stopped(self, life: Life) -> bool:
        engine = life.engine
        if isinstance(engine, MajordomoBroker):
            return engine.stopped
        return bool(getattr(engine.snapshot(), "stopped", False))


def _events_of(life: Life, was_stopped: bool, rng: Random, skew_s: float) -> Iterator[Event]:
    written_until = math.inf
    if not was_stopped and rng.random() < 0.5:  # the newest rows were not on the disk yet
        written_until = life.last_event_at + life.offset_s - _FLUSH_S
    spans = [row for row in life.chronicle.spans if row[2] <= written_until]
    event_rows = [row for row in life.chronicle.event_rows if row.at <= written_until]
    log = f"{meaning.ROLE_NAMES[life.role]}-{life.name.hex()}"
    shift_s = skew_s - life.offset_s
    seq = 0
    for row in spans:
        yield from _span(Span(*row), life.role, log, seq, shift_s)
        seq += 4
    for event_row in event_rows:
        yield _event_row(event_row, life.role, log, seq, shift_s)
        seq += 1
    if was_stopped:
        yield _event(life.role, log, seq, life.last_event_at + skew_s, Kind.CLOSED, NO_CALL, b"")


def _span(span: Span, role: WriterRole, log: str, seq: int, shift_s: float) -> Iterator[Event]:
    for step in meaning.STEPS[role]:
        if step.kind is Kind.QUEUED and not span.second_at > span.first_at:
            continue
        event = _event(
            role,
            log,
            seq + step.number,
            getattr(span, step.at) + shift_s,
            step.kind,
            span.call_id,
            span.service,
        )
        event["attempt"] = step.attempt
        event["outcome"] = step.outcome.name if step.outcome is not None else None
        event["worker"] = span.worker.hex() or None if step.has_worker else None
        event["bytes"] = getattr(span, step.size) if step.size else None
        if step.has_deadline:
            event["deadline"] = _instant(span.deadline + shift_s)
        yield event


def _event_row(row: EventRow, role: WriterRole, log: str, seq: int, shift_s: float) -> Event:
    event = _event(role, log, seq, row.at + shift_s, Kind(row.kind), row.call_id, row.service)
    event["attempt"] = row.attempt or None
    event["outcome"] = meaning.outcome_name(row.outcome)
    event["worker"] = row.worker.hex() or None
    event["error_class"], event["reason"] = row.error or None, row.reason or None
    if row.kind in meaning.SIZE_KINDS:
        event["bytes"] = row.size
    if row.kind in meaning.DEADLINE_KINDS:
        event["deadline"] = _instant(row.value + shift_s)
    if row.kind in meaning.GAP_KINDS and row.value < float("inf"):
        event["gap_s"] = row.value
    return event


def _event(
    role: WriterRole, log: str, seq: int, at_s: float, kind: Kind, call_id: bytes, service: bytes
) -> Event:
    ts = instant(at_s)
    request_id = None if call_id == NO_CALL else call_id.hex()
    return {
        "schema_version": 1,
        "log": log,
        "segment": 0,
        "byte_offset": 64 + 8 * seq,
        "seq": seq,
        "ts": ts,
        "kind": meaning.kind_name(kind),
        "request_id": request_id,
        "service": meaning.text_of(service),
        "client": request_id and request_id[:16],
        "date": ts.date(),
        "role": meaning.ROLE_NAMES[role],
    }


def _instant(at_s: float) -> Any:
    return None if at_s == float("inf") else instant(at_s)


__all__ = [
    "GROUPS",
    "MDP_GROUPS",
    "NOON",
    "MajordomoWorker",
    "Run",
    "client_engine",
]
