"""Everything that a run of the scalability protocols is made of, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from requite.shell.link import LinkLimits
from requite.sim.knobs import Behaviour, Printed, link_limits
from requite.sim.medium import Shape
from requite.sim.process import Pace
from requite.sim.scalability.topology import Edge

_SLACK_S: Final = 0.01


class Named(Protocol):
    """What the specification of any process has."""

    @property
    def name(self) -> str:
        """What its node is called."""


class SpFault(StrEnum):
    """What can go wrong."""

    CRASH_CLIENT = "crash-client"
    CRASH_DEVICE = "crash-device"
    CRASH_WORKER = "crash-worker"
    POWER_LOSS = "power-loss"
    FREEZE_CLIENT = "freeze-client"
    FREEZE_DEVICE = "freeze-device"
    FREEZE_WORKER = "freeze-worker"
    PARTITION = "partition"
    PARTITION_ONE_WAY = "partition-one-way"
    CLOG = "clog"
    RESET = "reset"
    BLACK_HOLE = "black-hole"
    SLOW_READER = "slow-reader"
    DRAIN_CLIENT = "drain-client"
    DRAIN_DEVICE = "drain-device"
    DRAIN_WORKER = "drain-worker"
    INTRUDER = "intruder"


class Loss(StrEnum):
    """What a run must not lose, at the least."""

    SOME = "some"  # deadlines may pass: faults see to that
    NONE = "none"  # every call that waits for its reply gets one
    NONE_AT_ONCE = "none-at-once"  # and at the first try


@dataclass(frozen=True, slots=True)
class SpClientSpec:
    """One client. It sends again after `resend_s` (None: never by itself), at most `tries` times
    (None: without a limit). `hold`: a call waits while there is nobody who takes it. `soon`: what
    its user wants in one turn is done at the end of it, together."""

    name: str
    slots: int = 1024
    resend_s: float | None = 1.0
    tries: int | None = None
    hold: bool = True
    soon: bool = False
    first_id: int | None = None  # of the request ids of its first life; None: drawn

    @property
    def is_persistent(self) -> bool:
        """Whether it sends an idempotent call again until it is answered."""
        return self.resend_s is not None and self.tries is None and self.hold


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """One device."""

    name: str
    first_id: int | None = None  # of the channel ids of its first life; None: drawn


@dataclass(frozen=True, slots=True)
class SpWorkerSpec:
    """One worker: `capacity` handlers run at a time, `queue_max` requests of each channel wait."""

    name: str
    capacity: int = 16
    queue_max: int = 1024
    first_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalabilityKnobs(Printed):
    """A run. `faulty_s` is the length of the first phase, in which `calls` calls are made.

    `faults_per_s` is the rate of each kind of fault; they last from a tenth of a second to
    `outage_max` seconds. `behaviours` and `weights` say what is asked of handlers how often.
    `hold_s` is how long a device keeps what nobody takes. `wraps`: ids begin a few below 2^31.
    `in_band`: the IPC mapping is spoken, else that of TCP.
    """

    one_by_one = frozenset({"clients", "devices", "workers", "edges"})

    calls: int
    faulty_s: float
    # the cast
    shape: str
    clients: tuple[SpClientSpec, ...]
    devices: tuple[DeviceSpec, ...]
    workers: tuple[SpWorkerSpec, ...]
    edges: tuple[Edge, ...]
    hops: int
    hold_s: float
    wraps: bool
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
    in_band: bool
    output_size_max: int
    # what goes wrong
    loss: Loss
    faults: tuple[SpFault, ...]
    faults_per_s: float
    outage_max: float

    @property
    def outage_unit_s(self) -> float:
        """Outages are measured in seconds: nothing else sets a pace."""
        return 1.0

    @property
    def ending_late_s(self) -> float:
        """How late a call may end after its deadline."""
        return self.pace.timer_late_s

    @property
    def lossless(self) -> bool:
        """Whether every call that waits for its reply gets one."""
        return self.loss is not Loss.SOME

    @property
    def runs_at_once(self) -> int | None:
        """How often a call runs at its first attempt if nothing goes wrong; None: any number."""
        return 1 if self.loss is Loss.NONE_AT_ONCE else None

    @property
    def resend_late_s(self) -> float:
        """How late a client may send a request again."""
        return self.pace.timer_late_s + self.pace.flush_late_s + _SLACK_S

    @property
    def limits(self) -> LinkLimits:
        """What one connection may cost."""
        return link_limits(self.output_size_max)

    @property
    def names(self) -> list[str]:
        """Everybody who is honest."""
        specs: tuple[Named, ...] = (*self.clients, *self.devices, *self.workers)
        return [spec.name for spec in specs]
