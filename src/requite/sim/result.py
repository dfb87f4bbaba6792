"""The options and the result of a run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from requite.sim.amqp.stage import AmqpParts
from requite.sim.coverage import Combination
from requite.sim.diagram import diagram
from requite.sim.freelance.stage import FlpParts
from requite.sim.history import Violation
from requite.sim.pair.server import PairParts
from requite.sim.pirate.parties import PirateParts
from requite.sim.pool.stage import PoolSimParts
from requite.sim.roles import Parts
from requite.sim.scalability.party import SpParts
from requite.sim.shells.stage import ShellParts
from requite.sim.titanic.node import TitanicParts
from requite.sim.transcript import Entry


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run. `knobs` replaces drawn knobs, by name; the first violation of
    the invariant `stop_at` ends the run. `coverage`: measure the run's coverage."""

    parts: Parts = field(default_factory=Parts)
    sp_parts: SpParts = field(default_factory=SpParts)
    flp_parts: FlpParts = field(default_factory=FlpParts)
    titanic_parts: TitanicParts = field(default_factory=TitanicParts)
    pirate_parts: PirateParts = field(default_factory=PirateParts)
    pair_parts: PairParts = field(default_factory=PairParts)
    pool_parts: PoolSimParts = field(default_factory=PoolSimParts)
    amqp_parts: AmqpParts = field(default_factory=AmqpParts)
    shell_parts: ShellParts = field(default_factory=ShellParts)
    knobs: dict[str, Any] = field(default_factory=dict)
    transcript: bool = False
    heartbeats: bool = True  # whether the transcript has them
    stop_at: str = ""
    coverage: bool = False


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
