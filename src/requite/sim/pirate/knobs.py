"""The parameters of a Pirate run, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from requite.core.liveness import HeartbeatPolicy
from requite.sim.kernel.knobs import EngineKnobs

_SLACK_S: Final = 0.01


class PirateVariant(StrEnum):
    """The variant of the Pirate pattern: the peers of the clients."""

    LAZY = "lazy"  # servers, one at a time
    SIMPLE = "simple"  # a queue and REQ workers
    PARANOID = "paranoid"  # a queue and workers with heartbeats


@dataclass(frozen=True, slots=True)
class PirateClientSpec:
    """One client: it makes at most `tries` attempts of `attempt_timeout_s` each."""

    name: str
    tries: int = 3
    attempt_timeout_s: float = 1.0
    connections: int = 8
    slots: int = 64


@dataclass(frozen=True, slots=True)
class PirateWorkerSpec:
    """One worker at a queue, or one server."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PirateKnobs(EngineKnobs):
    """A run of clients, and servers or a queue with workers.

    `servers`: their number in a run without a queue. `lossless`: no call may be lost.
    """

    one_by_one = frozenset({"clients", "workers"})

    # processes
    crew: PirateVariant
    clients: tuple[PirateClientSpec, ...]
    workers: tuple[PirateWorkerSpec, ...]
    servers: int
    capacity: int
    queue_max: int
    # presence
    interval_s: float
    liveness: int
    pause_first_s: float
    pause_max_s: float
    drain_timeout_s: float

    @property
    def outage_unit_s(self) -> float:
        """The unit of outages: the heartbeat interval."""
        return self.interval_s

    @property
    def heartbeat(self) -> HeartbeatPolicy:
        """The heartbeats of queue and workers."""
        return HeartbeatPolicy(self.interval_s, self.liveness)

    @property
    def silence_s(self) -> float:
        """How long an idle peer may be silent before it is given up."""
        return self.interval_s * self.liveness

    @property
    def heartbeat_late_s(self) -> float:
        """How late a heartbeat may be."""
        return self.pace.timer_late_s + _SLACK_S

    @property
    def middle(self) -> list[str]:
        """The names of the queue or the servers, to which clients connect."""
        if self.crew is PirateVariant.LAZY:
            return [f"server-{i + 1}" for i in range(self.servers)]
        return ["queue"]
