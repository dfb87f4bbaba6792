"""The options and the result of a run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from requite.sim.kernel.coverage import Combination
from requite.sim.kernel.diagram import diagram
from requite.sim.kernel.history import Violation
from requite.sim.kernel.transcript import Entry

Parts = TypeVar("Parts")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run. `parts`: engines or shells to test in place of the real ones, a record
    for each protocol (`MajordomoParts`, `SpParts`, ...). `knobs` replaces drawn knobs, by name; the
    first violation of the invariant `stop_at` ends the run. `coverage`: measure the run's coverage.
    """

    parts: tuple[Any, ...] = ()
    knobs: dict[str, Any] = field(default_factory=dict)
    transcript: bool = False
    heartbeats: bool = True  # whether the transcript has them
    stop_at: str = ""
    coverage: bool = False

    def parts_of(self, kind: type[Parts]) -> Parts:
        """Return the parts of one protocol; by default, the real ones."""
        return next((parts for parts in self.parts if type(parts) is kind), kind())


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run. `digest` is equal for equal runs only.

    `replay` is the command that repeats the run. `entries`, those of the transcript, and `coverage`
    are empty unless requested.
    """

    seed: int
    scenario: str
    knobs: tuple[str, ...]
    violations: tuple[Violation, ...]
    calls: int
    outcomes: dict[str, int]
    virtual_s: float
    events: int
    digest: str
    entries: tuple[Entry, ...] = ()
    coverage: Mapping[Combination, int] = field(default_factory=dict)

    @property
    def transcript(self) -> tuple[str, ...]:
        """The transcript as text, a line for each entry."""
        return tuple(map(str, self.entries))

    @property
    def diagram(self) -> tuple[str, ...]:
        """The transcript as a message diagram."""
        return tuple(diagram(self.entries))

    @property
    def replay(self) -> str:
        """The command that repeats this run."""
        return replay_command(self.seed, self.scenario)


def replay_command(seed: int, scenario: str, knobs: Iterable[str] = ()) -> str:
    """Return the command that repeats a run. `knobs` are NAME=VALUE."""
    options = "".join(f" --knob {shlex.quote(knob)}" for knob in knobs)
    return f"requite sim --seed {seed} --scenario {scenario}{options}"
