"""The calls of a run: their times, and the behaviour of their handlers.

The first frame of a request names its call and its behaviour. Replies name their execution, and
return the payload, so that checkers can match them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

from requite.sim.kernel.knobs import Behaviour

NOBODY: Final = "nobody"  # a service without workers
_BIG_SIZES: Final = (1_000, 9_000, 70_000)
_SERVICE_SPREAD: Final = 3.0  # service times are at most this many times the knob's

MayBeEndless: TypeAlias = Callable[[Any, Behaviour, bool], bool]
"""Whether a call may have no deadline: by its client, its behaviour, and whether it is
idempotent."""


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


# --- the calls of a run ---------------------------------------------------------------------------
def draw_calls(knobs: Any, rng: Random, may_be_endless: MayBeEndless) -> Iterator[CallPlan]:
    """Draw the calls of the first phase, in no particular order, without service names."""
    at_s = 0.0
    last: dict[str, int] = {}  # call of each client
    for number in range(1, knobs.calls + 1):
        if number == 1 or rng.random() >= knobs.bursts_p:  # else together with the previous call
            at_s = 0.1 + rng.random() * (knobs.faulty_s - 0.1)
        client = rng.choice(knobs.clients)
        behaviour = rng.choices(knobs.behaviours, knobs.weights)[0]
        idempotent = rng.random() < knobs.idempotent_p
        yield CallPlan(
            number=number,
            at_s=at_s,
            client=client.name,
            service="",
            behaviour=behaviour,
            service_s=knobs.service_s * rng.uniform(0.3, _SERVICE_SPREAD),
            parts=rng.randint(1, 5) if behaviour is Behaviour.STREAM else 0,
            payload=draw_payload(rng, number, knobs.big_p),
            timeout_s=_draw_timeout(knobs, rng, may_be_endless(client, behaviour, idempotent)),
            idempotent=idempotent,
            wants_partials=False,
            cancel_after_s=rng.expovariate(4.0) if rng.random() < knobs.cancel_p else None,
            follows=last.get(client.name) if rng.random() < knobs.follow_p else None,
        )
        last[client.name] = number


def plain_call(
    client: str, number: int, timeout_s: float, *, service_s: float = 0.0, at_s: float = 0.0
) -> CallPlan:
    """Return a call with default settings."""
    return CallPlan(
        number=number,
        at_s=at_s,
        client=client,
        service="",
        behaviour=Behaviour.ECHO,
        service_s=service_s,
        parts=0,
        payload=b"probe %d" % number,
        timeout_s=timeout_s,
        idempotent=True,
        wants_partials=False,
        cancel_after_s=None,
    )


def draw_payload(rng: Random, number: int, big_p: float) -> bytes:
    """Draw the payload of a call, sometimes a large one."""
    size = rng.choice(_BIG_SIZES) if rng.random() < big_p else rng.randint(0, 40)
    return (b"%d:" % number) * (size // 3)


def _draw_timeout(knobs: Any, rng: Random, may_be_endless: bool) -> float | None:
    if may_be_endless and rng.random() < knobs.endless_p:
        return None
    timeout_s: float = knobs.timeout_s * rng.uniform(0.2, 1.5)
    return timeout_s
