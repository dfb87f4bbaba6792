"""Scenarios of Majordomo; draws the knobs of a run from its seed.

A scenario restricts the faults, and fixes some knobs; all other knobs are drawn. `swarm` restricts
nothing, and draws a random subset of the faults for each seed: most bugs need a few kinds together,
and some only show when another kind is absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Final

from requite.protocols.majordomo.policy import PartialsFor01
from requite.sim.kernel.drawing import WORK, Choice, Choices, Draw, between, chance, one_of, weight
from requite.sim.kernel.faults import FaultKind, faults_of
from requite.sim.kernel.knobs import ANSWERING, Behaviour, Scenario
from requite.sim.majordomo.knobs import ClientSpec, Knobs, WorkerSpec

_SERVICES: Final = ("alpha", "beta", "gamma")
ALL_FAULTS: Final = faults_of("broker", "worker", "client", more=(FaultKind.INTRUDER,))
_VERSIONS: Final = ("0.3", "0.3", "0.3", "0.2", "0.1")


@dataclass(frozen=True, slots=True)
class MajordomoScenario(Scenario):
    """A scenario. `versions`: the dialects of peers; one listed twice is twice as likely. `limits`:
    whether the limits of the broker's memory are drawn."""

    behaviours: tuple[Behaviour, ...] = tuple(Behaviour)
    versions: tuple[str, ...] = _VERSIONS
    limits: bool = False


_QUIET_NETWORK: Final = {"network.jitter_s": 0.0, "network.spike_p": 0.0}

