"""The scenarios of the real shells, and how the knobs of a run are drawn from its seed.

Each knob has a random generator of its own, so a new knob does not change the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from requite.sim.drawing import draw_faults, draw_network, draw_pace, fixed_of
from requite.sim.knobs import Behaviour
from requite.sim.shells.knobs import (
    MIDDLE,
    Handler,
    ShellClientSpec,
    ShellFault,
    ShellKnobs,
    ShellWorkerSpec,
    Transport,
)

# Transports with scenarios of their own; a run with a replica ends with the loss of the primary.
_ALONE: Final = (Transport.REPLICA, Transport.POOL)
_USUAL: Final = tuple(each for each in Transport if each not in _ALONE)


@dataclass(frozen=True, slots=True)
class ShellScenario:
    """A scenario. `faults`: a run has all of these, with `swarm` a random subset.

    `fixed`: knobs with fixed values, by name: `network.NAME` of the network, `clients.NAME` and
    `workers.NAME` of each client and worker.
    """

    name: str
    about: str
    transports: tuple[Transport, ...] = _USUAL
    faults: tuple[ShellFault, ...] = ()
    swarm: bool = False
    behaviours: tuple[Behaviour, ...] = (
        Behaviour.ECHO,
        Behaviour.STREAM,
        Behaviour.FAIL,
        Behaviour.HANG,
        Behaviour.POISON,
    )
    fixed: Mapping[str, Any] = field(default_factory=dict)


_DEATHS: Final = (
    ShellFault.CRASH_CLIENT,
    ShellFault.CRASH_MIDDLE,
    ShellFault.CRASH_WORKER,
    ShellFault.POWER_LOSS,
)
_PAUSES: Final = (ShellFault.FREEZE_CLIENT, ShellFault.FREEZE_MIDDLE, ShellFault.FREEZE_WORKER)
_CUTS: Final = (
    ShellFault.PARTITION,
    ShellFault.PARTITION_ONE_WAY,
    ShellFault.CLOG,
    ShellFault.RESET,
    ShellFault.BLACK_HOLE,
)
_DRAINS: Final = (ShellFault.DRAIN_CLIENT, ShellFault.DRAIN_MIDDLE, ShellFault.DRAIN_WORKER)
_QUIET: Final = {
    "network.jitter_s": 0.0,
    "network.spike_p": 0.0,
    "network.buffer_size": 1 << 20,
    "big_p": 0.0,
    "cancel_p": 0.0,
    "timeout_s": 60.0,
    "service_s": 0.005,
    "interval_s": 1.0,
    "liveness": 3,
    "clients.slots": 1024,
    "clients.attempt_timeout_s": None,
    "lossless": True,
}
_LIST: Final = (
    ShellScenario(
        "shells-calm",
        "requests and replies, nothing goes wrong: each call is answered",
        behaviours=(Behaviour.ECHO, Behaviour.STREAM),
        fixed=_QUIET,
    ),
    ShellScenario("shells-deaths", "processes are killed, machines lose power", faults=_DEATHS),
    ShellScenario("shells-standstill", "processes stand still for a while", faults=_PAUSES),
    ShellScenario(
        "shells-partitions",
        "the network is cut, clogged, reset; connections are forgotten",
        faults=_CUTS,
    ),
    ShellScenario("shells-drain", "processes get SIGTERM, and return", faults=_DRAINS),
    ShellScenario(
        "shells-pair",
        "two brokers of which one serves; it is killed, frozen, drained",
        (Transport.PAIR,),
        (ShellFault.CRASH_MIDDLE, ShellFault.FREEZE_MIDDLE, ShellFault.DRAIN_MIDDLE),
    ),
    ShellScenario(
        "shells-titanic",
        "durable requests, while brokers, Titanics and workers die or stand still",
        (Transport.TITANIC,),
        (*_DEATHS, ShellFault.FREEZE_MIDDLE, ShellFault.DRAIN_MIDDLE),
    ),
    ShellScenario(
        "shells-replica",
        "durable requests, and in the end the broker is gone for good: its replica has them",
        (Transport.REPLICA,),
        (*_DEATHS, ShellFault.FREEZE_MIDDLE, ShellFault.PARTITION, ShellFault.RESET),
    ),
    ShellScenario(
        "shells-pool-calm",
        "managers start and stop groups of workers at a broker; each call is answered",
        (Transport.POOL,),
        behaviours=(Behaviour.ECHO, Behaviour.STREAM),
        fixed=_QUIET,
    ),
    ShellScenario(
        "shells-pool",
        "the same, while managers, workers and the broker die, stand still, drain, are cut off",
        (Transport.POOL,),
        (*_DEATHS, *_PAUSES, *_DRAINS, ShellFault.PARTITION, ShellFault.RESET),
    ),
    ShellScenario(
        "shells-swarm",
        "a random part of everything",
        faults=tuple(ShellFault),
        swarm=True,
    ),
)
SHELL_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


def draw(seed: int, scenario: ShellScenario) -> ShellKnobs:
    """Draw the knobs of a run: equal for the same seed and scenario."""

    def luck(knob: str) -> Random:
        return Random(f"{seed}/shells/{knob}")

    def one_of(knob: str, *choices: Any) -> Any:
        return luck(knob).choice(choices)

    transport: Transport = fixed_of(scenario.fixed).get("transport") or one_of(
        "transport", *scenario.transports
    )
    is_live = transport in (Transport.BROKER, Transport.PAIR, Transport.POOL)
    # A Titanic retries requests that fail or crash their worker forever.
    never = (Behaviour.STREAM, Behaviour.FAIL, Behaviour.POISON)
    is_durable = transport in (Transport.TITANIC, Transport.REPLICA)
    left_out = never if is_durable else () if is_live else (Behaviour.STREAM,)
    behaviours = tuple(each for each in scenario.behaviours if each not in left_out)
    drawn = {
        "calls": luck("calls").randint(40, 120),
        "faulty_s": luck("faulty_s").uniform(4, 15),
        "transport": transport,
        "behaviours": behaviours,
        "weights": tuple(_weight(luck(f"weight-{each}"), each) for each in behaviours),
        "service_s": one_of("service_s", 0.0, 0.005, 0.05, 0.2),
        "timeout_s": one_of("timeout_s", 0.5, 2.0, 5.0, 10.0),
        "endless_p": one_of("endless_p", 0.0, 0.2) if is_live else 0.0,
        "idempotent_p": one_of("idempotent_p", 0.5, 0.9, 1.0),
        "cancel_p": one_of("cancel_p", 0.0, 0.05, 0.2),
        "big_p": one_of("big_p", 0.0, 0.02, 0.1),
        "bursts_p": one_of("bursts_p", 0.0, 0.3, 0.6),
        "follow_p": one_of("follow_p", 0.0, 0.2),
        "interval_s": one_of("interval_s", 0.3, 1.0, 2.5),
        "liveness": one_of("liveness", 2, 3),
        "attempts_max": one_of("attempts_max", 1, 3, 10),
        "service_grace_s": one_of("service_grace_s", 0.5, 5.0),
        "drain_timeout_s": one_of("drain_timeout_s", 0.5, 3.0),
        "unused_s": one_of("unused_s", 1.0, 3.0, 10.0),
        "pace": draw_pace(luck("pace")),
        "network": draw_network(luck("network"), fixed_of(scenario.fixed, "network")),
        "lossless": False,
        "faults": tuple(
            fault
            for fault in draw_faults(luck("faults"), scenario.faults, scenario.swarm)
            if MIDDLE[transport] or not fault.endswith("-middle")
        ),
        "faults_per_s": luck("faults_per_s").uniform(0.05, 0.4),
        "outage_max": one_of("outage_max", 2.0, 5.0, 10.0),
    }
    drawn["clients"] = tuple(
        _draw_client(luck(f"client-{i}"), f"client-{i}", fixed_of(scenario.fixed, "clients"))
        for i in range(1, luck("clients").randint(1, 3) + 1)
    )
    drawn["workers"] = tuple(
        _draw_worker(luck(f"worker-{i}"), f"worker-{i}", fixed_of(scenario.fixed, "workers"))
        for i in range(1, luck("workers").randint(1, 3) + 1)
    )
    if transport is Transport.POOL:  # a request waits until its group has been started
        drawn["service_grace_s"] = 10 * drawn["service_grace_s"]
    if not (is_live or transport is Transport.FREELANCE):
        drawn["idempotent_p"] = 1.0
    return ShellKnobs(**drawn | fixed_of(scenario.fixed))


def _weight(rng: Random, behaviour: Behaviour) -> int:
    match behaviour:
        case Behaviour.ECHO:
            return rng.choice((10, 30))
        case Behaviour.STREAM:
            return rng.choice((1, 8))
    return rng.choice((0, 0, 1, 2))


def _draw_client(rng: Random, name: str, fixed: Mapping[str, Any]) -> ShellClientSpec:
    drawn = {
        "slots": rng.choice((4, 1024, 1024)),
        "tries": rng.choice((1, 3, 3, 5)),
        "attempt_timeout_s": rng.choice((0.5, 2.5)),
    }
    return ShellClientSpec(name, **drawn | dict(fixed))


def _draw_worker(rng: Random, name: str, fixed: Mapping[str, Any]) -> ShellWorkerSpec:
    drawn = {
        "capacity": rng.choice((1, 2, 16)),
        "handler": rng.choice((Handler.COROUTINE, Handler.FUNCTION)),
    }
    return ShellWorkerSpec(name, **drawn | dict(fixed))
