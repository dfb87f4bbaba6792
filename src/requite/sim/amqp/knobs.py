"""Everything that a run of RPC over AMQP is made of, drawn from its seed."""

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
    """What can go wrong."""

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
    CLOSE_CHANNEL = "close-channel"  # RabbitMQ closes one, for reasons of its own
    CLOSE_CONNECTION = "close-connection"
    DELETE_QUEUE = "delete-queue"
    DELETE_REPLIES = "delete-replies"
    BLOCK = "block"  # RabbitMQ takes no messages
    REFUSE = "refuse"  # its queues take none
    GARBAGE = "garbage"  # an intruder publishes what nobody should


@dataclass(frozen=True, slots=True)
class AmqpClientSpec:
    """One client. A try may take `attempt_s` (None: as long as the call), and there may be
    `attempts` of them."""

    name: str
    slots: int = 1024
    attempts: int = 3
    attempt_s: float | None = None
    confirms: bool = False
    direct_reply: bool = False


@dataclass(frozen=True, slots=True)
class AmqpWorkerSpec:
    """One worker of a service; it has `prefetch` requests at a time."""

    name: str
    service: str
    prefetch: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpKnobs(EngineKnobs):
    """A run. `faulty_s` is the length of the first phase, in which `calls` calls are made.

    `pool`: services are the groups of a pool, whose queues somebody else makes, with dead letters
    that are answered. `classic`: queues of services are there before, and not quorum queues; they
    do not count deliveries. `has_activity`: there is an exchange for the reports of workers.
    `attempts_max` bounds the deliveries of a request. RabbitMQ takes up to `sync_s` to have a
    message on the disk, shows a queue up to `birth_s` before it is ready, and cuts bodies at
    `frame_size`.

    `faults_per_s` is the rate of each kind of fault; they last from a tenth of the interval of
    heartbeats to `outage_max` of them. `lossless`: nothing goes wrong, so every call must be
    answered at the first try.
    """

    one_by_one = frozenset({"clients", "workers"})

    calls: int
    faulty_s: float
    # the cast
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
    # the work
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
    # the network, and how late processes are
    network: Shape
    pace: Pace
    output_size_max: int
    # what goes wrong
    lossless: bool
    faults: tuple[AmqpFault, ...]
    faults_per_s: float
    outage_max: float

    @property
    def outage_unit_s(self) -> float:
        """Outages are measured in intervals of heartbeats."""
        return self.interval_s

    @property
    def heartbeat(self) -> HeartbeatPolicy:
        """When clients and workers are heard, and when RabbitMQ is gone."""
        return HeartbeatPolicy(self.interval_s, self.liveness)

    @property
    def runs_max(self) -> int | None:
        """How often one publishing of a request may be run; None: nobody counts."""
        return None if self.classic else self.attempts_max
