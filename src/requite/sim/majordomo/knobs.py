"""The knobs of a run with a Majordomo broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from requite.core.liveness import HeartbeatPolicy
from requite.protocols.majordomo.policy import LEGACY_IDLE_S, BrokerPolicy, PartialsFor01
from requite.shell.link import LinkLimits
from requite.sim.kernel.knobs import EngineKnobs

_POLICY: Final = BrokerPolicy()
_LIMITS: Final = (
    "client_pending_bytes_max",
    "pending_bytes_max",
    "client_services_max",
    "worker_capacity_max",
    "worker_expired_max",
)


@dataclass(frozen=True, slots=True)
class ClientSpec:
    """One client. `tries`: the most attempts of a call; `identity`: it announces its name; without
    a `first_sequence`, each start draws one.
    """

    name: str
    version: str
    slots: int = 64
    tries: int = 3
    attempt_timeout_s: float | None = None
    identity: bool = False
    first_sequence: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One worker; a lease of 0 never expires."""

    name: str
    service: str
    version: str
    capacity: int = 1
    lease_s: float = 0.0
    interval_s: float = 1.0
    identity: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs(EngineKnobs):
    """A run with a Majordomo broker. For the policy of the broker see `BrokerPolicy`."""

    one_by_one = frozenset({"clients", "workers"})

    # processes
    services: tuple[str, ...]
    clients: tuple[ClientSpec, ...]
    workers: tuple[WorkerSpec, ...]
    # calls
    partials_p: float
    nobody_p: float
    manage_p: float
    # presence and policy
    interval_s: float
    liveness: int
    attempts_max: int
    service_grace_s: float
    service_ttl_s: float
    services_max: int
    queue_max: int
    client_pending_max: int
    tell_old_clients: bool
    partials_for_0_1: PartialsFor01
    drain_timeout_s: float
    handover: bool
    # limits of memory
    client_pending_bytes_max: int = _POLICY.client_pending_bytes_max
    pending_bytes_max: int = _POLICY.pending_bytes_max
    client_services_max: int = _POLICY.client_services_max
    worker_capacity_max: int = _POLICY.worker_capacity_max
    worker_expired_max: int = _POLICY.worker_expired_max

    @property
    def is_limited(self) -> bool:
        """Whether any limit of memory is below its default."""
        ours, default = self.broker_policy, _POLICY
        return self.partial_size_max < LinkLimits().partial_size_max or any(
            getattr(ours, name) < getattr(default, name) for name in _LIMITS
        )

    @property
    def heartbeat(self) -> HeartbeatPolicy:
        """The heartbeats of the broker and of the clients."""
        return HeartbeatPolicy(self.interval_s, self.liveness)

    @property
    def outage_unit_s(self) -> float:
        """The unit of outages: the heartbeat interval."""
        return self.interval_s

    @property
    def broker_policy(self) -> BrokerPolicy:
        """The policy of the broker; checkers read its notes."""
        return BrokerPolicy(
            heartbeat=self.heartbeat,
            legacy_busy_timeout_s=self.legacy_busy_s,
            attempts_max=self.attempts_max,
            service_grace_s=self.service_grace_s,
            service_ttl_s=self.service_ttl_s,
            services_max=self.services_max,
            queue_max=self.queue_max,
            client_pending_max=self.client_pending_max,
            client_pending_bytes_max=self.client_pending_bytes_max,
            pending_bytes_max=self.pending_bytes_max,
            client_services_max=self.client_services_max,
            worker_capacity_max=self.worker_capacity_max,
            worker_expired_max=self.worker_expired_max,
            tell_old_clients=self.tell_old_clients,
            partials_for_0_1=self.partials_for_0_1,
            drain_timeout_s=self.drain_timeout_s,
            notes=True,
        )

    @property
    def legacy_busy_s(self) -> float:
        """How long a busy worker of MDP 0.1 or 0.2 may be silent: twice as long as one of 0.3."""
        return 2 * self.interval_s * self.liveness

    @property
    def slowest_interval_s(self) -> float:
        """The longest announced heartbeat interval; of two, the longer one is negotiated."""
        return max(self.interval_s, *(worker.interval_s for worker in self.workers))

    @property
    def ending_late_s(self) -> float:
        """How late a call may end after its deadline (I1)."""
        return self.interval_s + self.pace.timer_late_s

    @property
    def presence_s(self) -> float:
        """How long the broker and a worker may need to detect the loss of the other."""
        presence_s = self.liveness * self.slowest_interval_s
        if all(worker.version == "0.3" for worker in self.workers):
            return presence_s
        return max(presence_s, self.legacy_busy_s, LEGACY_IDLE_S)

    @property
    def silence_s(self) -> dict[str, float]:
        """How long the broker and a peer may be silent before they give each other up, by peer.

        MDP 0.1 and 0.2 announce no interval; their peers must be configured equally.
        """
        silence_s = {client.name: self.interval_s * self.liveness for client in self.clients}
        for worker in self.workers:
            silence_s[worker.name] = max(self.interval_s, worker.interval_s) * self.liveness
        return silence_s

    @property
    def silence_limit_s(self) -> dict[str, float]:
        """How long the broker and a worker may be silent to each other, by worker.

        It omits workers of MDP 0.1 and 0.2 with a lease: when a handler outlives the lease, they
        fall silent, so that the broker gives them up.
        """
        late_s = self.pace.timer_late_s + 0.002
        return {
            worker.name: max(self.interval_s, worker.interval_s) + late_s
            for worker in self.workers
            if worker.version == "0.3" or not worker.lease_s
        }
