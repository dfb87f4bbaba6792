"""The calls of a run: their times, and the behaviour of their handlers.

The first frame of a request names its call and its behaviour. Replies name their execution, and
return the payload, so that checkers can match them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final, NamedTuple

from requite.sim.knobs import Behaviour, Knobs

NOBODY: Final = "nobody"  # a service without workers
# The broker's own services; 8/MMI.
_MANAGEMENT: Final = ("mmi.service", "mmi.list", "mmi.stats", "mmi.workers", "mmi.nothing")
_BIG_SIZES: Final = (1_000, 9_000, 70_000)
_SERVICE_SPREAD: Final = 3.0  # service times are at most this many times the knob's


class CallPlan(NamedTuple):
    """A planned call: it starts at `at_s`, or when the call `follows` has ended.

    `timeout_s` and `cancel_after_s` may be None. `key` is its idempotency key; with "" the user
    chooses.
    """

    number: int
    at_s: float
    client: str
    service: str
    behaviour: Behaviour
    service_s: float
    parts: int
    payload: bytes
    timeout_s: float | None
    idempotent: bool
    wants_partials: bool
    cancel_after_s: float | None = None
    follows: int | None = None
    key: str = ""

    @property
    def frames(self) -> list[bytes]:
        """The body of the request."""
        task = f"call {self.number} {self.behaviour} {self.service_s:.6f} {self.parts}"
        return [task.encode(), self.payload]


class Task(NamedTuple):
    """The parsed instructions of a request."""

    number: int
    behaviour: Behaviour
    service_s: float
    parts: int


def parse_task(frames: Sequence[bytes]) -> Task | None:
    """Parse a request's body; None for an intruder's request."""
    if len(frames) != 2 or not frames[0].startswith(b"call "):
        return None
    _, number, behaviour, service_s, parts = frames[0].decode().split()
    return Task(int(number), Behaviour(behaviour), float(service_s), int(parts))


def final_frames(number: int, execution: int, payload: bytes) -> list[bytes]:
    """Return the body of a final reply."""
    return [b"final %d %d" % (number, execution), payload]


def partial_frames(number: int, execution: int, index: int) -> list[bytes]:
    """Return the body of a partial reply."""
    return [b"part %d %d %d" % (number, execution, index)]


def plan_calls(knobs: Knobs, rng: Random) -> Iterator[CallPlan]:
    """Draw the calls of the first phase, in no particular order."""
    at_s = 0.0
    last: dict[str, int] = {}  # call of each client
    for number in range(1, knobs.calls + 1):
        if number == 1 or rng.random() >= knobs.bursts_p:  # else together with the previous call
            at_s = 0.1 + rng.random() * (knobs.faulty_s - 0.1)
        client = rng.choice(knobs.clients)
        behaviour = rng.choices(knobs.behaviours, knobs.weights)[0]
        yield CallPlan(
            number=number,
            at_s=at_s,
            client=client.name,
            service=_draw_service(knobs, rng),
            behaviour=behaviour,
            service_s=knobs.service_s * rng.uniform(0.3, _SERVICE_SPREAD),
            parts=rng.randint(1, 5) if behaviour is Behaviour.STREAM else 0,
            payload=_draw_payload(knobs, rng, number),
            timeout_s=_draw_timeout(knobs, rng, behaviour, client.version),
            idempotent=rng.random() < knobs.idempotent_p,
            wants_partials=rng.random() < knobs.partials_p,
            cancel_after_s=rng.expovariate(4.0) if rng.random() < knobs.cancel_p else None,
            follows=last.get(client.name) if rng.random() < knobs.follow_p else None,
        )
        last[client.name] = number


def _draw_service(knobs: Knobs, rng: Random) -> str:
    lot = rng.random()
    if lot < knobs.nobody_p:
        return NOBODY
    return rng.choice(_MANAGEMENT if lot < knobs.nobody_p + knobs.manage_p else knobs.services)


def _draw_payload(knobs: Knobs, rng: Random, number: int) -> bytes:
    size = rng.choice(_BIG_SIZES) if rng.random() < knobs.big_p else rng.randint(0, 40)
    return (b"%d:" % number) * (size // 3)


def _draw_timeout(knobs: Knobs, rng: Random, behaviour: Behaviour, version: str) -> float | None:
    """Draw a timeout; only in dialects that report every failure may it be None."""
    may_be_endless = version == "0.3" and behaviour is not Behaviour.HANG
    if may_be_endless and rng.random() < knobs.endless_p:
        return None
    return knobs.timeout_s * rng.uniform(0.2, 1.5)
