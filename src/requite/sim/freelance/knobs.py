"""The parameters of a Freelance run, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass

from requite.core.liveness import HeartbeatPolicy
from requite.protocols.freelance.wire import Model
from requite.sim.kernel.knobs import EngineKnobs


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
    """A run of clients and servers of a `model`.

    `lossless`: every call must be answered at the first attempt.
    """

    one_by_one = frozenset({"clients", "servers"})

    # processes
    model: Model
    clients: tuple[FlpClientSpec, ...]
    servers: tuple[FlpServerSpec, ...]
    ping_s: float
    liveness: int

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
