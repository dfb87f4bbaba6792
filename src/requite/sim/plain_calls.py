"""The calls of runs without service names, and with whole replies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final, TypeAlias

from requite.sim.knobs import Behaviour
from requite.sim.workload import CallPlan

# Without a deadline, a call ends only if some handler answers in the end.
ANSWERING: Final = (Behaviour.ECHO, Behaviour.STREAM)
_BIG_SIZES: Final = (1_000, 9_000, 70_000)
_SERVICE_SPREAD: Final = 3.0  # service times are at most this many times the knob's

MayBeEndless: TypeAlias = Callable[[Any, Behaviour, bool], bool]
"""Whether a call may have no deadline: by its client, its behaviour, and whether it is
idempotent."""


def plan_plain_calls(knobs: Any, rng: Random, may_be_endless: MayBeEndless) -> Iterator[CallPlan]:
    """Draw the calls of the first phase, in no particular order."""
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
