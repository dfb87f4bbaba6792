"""Draw the knobs that the protocols share from a seed.

The order of the draws matters: another order would change the runs of all seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final, TypeVar

from requite.sim.knobs import Behaviour
from requite.sim.medium import Chunking, Shape
from requite.sim.process import Pace

Fault = TypeVar("Fault")

ANSWERING: Final = (Behaviour.ECHO, Behaviour.STREAM)
BEHAVIOURS: Final = (*ANSWERING, Behaviour.FAIL, Behaviour.HANG, Behaviour.POISON)
"""The behaviours of handlers in protocols without leases."""


# --- knobs that a scenario fixes ------------------------------------------------------------------
def fixed_of(fixed: Mapping[str, Any], thing: str = "") -> dict[str, Any]:
    """Return the fixed knobs of one kind of thing: those named `thing.NAME`, by NAME.

    Without `thing`: the fixed knobs of the run.
    """
    if not thing:
        return {name: value for name, value in fixed.items() if "." not in name}
    prefix = f"{thing}."
    return {name.removeprefix(prefix): v for name, v in fixed.items() if name.startswith(prefix)}


# --- knobs that are drawn -------------------------------------------------------------------------
def draw_work(
    rng: Random, behaviours: Sequence[Behaviour], may_be_endless: bool = True
) -> dict[str, Any]:
    """Draw the knobs of the calls: behaviours, rates, and durations."""
    work: dict[str, Any] = {
        "behaviours": behaviours,
        "weights": tuple(_weight(rng, behaviour) for behaviour in behaviours),
        "service_s": rng.choice((0.0, 0.005, 0.05, 0.2)),
        "timeout_s": rng.choice((0.5, 2.0, 5.0, 10.0)),
    }
    if may_be_endless:
        work["endless_p"] = rng.choice((0.0, 0.2))
    return work | {
        "idempotent_p": rng.choice((0.5, 0.9, 1.0)),
        "cancel_p": rng.choice((0.0, 0.05, 0.2)),
        "big_p": rng.choice((0.0, 0.02, 0.1)),
        "bursts_p": rng.choice((0.0, 0.3, 0.6)),
        "follow_p": rng.choice((0.0, 0.2)),
    }


def _weight(rng: Random, behaviour: Behaviour) -> int:
    match behaviour:
        case Behaviour.ECHO:
            return rng.choice((10, 30))
        case Behaviour.STREAM:
            return rng.choice((1, 8))
    return rng.choice((0, 0, 1, 2))


def draw_pace(rng: Random) -> Pace:
    """Draw the lateness of processes."""
    return Pace(rng.choice((0.0, 0.001, 0.02)), rng.choice((0.0, 0.0005, 0.005)))


def draw_fault_knobs(rng: Random, faults: tuple[Fault, ...], swarm: bool) -> dict[str, Any]:
    """Draw the faults, their rate, and their duration."""
    return {
        "faults": draw_faults(rng, faults, swarm),
        "faults_per_s": rng.uniform(0.05, 0.4),
        "outage_max": rng.choice((2.0, 5.0, 10.0)),
    }


def draw_faults(rng: Random, faults: tuple[Fault, ...], swarm: bool) -> tuple[Fault, ...]:
    """Return all faults, or with `swarm` a random subset."""
    if not swarm:
        return faults
    share = rng.choice((0.15, 0.4, 0.7))
    return tuple(kind for kind in faults if rng.random() < share)


def draw_network(rng: Random, fixed: Mapping[str, Any], spike_unit_s: float = 1.0) -> Shape:
    """Draw the knobs of the network that are not fixed."""
    latency_s = rng.choice((0.0001, 0.001, 0.01))
    drawn: dict[str, Any] = {
        "latency_s": latency_s,
        "jitter_s": rng.choice((0.0, 1.0, 5.0)) * latency_s,
        "spike_p": rng.choice((0.0, 0.01)),
        "spike_s": rng.choice((0.1, 1.0)) * spike_unit_s,
        "chunking": rng.choice(tuple(Chunking)),
        "retransmit_s": rng.choice((2.0, 6.0)),
        "keepalive_s": rng.choice((3.0, 6.0)),
        "connect_timeout_s": rng.choice((0.5, 2.0)),
        "buffer_size": rng.choice((2 << 10, 16 << 10, 256 << 10)),
    }
    return Shape(**drawn | dict(fixed))
