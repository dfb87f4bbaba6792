"""The parameters of a run of the real shells, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from requite.protocols.majordomo.keyed import service_of
from requite.sim.kernel.knobs import CallKnobs


class Transport(StrEnum):
    """The processes and the protocol between clients and workers."""

    BROKER = "broker"  # MDP 0.3
    PAIR = "pair"  # MDP 0.3, two brokers, one of them active
    QUEUE = "queue"  # Paranoid Pirate
    DEVICE = "device"  # SP, with a device
    SP = "sp"  # SP, clients dial workers
    FREELANCE = "freelance"
    TITANIC = "titanic"  # durable requests: MDP 0.3, and a separate Titanic
    POOL = "pool"  # MDP 0.3; managers of a pool start and stop the workers
    REPLICA = "replica"  # as TITANIC, inside the broker, with a replica in a second broker


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
"""The names of the processes between clients and workers."""


class Handler(StrEnum):
    """The kinds of handler functions."""

    COROUTINE = "coroutine"
    FUNCTION = "function"  # runs in a thread
    GENERATOR = "generator"  # asynchronous; yields partial replies


SERVICES: Final = {
    "alpha": Handler.COROUTINE,
    "beta": Handler.FUNCTION,
    "gamma": Handler.GENERATOR,
}
"""The services of each worker behind a broker, or the keys of a pool."""

POOL: Final = "core"


@dataclass(frozen=True, slots=True)
class ShellClientSpec:
    """One client: it makes up to `slots` calls at a time, each with up to `tries` attempts."""

    name: str
    slots: int = 1024
    tries: int = 3
    attempt_timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class ShellWorkerSpec:
    """One worker. `handler`: that of its only service, in a run without a broker."""

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
        """The unit of outages: the heartbeat interval."""
        return self.interval_s

    @property
    def ending_late_s(self) -> float:
        """How late a call may end after its deadline (I1)."""
        return self.interval_s + self.pace.timer_late_s + 5 * self.pace.flush_late_s

    @property
    def runs_at_once(self) -> int | None:
        """How often a call runs at its first attempt in a run without faults; None: any number."""
        return None

    @property
    def silence_s(self) -> float:
        """How long a peer may be silent before it is given up."""
        return self.interval_s * self.liveness

    @property
    def has_services(self) -> bool:
        """Whether services have names (MDP)."""
        live = (Transport.BROKER, Transport.PAIR, Transport.POOL)
        return self.transport in live or self.is_durable

    @property
    def services(self) -> dict[str, Handler]:
        """The handlers of the services, by service name at the broker."""
        if self.transport is not Transport.POOL:
            return SERVICES
        return {service_of(POOL, key): kind for key, kind in SERVICES.items()}

    @property
    def is_durable(self) -> bool:
        """Whether requests are submitted, and their replies fetched (9/TSP)."""
        return self.transport in (Transport.TITANIC, Transport.REPLICA)

    @property
    def is_live(self) -> bool:
        """Whether calls go directly through a broker: with keys, partial replies and errors."""
        return self.has_services and not self.is_durable

    @property
    def tells(self) -> bool:
        """Whether the protocol carries that a request is not idempotent."""
        return self.is_live or self.transport is Transport.FREELANCE

    @property
    def retries(self) -> bool:
        """Whether clients retry only by attempt timeout, since the protocol has no errors (SP,
        Pirates)."""
        return not self.has_services
