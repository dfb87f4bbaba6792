"""The parameters of a run, beside those of every run with a broker."""

from __future__ import annotations

from dataclasses import dataclass

from requite.dedup.policy import InDoubt
from requite.sim.majordomo.knobs import Knobs


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupKnobs(Knobs):
    """A run. `repeat_p`: the probability that a user repeats a call with the same key.

    The disk takes up to `disk_s` for a write, and for a sync. For the rest see `DedupPolicy`.
    """

    repeat_p: float
    durable: bool
    in_doubt: InDoubt
    store_failures: bool
    window_s: float
    disk_s: float
    segment_size: int
