"""The scenarios of RPC over AMQP, and how the knobs of a run are drawn from its seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from requite.sim.amqp.knobs import AmqpClientSpec, AmqpFault, AmqpKnobs, AmqpWorkerSpec
from requite.sim.drawing import (
    ANSWERING,
    BEHAVIOURS,
    draw_fault_knobs,
    draw_network,
    draw_pace,
    draw_work,
    fixed_of,
)
from requite.sim.knobs import Behaviour

_CUTS: Final = (
    AmqpFault.PARTITION,
    AmqpFault.PARTITION_ONE_WAY,
    AmqpFault.CLOG,
    AmqpFault.RESET,
    AmqpFault.BLACK_HOLE,
)


@dataclass(frozen=True, slots=True)
class AmqpScenario:
    """A scenario. `faults`: a run has all of these, with `swarm` a random subset.

    `fixed`: knobs with fixed values, by name: `network.NAME` of the network, `clients.NAME` and
    `workers.NAME` of each client and worker.
    """

    name: str
    about: str
    faults: tuple[AmqpFault, ...] = ()
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
    "interval_s": 1.0,
    "liveness": 3,
    "birth_s": 0.0,
    "output_size_max": 64 << 20,
    "clients.slots": 1024,
    "clients.attempt_s": 50.0,
    "lossless": True,
}

_LIST: Final = (
    AmqpScenario(
        "amqp-calm",
        "requests and replies, nothing goes wrong: each call takes one try",
        behaviours=ANSWERING,
        fixed=_QUIET,
    ),
    AmqpScenario(
        "amqp-quiet",
        "hardly anything is asked: nothing but heartbeats tells who lives",
        behaviours=ANSWERING,
        fixed=_QUIET | {"calls": 6, "faulty_s": 25.0},
    ),
    AmqpScenario(
        "amqp-workers",
        "workers die, and meet requests that kill them",
        (AmqpFault.CRASH_WORKER, AmqpFault.POWER_LOSS),
        fixed={"faults_per_s": 0.4, "classic": False},
    ),
    AmqpScenario(
        "amqp-clients", "clients die, and come back", (AmqpFault.CRASH_CLIENT, AmqpFault.RESET)
    ),
    AmqpScenario(
        "amqp-rabbit",
        "RabbitMQ dies with what is not on the disk, closes channels and connections",
        (AmqpFault.CRASH_RABBIT, AmqpFault.CLOSE_CHANNEL, AmqpFault.CLOSE_CONNECTION),
    ),
    AmqpScenario(
        "amqp-standstill",
        "processes stand still for a while, RabbitMQ too, and wake up",
        (AmqpFault.FREEZE_CLIENT, AmqpFault.FREEZE_WORKER, AmqpFault.FREEZE_RABBIT),
    ),
    AmqpScenario(
        "amqp-partitions", "the network is cut, clogged, reset; connections are forgotten", _CUTS
    ),
    AmqpScenario(
        "amqp-deleted",
        "somebody deletes queues, and RabbitMQ takes its time to make them anew",
        (AmqpFault.DELETE_QUEUE, AmqpFault.DELETE_REPLIES),
        fixed={"faults_per_s": 0.3, "birth_s": 0.05},
    ),
    AmqpScenario(
        "amqp-pressure",
        "RabbitMQ is short of memory, and its queues refuse what comes",
        (AmqpFault.BLOCK, AmqpFault.REFUSE),
        fixed={"faults_per_s": 0.3, "clients.confirms": True},
    ),
    AmqpScenario(
        "amqp-overload",
        "far more is asked than can be done in time",
        (AmqpFault.CLOG, AmqpFault.RESET),
        behaviours=(Behaviour.ECHO,),
        fixed={
            "calls": 250,
            "service_s": 0.3,
            "timeout_s": 3.0,
            "bursts_p": 0.9,
            "workers.prefetch": 2,
            "clients.slots": 8,
            "network.buffer_size": 2 << 10,
        },
    ),
    AmqpScenario(
        "amqp-streams",
        "replies in pieces, of workers that die while they give them",
        (AmqpFault.CRASH_WORKER, AmqpFault.RESET),
        behaviours=ANSWERING,
        fixed={
            "weights": (1, 4),
            "service_s": 0.1,
            "timeout_s": 10.0,
            "faults_per_s": 0.5,
            "attempts_max": 3,
        },
    ),
    AmqpScenario(
        "amqp-cancels",
        "half of the calls are given up",
        (AmqpFault.CRASH_WORKER, AmqpFault.RESET),
        fixed={"cancel_p": 0.5, "service_s": 0.2, "clients.attempt_s": 0.5},
    ),
    AmqpScenario(
        "amqp-once",
        "requests that are not idempotent: nothing is published twice, and the caller is told",
        (AmqpFault.CRASH_RABBIT, AmqpFault.RESET, AmqpFault.DELETE_REPLIES),
        fixed={"idempotent_p": 0.1},
    ),
    AmqpScenario(
        "amqp-garbage",
        "intruders publish what they should not",
        (AmqpFault.GARBAGE,),
        fixed={"faults_per_s": 1.0},
    ),
    AmqpScenario(
        "amqp-drain",
        "clients and workers leave and return in good order",
        (AmqpFault.DRAIN_CLIENT, AmqpFault.DRAIN_WORKER),
        fixed={"faults_per_s": 0.4},
    ),
    AmqpScenario("amqp-swarm", "a random part of everything", tuple(AmqpFault), swarm=True),
)
AMQP_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


# --- drawing --------------------------------------------------------------------------------------
def draw(seed: int, scenario: AmqpScenario) -> AmqpKnobs:
    """Draw the knobs of a run: equal for the same seed and scenario."""
    rng = Random(f"{seed}/amqp-knobs")
    fixed = scenario.fixed
    drawn = _draw_all(rng, scenario) | fixed_of(fixed)
    drawn["network"] = draw_network(rng, fixed_of(fixed, "network"))
    if drawn["pool"]:
        drawn |= {"classic": False, "nobody_p": 0.0}
    services = drawn["services"]
    clients = range(rng.randint(1, 3))
    workers = [*services, *(rng.choice(services) for _ in range(rng.randint(0, 3)))]
    drawn["clients"] = tuple(
        AmqpClientSpec(f"client-{i + 1}", **_draw_client(rng) | fixed_of(fixed, "clients"))
        for i in clients
    )
    drawn["workers"] = tuple(
        AmqpWorkerSpec(f"worker-{i + 1}", service, **_draw_worker(rng) | fixed_of(fixed, "workers"))
        for i, service in enumerate(workers)
    )
    return AmqpKnobs(**drawn)


def _draw_all(rng: Random, scenario: AmqpScenario) -> dict[str, Any]:
    return {
        "calls": rng.randint(60, 160),
        "faulty_s": rng.uniform(6, 20),
        "services": tuple(f"service-{i + 1}" for i in range(rng.randint(1, 2))),
        "pool": rng.random() < 0.4,
        "classic": rng.random() < 0.2,
        "has_activity": rng.random() < 0.8,
        "attempts_max": rng.choice((1, 2, 3)),
        "interval_s": rng.choice((0.5, 1.0, 2.0)),
        "liveness": rng.choice((2, 3)),
        "sync_s": rng.choice((0.0, 0.002, 0.02)),
        "birth_s": rng.choice((0.0, 0.0, 0.05)),
        "frame_size": rng.choice((4096, 131_072)),
        **draw_work(rng, scenario.behaviours),
        "partials_p": rng.choice((0.0, 0.5)),
        "nobody_p": rng.choice((0.0, 0.05)),
        "pace": draw_pace(rng),
        "output_size_max": rng.choice((1 << 20, 64 << 20)),
        "lossless": False,
        **draw_fault_knobs(rng, scenario.faults, scenario.swarm),
    }


def _draw_client(rng: Random) -> dict[str, Any]:
    return {
        "slots": rng.choice((4, 1024, 1024)),
        "attempts": rng.choice((1, 3, 3, 5)),
        "attempt_s": rng.choice((None, None, 0.5, 1.0, 3.0)),
        "confirms": rng.random() < 0.4,
        "direct_reply": rng.random() < 0.3,
    }


def _draw_worker(rng: Random) -> dict[str, Any]:
    return {"prefetch": rng.choice((1, 2, 16))}
