"""The parameters of a run of RPC over AMQP, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass

from requite.core.liveness import HeartbeatPolicy
from requite.sim.kernel.knobs import EngineKnobs
from requite.sim.rabbitmq.server import ServerSettings


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
    """A run of clients and workers at RabbitMQ.

    `pool`: services are the groups of a pool; its manager, not a worker, declares their queues, and
    answers dead letters. `classic`: the service queues are classic queues, which exist from the
    beginning and do not count deliveries. `has_activity`: the exchange for the reports of workers
    exists. `attempts_max`: the most deliveries of a request. `sync_s`: the longest time until
    RabbitMQ has a message on disk. `birth_s`: for this long after its declaration a queue may
    refuse consumers. `frame_size`: the largest frame, which splits longer bodies. `lossless`: the
    first attempt of every call must be answered.
    """

    one_by_one = frozenset({"clients", "workers"})

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
    partials_p: float
    nobody_p: float

    @property
    def outage_unit_s(self) -> float:
        """The unit of outages: the heartbeat interval."""
        return self.interval_s

    @property
    def heartbeat(self) -> HeartbeatPolicy:
        """The heartbeats of clients and workers."""
        return HeartbeatPolicy(self.interval_s, self.liveness)

    @property
    def heartbeat_timeout_s(self) -> int:
        """The heartbeat timeout, which clients, workers and RabbitMQ agree on."""
        return max(1, round(2 * self.interval_s))

    @property
    def server(self) -> ServerSettings:
        """The settings of RabbitMQ."""
        return ServerSettings(self.heartbeat_timeout_s, self.sync_s, self.birth_s, self.frame_size)

    @property
    def runs_max(self) -> int | None:
        """How often a worker may start one published request; None: unlimited, since classic queues
        do not count deliveries."""
        return None if self.classic else self.attempts_max
