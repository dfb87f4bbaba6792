"""The parameters of a Freelance run, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass

from requite.core.liveness import HeartbeatPolicy
from requite.protocols.freelance.wire import Model
from requite.sim.faults import FaultKind
from requite.sim.knobs import Behaviour, EngineKnobs
from requite.sim.medium import Shape
from requite.sim.process import Pace


@dataclass(frozen=True, slots=True)
class FlpClientSpec:
    """One client: its `servers` in order, with `lanes` connections to each.

    A call has at most `attempts` attempts of `attempt_s` each (None: while its server is live).
    """

    name: str
    servers: tuple[str, ...]
    lanes: int = 1
    slots: int = 1024
    attempt_s: float | None = None
    attempts: int = 3


@dataclass(frozen=True, slots=True)
class FlpServerSpec:
    """One server: it runs `capacity` handlers at a time, and queues `queue_max` requests per
    client."""

    name: str
    capacity: int = 16
    queue_max: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FreelanceKnobs(EngineKnobs):
    """A run. The first phase takes `faulty_s` and makes `calls` calls.

    `faults_per_s` is the rate of each kind of fault; a fault lasts from 0.1 to `outage_max` ping
    intervals. Handlers draw from `behaviours` with `weights`. `lossless`: without faults, so every
    call must be answered at the first attempt.
    """

    one_by_one = frozenset({"clients", "servers"})

    calls: int
    faulty_s: float
    # processes
    model: Model
    clients: tuple[FlpClientSpec, ...]
    servers: tuple[FlpServerSpec, ...]
    ping_s: float
    liveness: int
    # calls
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
    # network and lateness
    network: Shape
    pace: Pace
    output_size_max: int
    # faults
    lossless: bool
    faults: tuple[FaultKind, ...]
    faults_per_s: float
    outage_max: float

    @property
    def outage_unit_s(self) -> float:
        """The unit of outages: the ping interval."""
        return self.ping_s

    @property
    def ping(self) -> HeartbeatPolicy:
        """When a client pings servers, and when it gives them up."""
        return HeartbeatPolicy(self.ping_s, self.liveness)

    @property
    def ttl_s(self) -> float:
        """How long a server may be silent before it is given up."""
        return self.ping_s * self.liveness

    @property
    def runs_at_once(self) -> int | None:
        """How often a call runs at its first attempt if nothing goes wrong; None: any number."""
        return len(self.servers) if self.model is Model.SHOTGUN else 1
