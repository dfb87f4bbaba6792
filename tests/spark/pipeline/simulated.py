"""Journals of simulated runs, with what the simulator knows of each call: who judges them both?

Every engine of a run gets a chronicle. Its rows become events as `format("requite")` would yield
them; ids hold the number of the run, so that many runs make one journal. A process that is killed
takes the newest rows of its journal with it.
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
from requite.sim.amqp.stage import AmqpParts
from requite.sim.freelance.stage import FlpParts
from requite.sim.kernel.history import Call
from requite.sim.kernel.result import Options
from requite.sim.kernel.simulation import Simulation
from requite.sim.majordomo.roles import MajordomoParts
from requite.sim.pirate.parties import PirateParts
from requite.sim.pool.manager import Manager
from requite.sim.pool.simulation import PoolSimulation
from requite.sim.run import draw, prepare
from requite.sim.scalability.party import SpParts
from requite.sim.scalability.watch import one_by_one

GROUPS: Final = ("mdp", "dedup", "pair-broker", "sp", "flp", "pirate", "amqp", "pool")
"""Those of the simulator's groups in which anything keeps a journal. In runs of a pool that is its
managers alone. The others have nothing that does: `titanic` is about a disk, whose log is no
journal, and `pair` about votes."""

_SPREAD: Final = 0x9E3779B1  # odd, so that no two multiples of it have the same 32 bits

_FLUSH_S: Final = 0.05  # that of `JournalSettings`

MDP_GROUPS: Final = ("mdp", "dedup", "pair-broker")

Made = Callable[..., Any]


@dataclass
class Life:
    """An engine, from its start to its end."""

    role: WriterRole
    name: bytes
    engine: Any
    chronicle: Chronicle
    offset_s: float = 0.0  # of its clock, to that of the world
    heard_at: float = 0.0  # when it was last asked anything, by the world's clock


@dataclass
class Run:
    """One simulated run. `calls` are those whose id is known: by that of their request."""

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
        """Let it go, and keep what is known then."""
        options = self.options_with_journals()
        self._simulation: Simulation = prepare(draw(self.seed, self.scenario, options), options)
        if isinstance(self._simulation, PoolSimulation):
            for manager in self._simulation.managers:
                manager.begun = self._with_journal(manager)
        self._simulation.run()
        self.violated = {each.invariant for each in self._simulation.history.violations}
        self._ended_at = self._simulation.world.now
        return self

    def options_with_journals(self) -> Options:
        """Return options whose parts have journals: those given, broken or not."""
        given, numbers = self.options.parts_of(MajordomoParts), self._numbers

        def wrap(make: Made, role: WriterRole, name: str) -> Made:
            def made(*args: Any, **more: Any) -> Any:
                chronicle = Chronicle()
                own = self._name(role, next(numbers))
                engine = make(*args, **(more | {name: own}), chronicle=chronicle)
                life = Life(role, own, engine, chronicle)
                self.lives.append(life)
                engine.handle = self._heard(life, engine.handle)
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
        if role is WriterRole.BROKER:  # the first half of its name is in the ids that it makes up
            return (self.number << 8 | number).to_bytes(4, "big") + bytes(4)
        if (
            role is WriterRole.WORKER
        ):  # its start is where it begins to number its runs: far from others
            return (number * _SPREAD % 2**32).to_bytes(4, "big") + self.number.to_bytes(4, "big")
        return self.number.to_bytes(4, "big") + number.to_bytes(4, "big")

    def _heard(self, life: Life, handle: Made) -> Made:
        """Note an engine's clock and the ids of its calls; handlers begin at once."""

        def heard(events: Sequence[Any], now: float) -> list[Any]:
            return [effect for event in events for effect in heard_one(event, now)]

        def heard_one(event: Any, now: float) -> list[Any]:
            world = self._simulation.world
            life.offset_s, life.heard_at = now - world.now, world.now
            effects = [each for effect in handle([event], now) for each in one_by_one(effect)]
            if isinstance(event, Submit):
                self._note(life, event.token)
            if life.role is WriterRole.WORKER and not self.scenario.startswith("dedup"):
                for effect in list(effects):
                    if isinstance(effect, Deliver) and isinstance(effect.what, Request):
                        effects += handle([Started(effect.token)], now)
            return effects

        return heard

    def _with_journal(self, manager: Manager) -> Callable[[], None]:
        """Return how a manager begins whose engine is recorded, as its shell does it."""
        begin = manager.begun

        def begun() -> None:
            begin()
            engine, chronicle = manager.engine, Chronicle()
            recorder, handle = PoolRecorder(chronicle), manager.engine.handle
            life = Life(
                WriterRole.MANAGER,
                self._name(WriterRole.MANAGER, next(self._numbers)),
                engine,
                chronicle,
            )
            self.lives.append(life)

            def heard(event: Any, now: float) -> list[Any]:
                life.offset_s = now - self._simulation.world.now
                life.heard_at = self._simulation.world.now
                effects = handle(event, now)
                recorder.record(event, effects, engine.tracker, now)
                return effects

            engine.handle = heard

        return begun

    def _note(self, life: Life, token: Any) -> None:
        call = getattr(life.engine, "calls", {}).get(token)
        if call is not None and isinstance(token, Call):
            self.calls[self.name_of(call.call_id.hex())] = token

    # --- events -----------------------------------------------------------------------------------
    def events(
        self, rng: Random, skews_s: Mapping[WriterRole, float] | None = None
    ) -> Iterator[Event]:
        """Yield what the journals tell; `skews_s` puts the clocks of all of a role forward."""
        for life in self.lives:
            skew_s = (skews_s or {}).get(life.role, 0.0)
            for event in _events_of(life, self._has_lived(life), rng, skew_s):
                if event["request_id"] is not None:
                    event["request_id"] = self.name_of(event["request_id"])
                yield event

    def name_of(self, request_id: str) -> str:
        """Return the id of a request in the journal of all runs; some simulated clients choose."""
        prefix = f"{self.number:08x}"
        is_ours = request_id.startswith(prefix) or request_id[0] >= "8"
        return request_id if is_ours else request_id[:2] + prefix[2:] + request_id[8:]

    def _has_lived(self, life: Life) -> bool:
        engine = life.engine
        if isinstance(engine, MajordomoBroker):
            return engine.stopped
        return bool(getattr(engine.snapshot(), "stopped", False))


def _events_of(life: Life, has_lived: bool, rng: Random, skew_s: float) -> Iterator[Event]:
    written_until = math.inf
    if not has_lived and rng.random() < 0.5:  # what was told last was not on the disk yet
        written_until = life.heard_at + life.offset_s - _FLUSH_S
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
    if has_lived:
        yield _event(life.role, log, seq, life.heard_at + skew_s, Kind.CLOSED, NO_CALL, b"")


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


def _event_row(told: EventRow, role: WriterRole, log: str, seq: int, shift_s: float) -> Event:
    event = _event(role, log, seq, told.at + shift_s, Kind(told.kind), told.call_id, told.service)
    event["attempt"] = told.attempt or None
    event["outcome"] = meaning.outcome_name(told.outcome)
    event["worker"] = told.worker.hex() or None
    event["error_class"], event["reason"] = told.error or None, told.reason or None
    if told.kind in meaning.SIZE_KINDS:
        event["bytes"] = told.size
    if told.kind in meaning.DEADLINE_KINDS:
        event["deadline"] = _instant(told.value + shift_s)
    if told.kind in meaning.GAP_KINDS and told.value < float("inf"):
        event["gap_s"] = told.value
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
