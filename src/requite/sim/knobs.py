"""The parameters of a run, drawn from its seed; printed before the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any, Final

from requite.core.liveness import HeartbeatPolicy
from requite.protocols.majordomo.policy import LEGACY_IDLE_S, BrokerPolicy, PartialsFor01
from requite.shell.link import LinkLimits
from requite.sim.faults import FaultKind
from requite.sim.medium import Shape
from requite.sim.process import Pace


class Behaviour(StrEnum):
    """What a handler does; the request names it."""

    ECHO = "echo"  # reply after the service time
    STREAM = "stream"  # send some partial replies first
    FAIL = "fail"  # send a negative reply
    VOUCH = "vouch"  # take longer than the lease, and report progress
    HANG = "hang"  # never end, unless abandoned
    POISON = "poison"  # crash the worker's process


BEHAVIOURS: Final = (
    Behaviour.ECHO,
    Behaviour.STREAM,
    Behaviour.FAIL,
    Behaviour.HANG,
    Behaviour.POISON,
)
"""The behaviours of handlers in protocols without leases."""
ANSWERING: Final = (Behaviour.ECHO, Behaviour.STREAM)
"""The behaviours that answer."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of run. `faults`: a run has all of these, with `swarm` a random subset.

    `fixed`: knobs with fixed values, by name: `network.NAME` of the network, `clients.NAME` of each
    client, and so on for the other roles.
    """

    name: str
    about: str
    faults: tuple[FaultKind, ...] = ()
    swarm: bool = False
    behaviours: tuple[Behaviour, ...] = BEHAVIOURS
    fixed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Printed:
    """Knobs that can be printed; those in `one_by_one` are lists, with a line for each item."""

    one_by_one = frozenset[str]()

    def lines(self) -> Iterator[str]:
        """Yield each knob as a line of text."""
        for knob in fields(self):
            value = getattr(self, knob.name)
            if knob.name in self.one_by_one:
                yield from (f"{knob.name[:-1]:<18} {_text(each)}" for each in value)
            else:
                yield f"{knob.name:<18} {_text(value)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKnobs(Printed):
    """The knobs of every run. The first phase takes `faulty_s` and makes `calls` calls.

    `faults_per_s` is the rate of each kind of fault; a fault lasts from 0.1 to `outage_max` units
    of `outage_unit_s`.
    """

    calls: int
    faulty_s: float
    faults: tuple[FaultKind, ...]
    faults_per_s: float
    outage_max: float

    @property
    def outage_unit_s(self) -> float:
        """The unit of outages: one second, or the heartbeat interval where there is one."""
        return 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallKnobs(RunKnobs):
    """The knobs of runs whose clients make calls over a simulated network.

    Handlers draw from `behaviours` with `weights`. `lossless`: without faults, so that every call
    must be answered.
    """

    # calls
    behaviours: tuple[Behaviour, ...]
    weights: tuple[int, ...]
    service_s: float
    timeout_s: float
    endless_p: float = 0.0
    idempotent_p: float
    cancel_p: float
    big_p: float
    bursts_p: float
    follow_p: float
    lossless: bool = False
    # network and lateness
    network: Shape
    pace: Pace

    @property
    def ending_late_s(self) -> float:
        """How late a call may end after its deadline (I1)."""
        return self.pace.timer_late_s

    @property
    def runs_at_once(self) -> int | None:
        """How often a call runs at its first attempt if nothing goes wrong; None: any number."""
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKnobs(CallKnobs):
    """The knobs of runs with engines behind simulated connections."""

    output_size_max: int

    @property
    def limits(self) -> LinkLimits:
        """The limits of one connection."""
        return LinkLimits(
            handshake_timeout_s=3.0, linger_s=1.0, output_size_max=self.output_size_max
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


def values_of(knobs: RunKnobs) -> dict[str, Any]:
    """Return all knobs by name, for a run that has more of them."""
    return {knob.name: getattr(knobs, knob.name) for knob in fields(knobs)}


def _text(value: Any) -> str:
    if is_dataclass(value):
        settings = ((f.name, getattr(value, f.name)) for f in fields(value))
        return " ".join(f"{name}={_text(setting)}" for name, setting in settings)
    if type(value) is tuple:
        return " ".join(map(_text, value)) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
