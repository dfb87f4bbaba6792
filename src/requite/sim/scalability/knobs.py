"""The parameters of a run of the scalability protocols, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from requite.sim.faults import FaultKind
from requite.sim.knobs import Behaviour, EngineKnobs
from requite.sim.medium import Shape
from requite.sim.process import Pace
from requite.sim.scalability.topology import Edge

_SLACK_S: Final = 0.01


class Named(Protocol):
    """The specification of any process."""

    @property
    def name(self) -> str:
        """The name of its node."""


class Loss(StrEnum):
    """The calls that a run may lose."""

    SOME = "some"  # faults may make calls time out
    NONE = "none"  # every call that is not cancelled gets its reply
    NONE_AT_ONCE = "none-at-once"  # every call gets its reply at the first attempt


@dataclass(frozen=True, slots=True)
class SpClientSpec:
    """One client. It resends after `resend_s` (None: never), with at most `tries` attempts (None:
    no limit). `hold`: a call waits while no channel accepts it. `soon`: the calls of one turn are
    submitted together at its end."""

    name: str
    slots: int = 1024
    resend_s: float | None = 1.0
    tries: int | None = None
    hold: bool = True
    soon: bool = False
    first_id: int | None = None  # the first request id of its first start; None: drawn

    @property
    def is_persistent(self) -> bool:
        """Whether it resends an idempotent call until it is answered."""
        return self.resend_s is not None and self.tries is None and self.hold


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """One device."""

    name: str
    first_id: int | None = None  # the first channel id of its first start; None: drawn


@dataclass(frozen=True, slots=True)
class SpWorkerSpec:
    """One worker: it runs `capacity` handlers at a time, and queues `queue_max` requests per
    channel."""

    name: str
    capacity: int = 16
    queue_max: int = 1024
    first_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalabilityKnobs(EngineKnobs):
    """A run. The first phase takes `faulty_s` and makes `calls` calls.

    `faults_per_s` is the rate of each kind of fault; a fault lasts from 0.1 to `outage_max`
    seconds. Handlers draw from `behaviours` with `weights`. `hold_s`: how long a device keeps a
    request that no channel accepts. `wraps`: ids begin a few below 2^31. `in_band`: connections use
    the IPC mapping, else that of TCP.
    """

    one_by_one = frozenset({"clients", "devices", "workers", "edges"})

    calls: int
    faulty_s: float
    # processes
    shape: str
    clients: tuple[SpClientSpec, ...]
    devices: tuple[DeviceSpec, ...]
    workers: tuple[SpWorkerSpec, ...]
    edges: tuple[Edge, ...]
    hops: int
    hold_s: float
    wraps: bool
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
    in_band: bool
    output_size_max: int
    # faults
    loss: Loss
    faults: tuple[FaultKind, ...]
    faults_per_s: float
    outage_max: float

    @property
    def outage_unit_s(self) -> float:
        """The unit of outages: one second."""
        return 1.0

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
    def names(self) -> list[str]:
        """The names of all honest processes."""
        specs: tuple[Named, ...] = (*self.clients, *self.devices, *self.workers)
        return [spec.name for spec in specs]
