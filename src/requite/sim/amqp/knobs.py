"""The parameters of a run of RPC over AMQP, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from requite.core.liveness import HeartbeatPolicy
from requite.sim.knobs import Behaviour, EngineKnobs
from requite.sim.medium import Shape
from requite.sim.process import Pace

NOBODY = "nobody"
"""A service that has no queue."""


class AmqpFault(StrEnum):
    """The kinds of faults."""

    CRASH_CLIENT = "crash-client"
    CRASH_WORKER = "crash-worker"
    CRASH_RABBIT = "crash-rabbit"
    POWER_LOSS = "power-loss"
    FREEZE_CLIENT = "freeze-client"
    FREEZE_WORKER = "freeze-worker"
    FREEZE_RABBIT = "freeze-rabbit"
    PARTITION = "partition"
    PARTITION_ONE_WAY = "partition-one-way"
    CLOG = "clog"
    RESET = "reset"
    BLACK_HOLE = "black-hole"
    DRAIN_CLIENT = "drain-client"
    DRAIN_WORKER = "drain-worker"
    CLOSE_CHANNEL = "close-channel"  # RabbitMQ closes a channel without a client error
    CLOSE_CONNECTION = "close-connection"
    DELETE_QUEUE = "delete-queue"
    DELETE_REPLIES = "delete-replies"
    BLOCK = "block"  # RabbitMQ reads no messages: it is low on memory
    REFUSE = "refuse"  # RabbitMQ rejects messages with a nack
    GARBAGE = "garbage"  # an intruder publishes invalid messages


@dataclass(frozen=True, slots=True)
class AmqpClientSpec:
    """One client. An attempt may take `attempt_s` (None: as long as the call); `attempts`: their
    maximum number."""

    name: str
    slots: int = 1024
    attempts: int = 3
    attempt_s: float | None = None
    confirms: bool = False
    direct_reply: bool = False


@dataclass(frozen=True, slots=True)
class AmqpWorkerSpec:
    """One worker of a service. `prefetch`: how many unacknowledged requests it may have."""

    name: str
    service: str
    prefetch: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpKnobs(EngineKnobs):
    """A run. The first phase takes `faulty_s` and makes `calls` calls.

    `pool`: services are the groups of a pool; its manager, not a worker, declares their queues, and
    answers dead letters. `classic`: the service queues are classic queues, which exist from the
    beginning and do not count deliveries. `has_activity`: the exchange for the reports of workers
    exists. `attempts_max`: the most deliveries of a request. `sync_s`: the longest time until
    RabbitMQ has a message on disk. `birth_s`: for this long after its declaration a queue may
    refuse consumers. `frame_size`: the largest frame, which splits longer bodies.

    `faults_per_s` is the rate of each kind of fault; a fault lasts from 0.1 to `outage_max`
    heartbeat intervals. `lossless`: no faults, so the first attempt of every call must be answered.
    """

    one_by_one = frozenset({"clients", "workers"})

    calls: int
    faulty_s: float
    # processes
    services: tuple[str, ...]
    pool: bool
    classic: bool
    has_activity: bool
    clients: tuple[AmqpClientSpec, ...]
    workers: tuple[AmqpWorkerSpec, ...]
    attempts_max: int
    interval_s: float
    liveness: int
    sync_s: float
    birth_s: float
    frame_size: int
    # calls
    behaviours: tuple[Behaviour, ...]
    weights: tuple[int, ...]
    service_s: float
    timeout_s: float
    endless_p: float
    idempotent_p: float
    partials_p: float
    nobody_p: float
    cancel_p: float
    big_p: float
    bursts_p: float
    follow_p: float
    # network and lateness
    network: Shape
    pace: Pace
    output_size_max: int
    # faults
    lossless: bool
    faults: tuple[AmqpFault, ...]
    faults_per_s: float
    outage_max: float

    @property
    def outage_unit_s(self) -> float:
        """The unit of outages: the heartbeat interval."""
        return self.interval_s

    @property
    def heartbeat(self) -> HeartbeatPolicy:
        """The heartbeats of clients and workers."""
        return HeartbeatPolicy(self.interval_s, self.liveness)

    @property
    def runs_max(self) -> int | None:
        """How often a worker may start one published request; None: unlimited, since classic queues
        do not count deliveries."""
        return None if self.classic else self.attempts_max
