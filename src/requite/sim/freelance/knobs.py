"""Everything that a run of the Freelance pattern is made of, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from requite.core.liveness import HeartbeatPolicy
from requite.protocols.freelance.wire import Model
from requite.shell.link import LinkLimits
from requite.sim.knobs import Behaviour, Printed, link_limits
from requite.sim.medium import Shape
from requite.sim.process import Pace


class FlpFault(StrEnum):
    """What can go wrong."""

    CRASH_CLIENT = "crash-client"
    CRASH_SERVER = "crash-server"
    POWER_LOSS = "power-loss"
    FREEZE_CLIENT = "freeze-client"
    FREEZE_SERVER = "freeze-server"
    PARTITION = "partition"
    PARTITION_ONE_WAY = "partition-one-way"
    CLOG = "clog"
    RESET = "reset"
    BLACK_HOLE = "black-hole"
    DRAIN_CLIENT = "drain-client"
    DRAIN_SERVER = "drain-server"
    INTRUDER = "intruder"


@dataclass(frozen=True, slots=True)
class FlpClientSpec:
    """One client. It knows the `servers` in this order, and has `lanes` connections to each. A try
    may take `attempt_s` (None: as long as its server lives), and there may be `attempts` of them.
    """

    name: str
    servers: tuple[str, ...]
    lanes: int = 1
    slots: int = 1024
    attempt_s: float | None = None
    attempts: int = 3


@dataclass(frozen=True, slots=True)
class FlpServerSpec:
    """One server: `capacity` handlers run at a time, `queue_max` requests of each client wait."""

    name: str
    capacity: int = 16
    queue_max: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FreelanceKnobs(Printed):
    """A run. `faulty_s` is the length of the first phase, in which `calls` calls are made.

    `faults_per_s` is the rate of each kind of fault; they last from a tenth of the interval of
    pings to `outage_max` of them. `behaviours` and `weights` say what is asked of handlers how
    often. `lossless`: nothing goes wrong, so every call must be answered at the first try.
    """

    one_by_one = frozenset({"clients", "servers"})

    calls: int
    faulty_s: float
    # the cast
    model: Model
    clients: tuple[FlpClientSpec, ...]
    servers: tuple[FlpServerSpec, ...]
    ping_s: float
    liveness: int
    # the work
    behaviours: tuple[Behaviour, ...]
    weights: tuple[int, ...]
    service_s: float
    timeout_s: float
    endless_p: float
    idempotent_p: float
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
    faults: tuple[FlpFault, ...]
    faults_per_s: float
    outage_max: float

    @property
    def outage_unit_s(self) -> float:
        """Outages are measured in intervals of pings."""
        return self.ping_s

    @property
    def ping(self) -> HeartbeatPolicy:
        """When servers are pinged, and when they are gone."""
        return HeartbeatPolicy(self.ping_s, self.liveness)

    @property
    def ttl_s(self) -> float:
        """How long a server may be silent."""
        return self.ping_s * self.liveness

    @property
    def ending_late_s(self) -> float:
        """How late a call may end after its deadline."""
        return self.pace.timer_late_s

    @property
    def runs_at_once(self) -> int | None:
        """How often a call runs at its first attempt if nothing goes wrong; None: any number."""
        return len(self.servers) if self.model is Model.SHOTGUN else 1

    @property
    def limits(self) -> LinkLimits:
        """What one connection may cost."""
        return link_limits(self.output_size_max)
