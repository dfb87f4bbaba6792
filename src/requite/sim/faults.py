"""The schedule of faults in the first phase, drawn from the seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from random import Random
from typing import Final, NamedTuple, Protocol

_SHORTEST: Final = 0.1  # in units
_RESTART_S_MAX: Final = 3.0


class Fault(NamedTuple):
    """A fault at `at_s` that lasts for `duration_s`. `lot` in [0, 1) chooses the victim."""

    at_s: float
    kind: str
    duration_s: float
    lot: float


class FaultyKnobs(Protocol):
    """The knobs of faults: kinds, rate, time of the last one, and duration: from a tenth of
    `outage_unit_s` to `outage_max` of these units."""

    @property
    def faults(self) -> Sequence[StrEnum]:
        """The kinds of faults; see `FaultKind`."""

    @property
    def faults_per_s(self) -> float:
        """The rate of each kind."""

    @property
    def faulty_s(self) -> float:
        """The latest time of a fault."""

    @property
    def outage_unit_s(self) -> float:
        """The unit of outages."""

    @property
    def outage_max(self) -> float:
        """The longest outage, in units."""


def plan_faults(knobs: FaultyKnobs, rng: Random) -> Iterator[Fault]:
    """Draw the faults of the first phase: each kind at its rate, at random times."""
    for kind in knobs.faults:
        at_s = rng.expovariate(knobs.faults_per_s)
        while at_s < knobs.faulty_s:
            yield Fault(at_s, kind, _duration_s(knobs, rng, kind), rng.random())
            at_s += rng.expovariate(knobs.faults_per_s)


def _duration_s(knobs: FaultyKnobs, rng: Random, kind: StrEnum) -> float:
    if kind.startswith("crash"):
        return rng.uniform(0.0, _RESTART_S_MAX)
    if kind == "intruder":
        return rng.uniform(0.5, 5.0)
    # Log-uniform, so that durations fall on both sides of every timeout.
    units: float = _SHORTEST * (knobs.outage_max / _SHORTEST) ** rng.random()
    return units * knobs.outage_unit_s
