"""Scenarios of the Freelance pattern; draws the knobs of a run from its seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from requite.protocols.freelance.wire import Model
from requite.sim.drawing import (
    ANSWERING,
    BEHAVIOURS,
    draw_fault_knobs,
    draw_network,
    draw_pace,
    draw_work,
    fixed_of,
)
from requite.sim.faults import LINKS, FaultKind, faults_of
from requite.sim.freelance.knobs import FlpClientSpec, FlpServerSpec, FreelanceKnobs
from requite.sim.knobs import Behaviour

_DEATHS: Final = (FaultKind.CRASH_CLIENT, FaultKind.CRASH_SERVER, FaultKind.POWER_LOSS)


@dataclass(frozen=True, slots=True)
class FlpScenario:
    """A scenario. `models`: a run draws one. `faults`: a run has all, with `swarm` a random subset.

    `fixed`: knobs with fixed values, by name: `network.NAME` of the network, `clients.NAME` and
    `servers.NAME` of each client and server.
    """

    name: str
    about: str
    models: tuple[Model, ...] = tuple(Model)
    faults: tuple[FaultKind, ...] = ()
    swarm: bool = False
    behaviours: tuple[Behaviour, ...] = BEHAVIOURS
    fixed: Mapping[str, Any] = field(default_factory=dict)


_QUIET: Final = {
    "network.jitter_s": 0.0,
    "network.spike_p": 0.0,
    "network.buffer_size": 1 << 20,
    "big_p": 0.0,
    "cancel_p": 0.0,
    "timeout_s": 60.0,
    "service_s": 0.005,
    "ping_s": 2.0,
    "liveness": 3,
    "output_size_max": 64 << 20,
    "clients.slots": 1024,
    "clients.attempt_s": 50.0,
    "lossless": True,
}

_LIST: Final = (
    FlpScenario(
        "flp-calm",
        "requests and replies without faults: each call takes one attempt",
        behaviours=ANSWERING,
        fixed=_QUIET,
    ),
    FlpScenario("flp-failover", "model one; clients and servers crash", (Model.FAILOVER,), _DEATHS),
    FlpScenario("flp-shotgun", "model two; clients and servers crash", (Model.SHOTGUN,), _DEATHS),
    FlpScenario("flp-agent", "model three; clients and servers crash", (Model.AGENT,), _DEATHS),
    FlpScenario(
        "flp-standstill",
        "clients and servers freeze for a while, and resume",
        faults=(FaultKind.FREEZE_CLIENT, FaultKind.FREEZE_SERVER),
    ),
    FlpScenario(
        "flp-partitions",
        "the network is cut or congested; connections are reset or silently dropped",
        faults=LINKS,
    ),
    FlpScenario(
        "flp-overload",
        "more requests than the servers can answer in time",
        faults=(FaultKind.CLOG, FaultKind.RESET),
        behaviours=(Behaviour.ECHO,),
        fixed={
            "calls": 250,
            "service_s": 0.3,
            "timeout_s": 3.0,
            "bursts_p": 0.9,
            "servers.capacity": 1,
            "servers.queue_max": 4,
            "network.buffer_size": 2 << 10,
        },
    ),
    FlpScenario(
        "flp-once",
        "requests that are not idempotent: none is sent twice, and the caller gets an error",
        (Model.FAILOVER, Model.AGENT),
        (FaultKind.CRASH_SERVER, FaultKind.RESET, FaultKind.BLACK_HOLE, FaultKind.FREEZE_SERVER),
        fixed={"idempotent_p": 0.1},
    ),
    FlpScenario(
        "flp-garbage",
        "strangers send garbage",
        faults=(FaultKind.INTRUDER,),
        fixed={"faults_per_s": 1.0},
    ),
    FlpScenario(
        "flp-drain",
        "clients and servers drain and come back",
        faults=(FaultKind.DRAIN_CLIENT, FaultKind.DRAIN_SERVER),
    ),
    FlpScenario(
        "flp-swarm",
        "a random subset of all faults",
        faults=faults_of("client", "server", more=(FaultKind.INTRUDER,)),
        swarm=True,
    ),
)
FLP_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


# --- drawing --------------------------------------------------------------------------------------
def draw(seed: int, scenario: FlpScenario) -> FreelanceKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same knobs."""
    rng = Random(f"{seed}/flp-knobs")
    drawn = _draw_all(rng, scenario)
    drawn |= fixed_of(scenario.fixed)
    drawn["network"] = draw_network(rng, fixed_of(scenario.fixed, "network"))
    model: Model = drawn["model"]
    if model is Model.SHOTGUN:  # it refuses requests that are not idempotent
        drawn["idempotent_p"] = 1.0
    servers = [f"server-{i + 1}" for i in range(rng.randint(1, 4))]
    drawn["servers"] = tuple(_draw_server(rng, name, scenario) for name in servers)
    drawn["clients"] = tuple(
        _draw_client(rng, f"client-{i + 1}", servers, scenario, drawn)
        for i in range(rng.randint(1, 3))
    )
    return FreelanceKnobs(**drawn)


def _draw_all(rng: Random, scenario: FlpScenario) -> dict[str, Any]:
    return {
        "calls": rng.randint(60, 160),
        "faulty_s": rng.uniform(6, 20),
        "model": rng.choice(scenario.models),
        "ping_s": rng.choice((0.3, 1.0, 2.0)),
        "liveness": rng.choice((2, 3)),
        **draw_work(rng, scenario.behaviours),
        "pace": draw_pace(rng),
        "output_size_max": rng.choice((100_000, 1 << 20, 64 << 20)),
        "lossless": False,
        **draw_fault_knobs(rng, scenario.faults, scenario.swarm),
    }


def _draw_client(
    rng: Random, name: str, servers: Sequence[str], scenario: FlpScenario, knobs: Mapping[str, Any]
) -> FlpClientSpec:
    is_failover = knobs["model"] is Model.FAILOVER
    attempt_s = rng.choice((0.3, 1.0, 3.0))
    drawn: dict[str, Any] = {
        "servers": tuple(rng.sample(servers, len(servers))),
        "lanes": rng.choice((1, 2, 4)) if is_failover else 1,
        "slots": rng.choice((4, 1024, 1024)),
        "attempt_s": attempt_s if is_failover or rng.random() < 0.3 else None,
        "attempts": rng.choice((1, 3, 3, len(servers) + 2)),
    }
    return FlpClientSpec(name, **drawn | fixed_of(scenario.fixed, "clients"))


def _draw_server(rng: Random, name: str, scenario: FlpScenario) -> FlpServerSpec:
    drawn = {"capacity": rng.choice((1, 2, 16)), "queue_max": rng.choice((1, 8, 1024))}
    return FlpServerSpec(name, **drawn | fixed_of(scenario.fixed, "servers"))
