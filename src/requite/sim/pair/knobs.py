"""The parameters of a run of a pair, drawn from its seed; printed before it begins."""

from __future__ import annotations

from dataclasses import dataclass

from requite.protocols.binarystar.policy import LIVENESS
from requite.shell.link import LinkLimits
from requite.sim.kernel.knobs import RunKnobs
from requite.sim.kernel.medium import Shape
from requite.sim.kernel.process import Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class PairKnobs(RunKnobs):
    """A run: `askers` clients make `calls` calls in the first phase, of `faulty_s` seconds.

    `patience_s` is how long a client waits for a reply before it tries the other server. With
    `islands` each client reaches only one server during faults. `timely`: the network between the
    two servers has no faults, so they may never serve at the same time.
    """

    askers: int
    patience_s: float
    islands: bool
    heartbeat_s: float
    timely: bool
    # network and lateness
    network: Shape
    pace: Pace

    @property
    def limits(self) -> LinkLimits:
        """The limits of the connections of intruders."""
        return LinkLimits()

    @property
    def outage_unit_s(self) -> float:
        """The unit of outages: the heartbeat interval."""
        return self.heartbeat_s

    @property
    def failover_s(self) -> float:
        """How long the active server is silent before the other may take over."""
        return LIVENESS * self.heartbeat_s

    @property
    def slack_s(self) -> float:
        """The time of a few steps, each with the maximum delay, beside heartbeats."""
        late_s = self.pace.timer_late_s + self.pace.flush_late_s
        return 10 * (self.network.latency_s + self.network.jitter_s + late_s) + 0.1
