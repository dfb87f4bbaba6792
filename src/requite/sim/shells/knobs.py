"""Everything that a run of the real shells is made of, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from requite.protocols.majordomo.keyed import service_of
from requite.sim.knobs import CallKnobs


class Transport(StrEnum):
    """What is between clients and workers."""

    BROKER = "broker"  # MDP 0.3
    PAIR = "pair"  # MDP 0.3, two brokers of which one serves
    QUEUE = "queue"  # Paranoid Pirate
    DEVICE = "device"  # SP, with a device between
    SP = "sp"  # SP, clients dial workers
    FREELANCE = "freelance"
    TITANIC = "titanic"  # durable requests: MDP 0.3, and a Titanic beside the broker
    POOL = "pool"  # MDP 0.3; managers of a pool start and stop the workers
    REPLICA = "replica"  # the same inside the broker, in step with a replica in another one


MIDDLE: Final = {
    Transport.BROKER: ("broker",),
    Transport.PAIR: ("broker-1", "broker-2"),
    Transport.QUEUE: ("queue",),
    Transport.DEVICE: ("device",),
    Transport.SP: (),
    Transport.FREELANCE: (),
    Transport.POOL: ("broker", "manager-1", "manager-2"),
    Transport.TITANIC: ("broker", "titanic"),
    Transport.REPLICA: ("broker-1", "broker-2"),
}
"""The processes between clients and workers, by their names."""


class Handler(StrEnum):
    """What kind of function a handler is."""

    COROUTINE = "coroutine"
    FUNCTION = "function"  # in a thread
    GENERATOR = "generator"  # asynchronous; of partial replies


SERVICES: Final = {
    "alpha": Handler.COROUTINE,
    "beta": Handler.FUNCTION,
    "gamma": Handler.GENERATOR,
}
"""The services of each worker behind a broker; of a pool, its keys."""

POOL: Final = "core"


@dataclass(frozen=True, slots=True)
class ShellClientSpec:
    """One client: `slots` calls at a time; `tries` bounds the attempts of a call."""

    name: str
    slots: int = 1024
    tries: int = 3
    attempt_timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class ShellWorkerSpec:
    """One worker; `handler` is that of its only service, where there is no broker."""

    name: str
    capacity: int = 16
    handler: Handler = Handler.COROUTINE


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellKnobs(CallKnobs):
    """A run of real shells.

    `unused_s`: after how long without requests the group of a pool is stopped.
    """

    one_by_one = frozenset({"clients", "workers"})

    # the cast
    transport: Transport
    clients: tuple[ShellClientSpec, ...]
    workers: tuple[ShellWorkerSpec, ...]
    # presence and policy
    interval_s: float
    liveness: int
    attempts_max: int
    service_grace_s: float
    drain_timeout_s: float
    unused_s: float = 3.0

    @property
    def outage_unit_s(self) -> float:
        """Outages are measured in heartbeat intervals."""
        return self.interval_s

    @property
    def ending_late_s(self) -> float:
        """How late a call may end after its deadline (I1)."""
        return self.interval_s + self.pace.timer_late_s + 5 * self.pace.flush_late_s

    @property
    def runs_at_once(self) -> int | None:
        """How often a call runs at its first attempt if nothing goes wrong; None: any number."""
        return None

    @property
    def silence_s(self) -> float:
        """How long a peer must have been silent to be counted as gone."""
        return self.interval_s * self.liveness

    @property
    def has_services(self) -> bool:
        """Whether services have names (MDP)."""
        live = (Transport.BROKER, Transport.PAIR, Transport.POOL)
        return self.transport in live or self.is_durable

    @property
    def services(self) -> dict[str, Handler]:
        """The handlers of services, by their names at the broker."""
        if self.transport is not Transport.POOL:
            return SERVICES
        return {service_of(POOL, key): kind for key, kind in SERVICES.items()}

    @property
    def is_durable(self) -> bool:
        """Whether requests are submitted, and their replies fetched (9/TSP)."""
        return self.transport in (Transport.TITANIC, Transport.REPLICA)

    @property
    def is_live(self) -> bool:
        """Whether calls go through a broker, at once: with keys, partial replies and errors."""
        return self.has_services and not self.is_durable

    @property
    def tells(self) -> bool:
        """Whether the protocol can say that a request is not idempotent."""
        return self.is_live or self.transport is Transport.FREELANCE

    @property
    def retries(self) -> bool:
        """Whether requests are sent again by time alone (SP and the Pirates have no errors)."""
        return not self.has_services
