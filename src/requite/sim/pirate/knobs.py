"""Everything that a run of the Pirates is made of, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from requite.core.liveness import HeartbeatPolicy
from requite.shell.link import LinkLimits
from requite.sim.knobs import Behaviour, Printed, link_limits
from requite.sim.medium import Shape
from requite.sim.process import Pace

_SLACK_S: Final = 0.01


class Crew(StrEnum):
    """Whom the clients ask."""

    LAZY = "lazy"  # servers, one after the other
    SIMPLE = "simple"  # a queue and REQ workers
    PARANOID = "paranoid"  # a queue and workers with heartbeats


class PirateFault(StrEnum):
    """What can go wrong; the middle is the queue, or the servers where there is none."""

    CRASH_CLIENT = "crash-client"
    CRASH_MIDDLE = "crash-middle"
    CRASH_WORKER = "crash-worker"
    POWER_LOSS = "power-loss"
    FREEZE_CLIENT = "freeze-client"
    FREEZE_MIDDLE = "freeze-middle"
    FREEZE_WORKER = "freeze-worker"
    PARTITION = "partition"
    PARTITION_ONE_WAY = "partition-one-way"
    CLOG = "clog"
    RESET = "reset"
    BLACK_HOLE = "black-hole"
    DRAIN_CLIENT = "drain-client"
    DRAIN_MIDDLE = "drain-middle"
    DRAIN_WORKER = "drain-worker"
    INTRUDER = "intruder"


@dataclass(frozen=True, slots=True)
class PirateClientSpec:
    """One client: it sends a request `tries` times at most, each after `attempt_timeout_s`."""

    name: str
    tries: int = 3
    attempt_timeout_s: float = 1.0
    connections: int = 8
    slots: int = 64


@dataclass(frozen=True, slots=True)
class PirateWorkerSpec:
    """One worker at a queue."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PirateKnobs(Printed):
    """A run. `faulty_s` is the length of the first phase, in which `calls` calls are made.

    `faults_per_s` is the rate of each kind of fault; they last from a tenth of a heartbeat interval
    to `outage_max` of them. `behaviours` and `weights` say what is asked of handlers how often.
    `servers` is how many there are without a queue; `lossless`: nothing may be lost.
    """

    one_by_one = frozenset({"clients", "workers"})

    calls: int
    faulty_s: float
    # the cast
    crew: Crew
    clients: tuple[PirateClientSpec, ...]
    workers: tuple[PirateWorkerSpec, ...]
    servers: int
    capacity: int
    queue_max: int
    # the work
    behaviours: tuple[Behaviour, ...]
    weights: tuple[int, ...]
    service_s: float
    timeout_s: float
    idempotent_p: float
    cancel_p: float
    big_p: float
    bursts_p: float
    follow_p: float
    # presence
    interval_s: float
    liveness: int
    pause_first_s: float
    pause_max_s: float
    drain_timeout_s: float
    # the network, and how late processes are
    network: Shape
    pace: Pace
    output_size_max: int
    # what goes wrong
    lossless: bool
    faults: tuple[PirateFault, ...]
    faults_per_s: float
    outage_max: float

    @property
    def outage_unit_s(self) -> float:
        """Outages are measured in heartbeat intervals."""
        return self.interval_s

    @property
    def heartbeat(self) -> HeartbeatPolicy:
        """The heartbeats of queue and workers."""
        return HeartbeatPolicy(self.interval_s, self.liveness)

    @property
    def silence_s(self) -> float:
        """How long an idle peer must have been silent to be counted as gone."""
        return self.interval_s * self.liveness

    @property
    def ending_late_s(self) -> float:
        """How late a call may end after its deadline."""
        return self.pace.timer_late_s

    @property
    def runs_at_once(self) -> int | None:
        """How often a call runs at its first attempt if nothing goes wrong; None: any number."""
        return 1

    @property
    def heartbeat_late_s(self) -> float:
        """How late a heartbeat may be."""
        return self.pace.timer_late_s + _SLACK_S

    @property
    def limits(self) -> LinkLimits:
        """What one connection may cost."""
        return link_limits(self.output_size_max)

    @property
    def middle(self) -> list[str]:
        """The names of those whom clients dial."""
        if self.crew is Crew.LAZY:
            return [f"server-{i + 1}" for i in range(self.servers)]
        return ["queue"]
