"""Scenarios of Majordomo; draws the knobs of a run from its seed.

A scenario restricts the faults, and fixes some knobs; all other knobs are drawn. `swarm` restricts
nothing, and draws a random subset of the faults for each seed: most bugs need a few kinds together,
and some only show when another kind is absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from requite.protocols.majordomo.policy import PartialsFor01
from requite.sim.drawing import draw_faults, draw_network, draw_pace, fixed_of
from requite.sim.faults import FaultKind, faults_of
from requite.sim.knobs import Behaviour, ClientSpec, Knobs, WorkerSpec

_SERVICES: Final = ("alpha", "beta", "gamma")
ALL_FAULTS: Final = faults_of("broker", "worker", "client", more=(FaultKind.INTRUDER,))
_VERSIONS: Final = ("0.3", "0.3", "0.3", "0.2", "0.1")
_BEHAVIOURS: Final = tuple(Behaviour)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario. `faults`: a run has all of these, with `swarm` a random subset.

    `versions`: the dialects of peers; one listed twice is twice as likely. `fixed`: knobs with
    fixed values, by name: `network.NAME` of the network.
    """

    name: str
    about: str
    faults: tuple[FaultKind, ...] = ()
    swarm: bool = False
    versions: tuple[str, ...] = _VERSIONS
    behaviours: tuple[Behaviour, ...] = _BEHAVIOURS
    fixed: Mapping[str, Any] = field(default_factory=dict)


_QUIET_NETWORK: Final = {"network.jitter_s": 0.0, "network.spike_p": 0.0}

_LIST: Final = (
    Scenario(
        "calm",
        "no faults",
        behaviours=(Behaviour.ECHO, Behaviour.STREAM),
        fixed={"services_max": 1000, "queue_max": 1000, "client_pending_max": 1000},
    ),
    Scenario(
        "crash-broker",
        "the broker crashes and comes back without its state",
        (FaultKind.CRASH_BROKER,),
    ),
    Scenario(
        "crash-workers",
        "workers crash while they handle requests, and come back",
        (FaultKind.CRASH_WORKER, FaultKind.POWER_LOSS),
    ),
    Scenario(
        "crash-clients",
        "clients crash with calls in flight",
        (FaultKind.CRASH_CLIENT, FaultKind.POWER_LOSS),
    ),
    Scenario(
        "partitions",
        "the network is cut or congested; connections are reset or silently dropped",
        (
            FaultKind.PARTITION,
            FaultKind.PARTITION_ONE_WAY,
            FaultKind.CLOG,
            FaultKind.RESET,
            FaultKind.BLACK_HOLE,
        ),
    ),
    Scenario(
        "freezes",
        "processes freeze for up to 30 heartbeats",
        (FaultKind.FREEZE_BROKER, FaultKind.FREEZE_WORKER, FaultKind.FREEZE_CLIENT),
        fixed={"outage_max": 30.0},
    ),
    Scenario(
        "garbage",
        "intruders send garbage",
        (FaultKind.INTRUDER,),
        fixed={"faults_per_s": 1.0},
    ),
    Scenario(
        "overload",
        "more requests than the workers can answer in time",
        versions=("0.3",),
        behaviours=(Behaviour.ECHO,),
        fixed={"calls": 300, "service_s": 0.3, "timeout_s": 3.0, "queue_max": 30, "bursts_p": 0.9},
    ),
    Scenario(
        "standstill",
        "overload, while the broker and clients sometimes freeze or crash",
        (FaultKind.FREEZE_BROKER, FaultKind.FREEZE_CLIENT, FaultKind.CRASH_BROKER),
        behaviours=(Behaviour.ECHO,),
        fixed={"calls": 300, "service_s": 0.3, "timeout_s": 3.0, "outage_max": 30.0},
    ),
    Scenario(
        "old-dialects",
        "only peers of MDP 0.1 and 0.2",
        (FaultKind.CRASH_BROKER, FaultKind.CRASH_WORKER, FaultKind.RESET),
        versions=("0.1", "0.2"),
    ),
    Scenario(
        "streams",
        "mostly partial replies, over bad connections",
        (FaultKind.RESET, FaultKind.CLOG, FaultKind.CRASH_WORKER),
        behaviours=(Behaviour.STREAM,),
        fixed={"partials_p": 0.8, "big_p": 0.1},
    ),
    Scenario(
        "drain",
        "broker, workers and clients drain and come back",
        (FaultKind.DRAIN_BROKER, FaultKind.DRAIN_WORKER, FaultKind.DRAIN_CLIENT),
    ),
    Scenario(
        "fair",
        "equal workers under light load: each gets the same number of requests",
        (FaultKind.DRAIN_WORKER,),
        versions=("0.3",),
        behaviours=(Behaviour.ECHO,),
        fixed=_QUIET_NETWORK
        | {"services": ("alpha",)}
        | {"cancel_p": 0.0, "nobody_p": 0.0, "bursts_p": 0.0, "big_p": 0.0},
    ),
    Scenario("swarm", "a random subset of all faults", ALL_FAULTS, swarm=True),
)
MDP_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


