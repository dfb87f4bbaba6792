"""The parameters of a run, beside those of every run with a broker."""

from __future__ import annotations

from dataclasses import dataclass

from requite.sim.majordomo.knobs import Knobs


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedKnobs(Knobs):
    """A run. The two brokers exchange heartbeats every `pair_heartbeat_s`; an operator switches
    `switches` times."""

    pair_heartbeat_s: float
    switches: int
