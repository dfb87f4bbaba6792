"""Everything that a run of RPC over AMQP is made of, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass

from requite.core.liveness import HeartbeatPolicy
from requite.sim.knobs import EngineKnobs

NOBODY = "nobody"
"""A service that has no queue."""


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
    """A run of clients and workers at RabbitMQ.

    `pool`: services are the groups of a pool, whose queues somebody else makes, with dead letters
    that are answered. `classic`: queues of services are there before, and not quorum queues; they
    do not count deliveries. `has_activity`: there is an exchange for the reports of workers.
    `attempts_max` bounds the deliveries of a request. RabbitMQ takes up to `sync_s` to have a
    message on the disk, shows a queue up to `birth_s` before it is ready, and cuts bodies at
    `frame_size`. `lossless`: every call must be answered at the first attempt.
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
