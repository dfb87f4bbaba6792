"""The scenarios of RPC over AMQP, and how the knobs of a run are drawn from its seed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from requite.sim.amqp.knobs import AmqpClientSpec, AmqpKnobs, AmqpWorkerSpec
from requite.sim.kernel.drawing import (
    CALM,
    FAULTS,
    WORK,
    Choices,
    Draw,
    always,
    between,
    chance,
    one_of,
)
from requite.sim.kernel.faults import FaultKind
from requite.sim.kernel.knobs import ANSWERING, Behaviour, Scenario, partitions, usual

_OF_RABBIT: Final = (
    FaultKind.CLOSE_CHANNEL,
    FaultKind.CLOSE_CONNECTION,
    FaultKind.DELETE_QUEUE,
    FaultKind.DELETE_REPLIES,
    FaultKind.BLOCK,
    FaultKind.REFUSE,
)
_QUIET: Final = CALM | {
    "network.buffer_size": 1 << 20,
    "interval_s": 1.0,
    "liveness": 3,
    "birth_s": 0.0,
    "clients.slots": 1024,
    "clients.attempt_s": 50.0,
    "lossless": True,
}

_LIST: Final = (
    Scenario(
        "amqp-calm",
        "requests and replies without faults: each call takes one attempt",
        behaviours=ANSWERING,
        fixed=_QUIET,
    ),
    Scenario(
        "amqp-quiet",
        "few requests: only heartbeats show which peers are alive",
        behaviours=ANSWERING,
        fixed=_QUIET | {"calls": 6, "faulty_s": 25.0},
    ),
    Scenario(
        "amqp-workers",
        "workers crash, and get requests that crash them",
        (FaultKind.CRASH_WORKER, FaultKind.POWER_LOSS),
        fixed={"faults_per_s": 0.4, "classic": False},
    ),
    Scenario(
        "amqp-clients", "clients crash and come back", (FaultKind.CRASH_CLIENT, FaultKind.RESET)
    ),
    Scenario(
        "amqp-rabbit",
        "RabbitMQ crashes and loses unsynced data, and closes channels and connections",
        (FaultKind.CRASH_RABBIT, FaultKind.CLOSE_CHANNEL, FaultKind.CLOSE_CONNECTION),
    ),
    Scenario(
        "amqp-standstill",
        "processes and RabbitMQ freeze for a while, and resume",
        (FaultKind.FREEZE_CLIENT, FaultKind.FREEZE_WORKER, FaultKind.FREEZE_RABBIT),
    ),
    partitions("amqp"),
    Scenario(
        "amqp-deleted",
        "an operator deletes queues, and RabbitMQ is slow to declare them again",
        (FaultKind.DELETE_QUEUE, FaultKind.DELETE_REPLIES),
        fixed={"faults_per_s": 0.3, "birth_s": 0.05},
    ),
    Scenario(
        "amqp-returned",
        "requests are returned, while an operator deletes service and reply queues",
        (FaultKind.DELETE_QUEUE, FaultKind.DELETE_REPLIES),
        fixed={"faults_per_s": 1.0, "nobody_p": 0.3, "birth_s": 0.05},
    ),
    Scenario(
        "amqp-late",
        "deadlines pass while clients freeze, and reply queues are lost",
        (FaultKind.FREEZE_CLIENT, FaultKind.DELETE_REPLIES, FaultKind.CLOSE_CHANNEL),
        fixed={"faults_per_s": 3.0, "timeout_s": 0.7},
    ),
    Scenario(
        "amqp-pressure",
        "RabbitMQ is short of memory, and its queues reject messages",
        (FaultKind.BLOCK, FaultKind.REFUSE),
        fixed={"faults_per_s": 0.3, "clients.confirms": True},
    ),
    Scenario(
        "amqp-overload",
        "more requests than the workers can answer in time",
        (FaultKind.CLOG, FaultKind.RESET),
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
    Scenario(
        "amqp-streams",
        "partial replies of workers that crash while they send them",
        (FaultKind.CRASH_WORKER, FaultKind.RESET),
        behaviours=ANSWERING,
        fixed={
            "weights": (1, 4),
            "service_s": 0.1,
            "timeout_s": 10.0,
            "faults_per_s": 0.5,
            "attempts_max": 3,
        },
    ),
    Scenario(
        "amqp-cancels",
        "half of the calls are cancelled",
        (FaultKind.CRASH_WORKER, FaultKind.RESET),
        fixed={"cancel_p": 0.5, "service_s": 0.2, "clients.attempt_s": 0.5},
    ),
    Scenario(
        "amqp-once",
        "requests that are not idempotent: none is published twice, and the caller gets an error",
        (FaultKind.CRASH_RABBIT, FaultKind.RESET, FaultKind.DELETE_REPLIES),
        fixed={"idempotent_p": 0.1},
    ),
    *usual(
        "amqp",
        "client",
        "worker",
        "rabbit",
        more=_OF_RABBIT,
        garbage=FaultKind.GARBAGE,
        drain_fixed={"faults_per_s": 0.4},
    ),
)
AMQP_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


# --- drawing --------------------------------------------------------------------------------------
_KNOBS: Final[Choices] = {
    **WORK,
    **FAULTS,
    "calls": between(60, 160),
    "faulty_s": between(6.0, 20.0),
    "services": lambda rng: tuple(f"service-{i + 1}" for i in range(rng.randint(1, 2))),
    "pool": chance(0.4),
    "classic": chance(0.2),
    "has_activity": chance(0.8),
    "attempts_max": one_of(1, 2, 3),
    "interval_s": one_of(0.5, 1.0, 2.0),
    "liveness": one_of(2, 3),
    "sync_s": one_of(0.0, 0.002, 0.02),
    "birth_s": one_of(0.0, 0.0, 0.05),
    "frame_size": one_of(4096, 131_072),
    "partials_p": one_of(0.0, 0.5),
    "nobody_p": one_of(0.0, 0.05),
    "output_size_max": one_of(1 << 20, 64 << 20),
    "lossless": always(False),
}
_CLIENT: Final[Choices] = {
    "slots": one_of(4, 1024, 1024),
    "attempts": one_of(1, 3, 3, 5),
    "attempt_s": one_of(None, None, 0.5, 1.0, 3.0),
    "confirms": chance(0.4),
    "direct_reply": chance(0.3),
}
_WORKER: Final[Choices] = {"prefetch": one_of(1, 2, 16)}


def draw(seed: int, scenario: Scenario) -> AmqpKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same knobs."""
    luck = Draw(seed, "amqp", scenario)
    drawn = luck.knobs(_KNOBS)
    if drawn["pool"]:
        drawn |= {"classic": False, "nobody_p": 0.0}
    services = drawn["services"]
    count = between(len(services), len(services) + 3)
    workers = luck.cast(AmqpWorkerSpec, "worker", count, {"service": one_of(*services), **_WORKER})
    each = [replace(worker, service=s) for worker, s in zip(workers, services, strict=False)]
    return AmqpKnobs(
        **drawn,
        **luck.calls(),
        clients=luck.cast(AmqpClientSpec, "client", between(1, 3), _CLIENT),
        workers=(*each, *workers[len(each) :]),  # each service has one or more
    )
