"""A batch of inputs has the same effects, per peer and token, as the inputs one by one.

Each engine of a simulated run has two shadows that receive its inputs at the same instants: one
gets them singly, the other in batches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from requite.engine import (
    Deliver,
    Effect,
    Engine,
    Fail,
    Finished,
    Input,
    Produced,
    Progressed,
    Send,
    Started,
)
from requite.errors import LocalViolation
from requite.protocols.freelance.server import FreelanceServer
from requite.request import Request
from requite.sim.amqp.parties import AmqpParts
from requite.sim.freelance.parties import FlpParts
from requite.sim.majordomo.parties import MajordomoParts
from requite.sim.pirate.parties import PirateParts
from requite.sim.run import Options, run
from requite.sim.scalability.parties import SpParts, one_by_one

SCENARIOS = [
    "swarm",
    "old-dialects",
    "drain",
    "garbage",
    "sp-swarm",
    "sp-drain",
    "sp-partitions",
    "flp-agent",
    "flp-failover",
    "flp-shotgun",
    "pirate-swarm",
    "amqp-swarm",
]
_LONGEST = 6
_OF_HANDLERS = (Finished, Produced, Progressed, Started)
Make = Callable[..., Any]
Grouped = dict[Any, list[Any]]


class Shadow:
    """A copy of an engine. It numbers requests in the order of their delivery."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.jobs: list[Any] = []

    def handle(self, events: Sequence[Input], now: float) -> list[Effect]:
        known = [
            replace(event, token=self.jobs[event.token])
            if isinstance(event, _OF_HANDLERS)
            else event
            for event in events
            if not isinstance(event, _OF_HANDLERS) or event.token < len(self.jobs)
        ]
        effects: list[Effect] = []
        try:
            effects += self.engine.handle(known, now)
        except LocalViolation:
            effects += self.engine.handle([], now)
        single = [each for effect in effects for each in one_by_one(effect)]
        for effect in single:
            if isinstance(effect, Deliver) and isinstance(effect.what, Request):
                self.jobs.append(effect.token)
        return single

    def group_by_receiver(self, effects: Iterable[Effect]) -> Grouped:
        """Group effects by receiver; the order within a group counts."""
        numbers = {id(job): number for number, job in enumerate(self.jobs)}
        by_receiver: Grouped = defaultdict(list)
        for effect in effects:
            match effect:
                case Send(peer, message):
                    by_receiver["to", id(peer)].append(b"|".join(message))
                case Deliver(token, Request() as request):
                    by_receiver["job", numbers[id(token)]].append(list(request.frames))
                case Deliver(token, what):
                    by_receiver["call", token].append(what)
                case Fail(token, error):
                    by_receiver["call", token].append((type(error), str(error), error.attempts))
                case _ if hasattr(effect, "peer"):
                    by_receiver["about", id(effect.peer)].append(type(effect))
                case _ if id(getattr(effect, "token", None)) in numbers:
                    by_receiver["job", numbers[id(effect.token)]].append(type(effect))
                case _:
                    by_receiver[type(effect)].append(None)
        return by_receiver


class Shadows:
    """The two shadows of an engine."""

    def __init__(self, make: Make, args: Any, given: Any, number: int) -> None:
        self._rng = Random(number)
        self._jobs: list[Any] = []
        self._waiting: list[Input] = []
        self._size = 1
        self.batches = 0
        self._single, self._batched = (
            Shadow(make(*args, **self._own(given, number))) for _ in range(2)
        )

    @staticmethod
    def _own(given: dict[str, Any], number: int) -> dict[str, Any]:
        return given | {"rng": Random(number).random} if "rng" in given else given

    def feed(self, events: Sequence[Input], now: float) -> None:
        for event in events:
            if isinstance(event, _OF_HANDLERS):
                number = self._number_of(event.token)
                event = replace(event, token=number)
                if self._waiting and number >= len(self._batched.jobs):
                    self._compare(now)  # a request must be delivered before its handler can report
            self._waiting.append(event)
        if len(self._waiting) >= self._size:
            self._compare(now)

    def _number_of(self, job: Any) -> int:
        return next(n for n, each in enumerate(self._jobs) if each is job)

    def observe(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            for each in one_by_one(effect):
                if isinstance(each, Deliver) and isinstance(each.what, Request):
                    self._jobs.append(each.token)

    def _compare(self, now: float) -> None:
        events, self._waiting = self._waiting, []
        one, all_ = self._single, self._batched
        singly = [effect for event in events for effect in one.handle([event], now)]
        at_once = all_.handle(events, now)
        assert all_.group_by_receiver(at_once) == one.group_by_receiver(singly), events
        assert all_.engine.deadline() == one.engine.deadline()
        assert all_.engine.snapshot() == one.engine.snapshot()
        self.batches += len(events) > 1
        self._size = self._rng.randint(1, _LONGEST)


class ShadowedRun:
    """Adds two shadows to each engine of a run."""

    def __init__(self) -> None:
        self.shadows: list[Shadows] = []

    def __call__(self, make: Make) -> Make:
        def made(*args: Any, **given: Any) -> Any:
            engine = make(*args, **given)
            shadows = Shadows(make, args, given, len(self.shadows))
            self.shadows.append(shadows)
            handle = engine.handle

            def handle_with_shadows(events: Sequence[Input], now: float) -> list[Effect]:
                shadows.feed(events, now)
                effects = list(handle(events, now))
                shadows.observe(effects)
                return effects

            engine.handle = handle_with_shadows
            return engine

        return made

    def options(self) -> Options:
        parts, sp, pirate, amqp = MajordomoParts(), SpParts(), PirateParts(), AmqpParts()
        return Options(
            parts=(
                MajordomoParts(self(parts.broker), self(parts.client), self(parts.worker)),
                SpParts(self(sp.client), self(sp.worker), self(sp.device)),
                FlpParts(
                    {model: self(make) for model, make in FlpParts().clients.items()},
                    self(FreelanceServer),
                ),
                PirateParts(
                    self(pirate.client),
                    self(pirate.server),
                    self(pirate.queue),
                    self(pirate.worker),
                ),
                AmqpParts(self(amqp.caller), self(amqp.responder)),
            )
        )


@pytest.mark.parametrize("name", SCENARIOS)
def test_batches_have_the_effects_of_single_inputs(name: str) -> None:
    for seed in range(2):
        watch = ShadowedRun()
        run(seed, name, watch.options())
        assert sum(shadows.batches for shadows in watch.shadows) > 50
