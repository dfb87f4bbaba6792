"""The parameters of a run of the scalability protocols, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from requite.sim.kernel.knobs import EngineKnobs
from requite.sim.scalability.topology import Edge

_SLACK_S: Final = 0.01


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
    """A run of clients, devices and workers, with a channel for each of `edges`.

    `hold_s`: how long a device keeps a request that no channel accepts. `wraps`: ids begin a few
    below 2^31. `in_band`: connections use the IPC mapping, else that of TCP. `at_once`: every call
    is answered at the first attempt.
    """

    one_by_one = frozenset({"clients", "devices", "workers", "edges"})

    # processes
    shape: str
    clients: tuple[SpClientSpec, ...]
    devices: tuple[DeviceSpec, ...]
    workers: tuple[SpWorkerSpec, ...]
    edges: tuple[Edge, ...]
    hops: int
    hold_s: float
    wraps: bool
    in_band: bool
    at_once: bool = False

    @property
    def runs_at_once(self) -> int | None:
        """How often a call runs at its first attempt if nothing goes wrong; None: any number."""
        return 1 if self.at_once else None

    @property
    def resend_late_s(self) -> float:
        """How late a client may send a request again."""
        return self.pace.timer_late_s + self.pace.flush_late_s + _SLACK_S
