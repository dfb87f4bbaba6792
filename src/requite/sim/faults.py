"""What goes wrong in the first phase, and when: a schedule drawn from the seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from random import Random
from typing import Final, NamedTuple, Protocol

_SHORTEST: Final = 0.1  # of the unit
_RESTART_S_MAX: Final = 3.0


class Fault(NamedTuple):
    """One thing that goes wrong at `at_s`, for `duration_s`. `lot` in [0, 1) chooses the victim."""

    at_s: float
    kind: str
    duration_s: float
    lot: float


class FaultyKnobs(Protocol):
    """What knobs say of faults: which there are, how often each comes, until when, and how long
    they last: from a tenth of `outage_unit_s` to `outage_max` of these units."""

    @property
    def faults(self) -> Sequence[StrEnum]:
        """The kinds; see `FaultKind`."""

    @property
    def faults_per_s(self) -> float:
        """The rate of each kind."""

    @property
    def faulty_s(self) -> float:
        """When the last one comes at the latest."""

    @property
    def outage_unit_s(self) -> float:
        """What outages are measured in."""

    @property
    def outage_max(self) -> float:
        """How many units the longest lasts."""


def plan_faults(knobs: FaultyKnobs, rng: Random) -> Iterator[Fault]:
    """Draw the faults of the first phase: each kind comes at its rate, at random instants."""
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
    # As many short ones as long ones, by orders of magnitude: the borders of timeouts lie between.
    units: float = _SHORTEST * (knobs.outage_max / _SHORTEST) ** rng.random()
    return units * knobs.outage_unit_s
