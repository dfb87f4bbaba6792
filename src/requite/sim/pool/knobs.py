"""The parameters of a run of a pool, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from requite.pool.config import (
    HttpSection,
    Lifetime,
    Limits,
    Loops,
    PoolConfig,
    PoolSection,
    RabbitSection,
    WorkersSection,
)
from requite.shell.link import LinkLimits
from requite.sim.kernel.knobs import RunKnobs
from requite.sim.kernel.medium import Shape
from requite.sim.kernel.process import Pace
from requite.sim.rabbitmq.process import PORT, RABBIT
from requite.sim.rabbitmq.server import ServerSettings


class Task(StrEnum):
    """What a worker does with a request; the request names it."""

    SERVE = "serve"
    REQUEUE = "requeue"  # requeues it once, then serves it
    FAIL = "fail"  # its handler raises an exception
    STALL = "stall"  # never ends; RabbitMQ's acknowledgement timeout ends it
    POISON = "poison"  # crashes


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolKnobs(RunKnobs):
    """A run: `calls` in the first phase, of `faulty_s` seconds, for `keys` keys.

    `managers`: one is active, the others are on standby. `ttl_p`, `silent_p`: the share of requests
    that expire early, and of those without a reply-to. `sample_s`: how often RabbitMQ samples the
    unacknowledged deliveries.
    """

    keys: int
    managers: int
    callers: int
    # requests
    tasks: tuple[Task, ...]
    weights: tuple[int, ...]
    service_s: float
    ttl_p: float
    silent_p: float
    # RabbitMQ and the driver
    latency_s: float
    notice_s: float
    api_s: float
    sample_s: float
    ack_timeout_s: float
    driver_s: float
    start_s: float
    prefetch: int
    # settings of the pool
    unbind_delay_s: float
    stop_delay_s: float
    extra_lifetime_s: float
    interval_s: float
    message_ttl_s: float
    delivery_limit: int
    queue_length: int
    orphans: int

    @property
    def outage_unit_s(self) -> float:
        """The unit of outages: a second."""
        return 1.0

    @property
    def network(self) -> Shape:
        """The network of RabbitMQ and its clients. A lost peer is detected after `notice_s`."""
        keepalive_s = max(self.notice_s, 0.1)
        return Shape(self.latency_s, keepalive_s=keepalive_s, connect_timeout_s=1.0)

    @property
    def pace(self) -> Pace:
        """No process is ever late."""
        return Pace()

    @property
    def limits(self) -> LinkLimits:
        """The limits of RabbitMQ's connections."""
        return LinkLimits()

    @property
    def server(self) -> ServerSettings:
        """The settings of RabbitMQ."""
        return ServerSettings(heartbeat_s=10, sync_s=0.0, ack_timeout_s=self.ack_timeout_s)

    @property
    def settle_s(self) -> float:
        """A little longer than the age of RabbitMQ's oldest samples."""
        return 1.2 * self.sample_s

    @property
    def config(self) -> PoolConfig:
        """The settings of managers and workers."""
        return PoolConfig(
            PoolSection("core", version="1"),
            RabbitSection(f"amqp://{RABBIT}:{PORT}/"),
            workers=WorkersSection(prefetch=self.prefetch),
            lifetime=Lifetime(self.unbind_delay_s, self.stop_delay_s, self.extra_lifetime_s),
            loops=Loops(self.interval_s, 0.2, 2.0, 1, self.settle_s),
            limits=Limits(
                self.message_ttl_s,
                self.delivery_limit,
                self.queue_length,
                self.orphans,
                orphan_hold_s=0.5,
            ),
            http=HttpSection(enabled=False),
        )