def draw(seed: int, scenario: Scenario) -> Knobs:
    """Draw the knobs of a run. The same seed and scenario always give the same knobs."""
    rng = Random(f"{seed}/knobs")
    drawn = _draw_all(rng, scenario)
    drawn |= fixed_of(scenario.fixed)
    drawn["network"] = draw_network(rng, fixed_of(scenario.fixed, "network"), drawn["interval_s"])
    return Knobs(**drawn)


def _draw_all(rng: Random, scenario: Scenario) -> dict[str, Any]:
    services = _SERVICES[: rng.randint(1, len(_SERVICES))]
    interval_s = rng.choice((0.1, 0.25, 0.5, 1.0))
    return {
        "calls": rng.randint(80, 200),
        "faulty_s": rng.uniform(10, 40) * interval_s + 4,
        "services": services,
        "clients": _draw_clients(rng, scenario),
        "workers": _draw_workers(rng, scenario, services, interval_s),
        "behaviours": scenario.behaviours,
        "weights": tuple(_weight(rng, behaviour) for behaviour in scenario.behaviours),
        "service_s": rng.choice((0.0, 0.005, 0.05, 0.2)),
        "timeout_s": rng.choice((0.5, 2.0, 5.0, 10.0)),
        "endless_p": rng.choice((0.0, 0.1)),
        "idempotent_p": rng.choice((0.5, 0.9, 1.0)),
        "partials_p": rng.choice((0.2, 0.5)),
        "cancel_p": rng.choice((0.0, 0.05, 0.2)),
        "nobody_p": rng.choice((0.0, 0.03)),
        "big_p": rng.choice((0.0, 0.02, 0.1)),
        "manage_p": rng.choice((0.0, 0.02)),
        "follow_p": rng.choice((0.0, 0.2)),
        "bursts_p": rng.choice((0.0, 0.3, 0.6)),
        "interval_s": interval_s,
        "liveness": rng.choice((3, 3, 4, 5)),
        "attempts_max": rng.choice((1, 2, 3, 3)),
        "service_grace_s": rng.choice((0.5, 3.0, 10.0)),
        "service_ttl_s": rng.choice((0.5, 2.0, 8.0)),
        "services_max": rng.choice((4, 1000, 1000, 1000)),
        "queue_max": rng.choice((5, 1000, 1000, 1000)),
        "client_pending_max": rng.choice((4, 1000, 1000, 1000)),
        "tell_old_clients": rng.random() < 0.5,
        "partials_for_0_1": rng.choice(tuple(PartialsFor01)),
        "drain_timeout_s": rng.choice((0.2, 5.0)),
        "handover": rng.random() < 0.7,
        "pace": draw_pace(rng),
        "output_size_max": rng.choice((100_000, 1 << 20, 64 << 20)),
        "faults": draw_faults(rng, scenario.faults, scenario.swarm),
        "faults_per_s": rng.uniform(0.05, 0.4) / interval_s**0.5,
        "outage_max": rng.choice((2.0, 10.0, 30.0)),
    }


def _weight(rng: Random, behaviour: Behaviour) -> int:
    if behaviour is Behaviour.ECHO:
        return rng.choice((10, 30))
    return rng.choice((0, 1, 4)) if behaviour is not Behaviour.STREAM else rng.choice((1, 8))


def _draw_clients(rng: Random, scenario: Scenario) -> tuple[ClientSpec, ...]:
    count = rng.randint(1, 5)
    return tuple(_draw_client(rng, f"client-{i + 1}", scenario) for i in range(count))


def _draw_client(rng: Random, name: str, scenario: Scenario) -> ClientSpec:
    version = rng.choice(scenario.versions)
    return ClientSpec(
        name=name,
        version=version,
        slots=rng.choice((4, 64, 64, 64)),
        tries=rng.choice((1, 3, 3, 6)),
        attempt_timeout_s=rng.choice((None, None, 0.5, 2.0)),
        # Clients of the older dialects have several connections, which cannot share an identity.
        identity=version == "0.3" and rng.random() < 0.3,
    )


def _draw_workers(
    rng: Random, scenario: Scenario, services: tuple[str, ...], interval_s: float
) -> tuple[WorkerSpec, ...]:
    count = rng.randint(len(services), len(services) + 4)
    equal = scenario.name == "fair"
    return tuple(
        _draw_worker(rng, f"worker-{i + 1}", services[i % len(services)], scenario, interval_s)
        if not equal
        else WorkerSpec(f"worker-{i + 1}", services[0], "0.3", 1, 0.0, interval_s, False)
        for i in range(count)
    )


def _draw_worker(
    rng: Random, name: str, service: str, scenario: Scenario, interval_s: float
) -> WorkerSpec:
    version = rng.choice(scenario.versions)
    return WorkerSpec(
        name=name,
        service=service,
        version=version,
        capacity=rng.choice((1, 2, 8)) if version == "0.3" else 1,
        lease_s=rng.choice((0.0, 0.5, 2.0)),
        # Dialects that announce no interval need the same configuration at both ends.
        interval_s=interval_s * (rng.choice((0.5, 1.0, 2.0)) if version == "0.3" else 1.0),
        identity=rng.random() < 0.3,
    )
