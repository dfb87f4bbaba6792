"""The calls of a Pirate run, and when they start."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from requite.sim.knobs import Behaviour
from requite.sim.pirate.knobs import PirateKnobs
from requite.sim.plain_calls import draw_payload, plain_call
from requite.sim.workload import CallPlan

SERVICE: Final = "work"  # its name for handlers; the wire protocol has no service names
_SERVICE_SPREAD: Final = 3.0  # service times are at most this many times the knob's


def plan_calls(knobs: PirateKnobs, rng: Random) -> Iterator[CallPlan]:
    """Draw the calls of the first phase, in no particular order."""
    at_s = 0.0
    last: dict[str, int] = {}  # call of each client
    for number in range(1, knobs.calls + 1):
        if number == 1 or rng.random() >= knobs.bursts_p:  # else together with the previous call
            at_s = 0.1 + rng.random() * (knobs.faulty_s - 0.1)
        client = rng.choice(knobs.clients).name
        behaviour = rng.choices(knobs.behaviours, knobs.weights)[0]
        plan = plan_call(knobs, client, number, knobs.timeout_s * rng.uniform(0.2, 1.5), at_s)
        yield plan._replace(
            behaviour=behaviour,
            service_s=knobs.service_s * rng.uniform(0.3, _SERVICE_SPREAD),
            parts=rng.randint(1, 5) if behaviour is Behaviour.STREAM else 0,
            payload=draw_payload(rng, number, knobs.big_p),
            idempotent=rng.random() < knobs.idempotent_p,
            cancel_after_s=rng.expovariate(4.0) if rng.random() < knobs.cancel_p else None,
            follows=last.get(client) if rng.random() < knobs.follow_p else None,
        )
        last[client] = number


def plan_call(
    knobs: PirateKnobs, client: str, number: int, timeout_s: float, at_s: float
) -> CallPlan:
    """Return a plain call."""
    service_s = min(0.001, knobs.service_s)
    plan = plain_call(client, number, timeout_s, service_s=service_s, at_s=at_s)
    return plan._replace(service=SERVICE)
