"""Scenarios of the Pirate patterns; draws the knobs of a run from its seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from requite.sim.drawing import (
    ANSWERING,
    BEHAVIOURS,
    draw_fault_knobs,
    draw_network,
    draw_pace,
    draw_work,
    fixed_of,
)
from requite.sim.faults import FaultKind, faults_of
from requite.sim.knobs import Behaviour
from requite.sim.pirate.knobs import (
    PirateClientSpec,
    PirateKnobs,
    PirateVariant,
    PirateWorkerSpec,
)

_PATIENCE: Final = 40  # one-way network delays


@dataclass(frozen=True, slots=True)
class PirateScenario:
    """A scenario. A run draws one of `variants`.

    `faults`: a run has all, with `swarm` a random subset.
    `fixed`: knobs with fixed values, by name: `network.NAME` of the network, `clients.NAME` of each
    client.
    """

    name: str
    about: str
    variants: tuple[PirateVariant, ...] = tuple(PirateVariant)
    faults: tuple[FaultKind, ...] = ()
    swarm: bool = False
    behaviours: tuple[Behaviour, ...] = BEHAVIOURS
    fixed: Mapping[str, Any] = field(default_factory=dict)


_ALL: Final = faults_of("client", "middle", "worker", more=(FaultKind.INTRUDER,))
_LIST: Final = (
    PirateScenario(
        "pirate-calm",
        "requests and replies without faults: each call takes one attempt",
        behaviours=ANSWERING,
        fixed={
            "lossless": True,
            "network.jitter_s": 0.0,
            "network.spike_p": 0.0,
            "big_p": 0.0,
            "cancel_p": 0.0,
            "timeout_s": 60.0,
            "service_s": 0.005,
            "output_size_max": 64 << 20,
            "clients.slots": 1024,
            "clients.attempt_timeout_s": 30.0,
        },
    ),
    PirateScenario(
        "pirate-lazy",
        "clients retry; servers crash, freeze and come back",
        (PirateVariant.LAZY,),
        (FaultKind.CRASH_MIDDLE, FaultKind.FREEZE_MIDDLE, FaultKind.POWER_LOSS),
    ),
    PirateScenario(
        "pirate-simple",
        "a queue and REQ workers, which crash and come back",
        (PirateVariant.SIMPLE,),
        (FaultKind.CRASH_MIDDLE, FaultKind.CRASH_WORKER, FaultKind.POWER_LOSS),
    ),
    PirateScenario(
        "pirate-paranoid",
        "a queue and workers with heartbeats, which crash, freeze, and are cut off",
        (PirateVariant.PARANOID,),
        (
            FaultKind.CRASH_MIDDLE,
            FaultKind.CRASH_WORKER,
            FaultKind.POWER_LOSS,
            FaultKind.FREEZE_MIDDLE,
            FaultKind.FREEZE_WORKER,
            FaultKind.PARTITION,
            FaultKind.BLACK_HOLE,
        ),
    ),
    PirateScenario(
        "pirate-silence",
        "few requests, and workers freeze: only heartbeats show which peers are alive",
        (PirateVariant.PARANOID,),
        (FaultKind.FREEZE_WORKER, FaultKind.FREEZE_MIDDLE, FaultKind.BLACK_HOLE),
        fixed={"calls": 12, "faults_per_s": 0.5, "outage_max": 10.0},
    ),
    PirateScenario(
        "pirate-partitions",
        "the network is cut or congested; connections are reset or silently dropped",
        faults=(
            FaultKind.PARTITION,
            FaultKind.PARTITION_ONE_WAY,
            FaultKind.CLOG,
            FaultKind.RESET,
            FaultKind.BLACK_HOLE,
        ),
    ),
    PirateScenario(
        "pirate-overload",
        "more requests than can be answered in time: abandoned ones never start",
        faults=(FaultKind.RESET, FaultKind.CRASH_CLIENT, FaultKind.CLOG),
        behaviours=(Behaviour.ECHO,),
        fixed={
            "calls": 250,
            "service_s": 0.2,
            "timeout_s": 3.0,
            "bursts_p": 0.9,
            "capacity": 1,
            "network.buffer_size": 2 << 10,
        },
    ),
    PirateScenario(
        "pirate-garbage",
        "strangers send garbage, as clients, workers and servers' clients",
        faults=(FaultKind.INTRUDER,),
        fixed={"faults_per_s": 1.0},
    ),
    PirateScenario(
        "pirate-drain",
        "clients, workers, servers and queues drain and come back",
        faults=(FaultKind.DRAIN_CLIENT, FaultKind.DRAIN_MIDDLE, FaultKind.DRAIN_WORKER),
    ),
    PirateScenario("pirate-swarm", "a random subset of all faults", faults=_ALL, swarm=True),
)
PIRATE_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


def draw(seed: int, scenario: PirateScenario) -> PirateKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same knobs."""
    rng = Random(f"{seed}/pirate-knobs")
    drawn = _draw_all(rng, scenario)
    drawn |= fixed_of(scenario.fixed)
    drawn["network"] = draw_network(rng, fixed_of(scenario.fixed, "network"))
    clients = fixed_of(scenario.fixed, "clients")
    # A client that times out before a reply can arrive never gets one.
    patience_s = _PATIENCE * (drawn["network"].latency_s + drawn["network"].jitter_s)
    drawn["clients"] = tuple(
        _draw_client(rng, i, patience_s, clients) for i in range(rng.randint(1, 4))
    )
    workers = 0 if drawn["crew"] is PirateVariant.LAZY else rng.randint(1, 4)
    drawn["workers"] = tuple(PirateWorkerSpec(f"worker-{i + 1}") for i in range(workers))
    return PirateKnobs(**drawn)


def _draw_all(rng: Random, scenario: PirateScenario) -> dict[str, Any]:
    return {
        "calls": rng.randint(40, 120),
        "faulty_s": rng.uniform(4, 15),
        "crew": rng.choice(scenario.variants),
        "servers": rng.randint(1, 2),
        "capacity": rng.choice((1, 2, 16)),
        "queue_max": rng.choice((1, 4, 64)),
        **draw_work(rng, scenario.behaviours, may_be_endless=False),
        "interval_s": rng.choice((0.2, 0.5, 1.0)),
        "liveness": rng.choice((3, 4, 5)),
        "pause_first_s": rng.choice((0.1, 0.5, 1.0)),
        "pause_max_s": rng.choice((1.0, 4.0)),
        "drain_timeout_s": rng.choice((0.5, 3.0)),
        "pace": draw_pace(rng),
        "output_size_max": rng.choice((1 << 20, 64 << 20)),
        "lossless": False,
        **draw_fault_knobs(rng, scenario.faults, scenario.swarm),
    }


def _draw_client(
    rng: Random, number: int, patience_s: float, fixed: dict[str, Any]
) -> PirateClientSpec:
    drawn: dict[str, Any] = {
        "tries": rng.choice((1, 2, 3, 3, 5)),
        "attempt_timeout_s": max(rng.choice((0.3, 1.0, 2.5)), patience_s),
        "connections": rng.choice((1, 3, 8)),
        "slots": rng.choice((4, 64, 64)),
    }
    return PirateClientSpec(f"client-{number + 1}", **drawn | fixed)