_LIST: Final = (
    MajordomoScenario(
        "calm",
        "no faults",
        behaviours=(Behaviour.ECHO, Behaviour.STREAM),
        fixed={"services_max": 1000, "queue_max": 1000, "client_pending_max": 1000},
    ),
    MajordomoScenario(
        "crash-broker",
        "the broker crashes and comes back without its state",
        (FaultKind.CRASH_BROKER,),
    ),
    MajordomoScenario(
        "crash-workers",
        "workers crash while they handle requests, and come back",
        (FaultKind.CRASH_WORKER, FaultKind.POWER_LOSS),
    ),
    MajordomoScenario(
        "crash-clients",
        "clients crash with calls in flight",
        (FaultKind.CRASH_CLIENT, FaultKind.POWER_LOSS),
    ),
    MajordomoScenario(
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
    MajordomoScenario(
        "freezes",
        "processes freeze for up to 30 heartbeats",
        (FaultKind.FREEZE_BROKER, FaultKind.FREEZE_WORKER, FaultKind.FREEZE_CLIENT),
        fixed={"outage_max": 30.0},
    ),
    MajordomoScenario(
        "garbage",
        "intruders send garbage",
        (FaultKind.INTRUDER,),
        fixed={"faults_per_s": 1.0},
    ),
    MajordomoScenario(
        "overload",
        "more requests than the workers can answer in time",
        versions=("0.3",),
        behaviours=(Behaviour.ECHO,),
        fixed={"calls": 300, "service_s": 0.3, "timeout_s": 3.0, "queue_max": 30, "bursts_p": 0.9},
    ),
    MajordomoScenario(
        "limits",
        "clients, workers and intruders exceed the limits of the broker's memory",
        (FaultKind.INTRUDER, FaultKind.CRASH_BROKER, FaultKind.CRASH_WORKER),
        versions=("0.3",),
        behaviours=(Behaviour.ECHO, Behaviour.HANG),
        limits=True,
        fixed={
            "calls": 300,
            "service_s": 0.1,
            "timeout_s": 2.0,
            "bursts_p": 0.8,
            "nobody_p": 0.1,
            "workers.capacity": 8,
            "workers.lease_s": 0.0,
        },
    ),
    MajordomoScenario(
        "standstill",
        "overload, while the broker and clients sometimes freeze or crash",
        (FaultKind.FREEZE_BROKER, FaultKind.FREEZE_CLIENT, FaultKind.CRASH_BROKER),
        behaviours=(Behaviour.ECHO,),
        fixed={"calls": 300, "service_s": 0.3, "timeout_s": 3.0, "outage_max": 30.0},
    ),
    MajordomoScenario(
        "old-dialects",
        "only peers of MDP 0.1 and 0.2",
        (FaultKind.CRASH_BROKER, FaultKind.CRASH_WORKER, FaultKind.RESET),
        versions=("0.1", "0.2"),
    ),
    MajordomoScenario(
        "streams",
        "mostly partial replies, over bad connections",
        (FaultKind.RESET, FaultKind.CLOG, FaultKind.CRASH_WORKER),
        behaviours=(Behaviour.STREAM,),
        fixed={"partials_p": 0.8, "big_p": 0.1},
    ),
    MajordomoScenario(
        "drain",
        "broker, workers and clients drain and come back",
        (FaultKind.DRAIN_BROKER, FaultKind.DRAIN_WORKER, FaultKind.DRAIN_CLIENT),
    ),
    MajordomoScenario(
        "fair",
        "equal workers under light load: each gets the same number of requests",
        (FaultKind.DRAIN_WORKER,),
        versions=("0.3",),
        behaviours=(Behaviour.ECHO,),
        fixed=_QUIET_NETWORK
        | {"services": ("alpha",), "workers.capacity": 1, "workers.lease_s": 0.0}
        | {"workers.interval_s": 1.0, "workers.identity": False}
        | {"cancel_p": 0.0, "nobody_p": 0.0, "bursts_p": 0.0, "big_p": 0.0},
    ),
    MajordomoScenario("swarm", "a random subset of all faults", ALL_FAULTS, swarm=True),
)
MDP_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


# --- drawing --------------------------------------------------------------------------------------
_KNOBS: Final[Choices] = {
    **WORK,
    "calls": between(80, 200),
    "endless_p": one_of(0.0, 0.1),
    "partials_p": one_of(0.2, 0.5),
    "nobody_p": one_of(0.0, 0.03),
    "manage_p": one_of(0.0, 0.02),
    "interval_s": one_of(0.1, 0.25, 0.5, 1.0),
    "liveness": one_of(3, 3, 4, 5),
    "attempts_max": one_of(1, 2, 3, 3),
    "service_grace_s": one_of(0.5, 3.0, 10.0),
    "service_ttl_s": one_of(0.5, 2.0, 8.0),
    "services_max": one_of(4, 1000, 1000, 1000),
    "queue_max": one_of(5, 1000, 1000, 1000),
    "client_pending_max": one_of(4, 1000, 1000, 1000),
    "tell_old_clients": chance(0.5),
    "partials_for_0_1": one_of(*PartialsFor01),
    "drain_timeout_s": one_of(0.2, 5.0),
    "handover": chance(0.7),
    "output_size_max": one_of(100_000, 1 << 20, 64 << 20),
    "burst": one_of(1, 8, 512),
    "outage_max": one_of(2.0, 10.0, 30.0),
}
_LIMITS: Final[Choices] = {
    "client_pending_bytes_max": one_of(4 << 10, 32 << 10, 256 << 20),
    "pending_bytes_max": one_of(16 << 10, 64 << 10, 1 << 30),
    "client_services_max": one_of(1, 2, 1000),
    "worker_capacity_max": one_of(1, 2, 1024),
    "worker_expired_max": one_of(1, 3, 32),
    "partial_size_max": one_of(30_000, 30_000, 1 << 30),
}
_CLIENT: Final[Choices] = {
    "slots": one_of(4, 64, 64, 64),
    "tries": one_of(1, 3, 3, 6),
    "attempt_timeout_s": one_of(None, None, 0.5, 2.0),
    "identity": chance(0.3),
}
_WORKER: Final[Choices] = {
    "capacity": one_of(1, 2, 8),
    "lease_s": one_of(0.0, 0.5, 2.0),
    "interval_s": one_of(0.5, 1.0, 2.0),  # times that of the broker
    "identity": chance(0.3),
}


def draw(seed: int, scenario: MajordomoScenario) -> Knobs:
    """Draw the knobs of a run. The same seed and scenario always give the same knobs."""
    luck = Draw(seed, "mdp", scenario)
    drawn = luck.knobs({**_KNOBS, **_LIMITS} if scenario.limits else _KNOBS)
    interval_s: float = drawn["interval_s"]
    services = luck.one("services", lambda rng: _SERVICES[: rng.randint(1, len(_SERVICES))])
    drawn |= {
        "faulty_s": luck.one("faulty_s", between(10.0, 40.0)) * interval_s + 4,
        **luck.calls(_weight, interval_s),
        "faults_per_s": luck.one(
            "faults_per_s", lambda rng: rng.uniform(0.05, 0.4) / interval_s**0.5
        ),
        "services": services,
        "clients": tuple(_draw_clients(luck, scenario)),
        "workers": tuple(_draw_workers(luck, scenario, services, interval_s)),
    }
    return Knobs(**drawn)


def _weight(behaviour: Behaviour) -> Choice:
    return weight(behaviour) if behaviour in ANSWERING else one_of(0, 1, 4)


def _draw_clients(luck: Draw, scenario: MajordomoScenario) -> Iterator[ClientSpec]:
    versions = {"version": one_of(*scenario.versions)}
    for name, drawn in luck.specs("client", between(1, 5), versions | dict(_CLIENT)).items():
        # Clients of the older dialects have several connections, which cannot share an identity.
        drawn["identity"] &= drawn["version"] == "0.3"
        yield ClientSpec(name, **drawn)


def _draw_workers(
    luck: Draw, scenario: MajordomoScenario, services: Sequence[str], interval_s: float
) -> Iterator[WorkerSpec]:
    count = between(len(services), len(services) + 4)
    versions = {"version": one_of(*scenario.versions)}
    workers = luck.specs("worker", count, versions | dict(_WORKER))
    for (name, drawn), service in zip(workers.items(), cycle(services), strict=False):
        # Dialects that announce no interval need the same configuration at both ends.
        is_old = drawn["version"] != "0.3"
        drawn["interval_s"] = interval_s * (1.0 if is_old else drawn["interval_s"])
        yield WorkerSpec(name, service, **drawn | ({"capacity": 1} if is_old else {}))
