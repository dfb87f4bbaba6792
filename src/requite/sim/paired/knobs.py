"""What a run is made of, beside what every run around a broker is."""

from __future__ import annotations

from dataclasses import dataclass

from requite.sim.knobs import Knobs


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedKnobs(Knobs):
    """A run. The two brokers tell each other every `pair_heartbeat_s` what they are; an operator
    wants the other one to serve `switches` times."""

    pair_heartbeat_s: float
    switches: int
