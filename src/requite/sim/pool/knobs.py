"""Everything that a run of a pool is made of, drawn from its seed; printed before it begins."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from requite.pool.config import Lifetime, Limits, Loops, PoolConfig, PoolSection
from requite.sim.knobs import RunKnobs


class Task(StrEnum):
    """What a worker does with a request; the request tells it."""

    SERVE = "serve"
    REQUEUE = "requeue"  # gives it back once, and serves it then
    REJECT = "reject"  # does not want it at all
    STALL = "stall"  # never ends, so that RabbitMQ takes it away
    POISON = "poison"  # dies of it


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolKnobs(RunKnobs):
    """A run: `calls` in the first phase, of `faulty_s` seconds, for `keys` keys.

    `managers`: one works, the others stand by. `ttl_p`, `silent_p`: which share of requests expires
    early, and has no reply-to. `sample_s`: how often RabbitMQ counts what consumers hold.
    """

    keys: int
    managers: int
    callers: int
    # what requests are like
    tasks: tuple[Task, ...]
    weights: tuple[int, ...]
    service_s: float
    ttl_p: float
    silent_p: float
    # RabbitMQ, and who runs workers
    latency_s: float
    notice_s: float
    api_s: float
    sample_s: float
    ack_timeout_s: float
    driver_s: float
    start_s: float
    prefetch: int
    # the settings of the pool
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
        """Outages are measured in seconds."""
        return 1.0

    @property
    def settle_s(self) -> float:
        """A little longer than what RabbitMQ tells may be old."""
        return 1.2 * self.sample_s

    @property
    def config(self) -> PoolConfig:
        """The settings of the managers."""
        return PoolConfig(
            PoolSection("core", version="1"),
            lifetime=Lifetime(self.unbind_delay_s, self.stop_delay_s, self.extra_lifetime_s),
            loops=Loops(self.interval_s, 0.2, 2.0, 1, self.settle_s),
            limits=Limits(
                self.message_ttl_s,
                self.delivery_limit,
                self.queue_length,
                self.orphans,
                orphan_hold_s=0.5,
            ),
        )
