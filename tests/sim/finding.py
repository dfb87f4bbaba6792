"""Whether checkers find what they are there for: in broken engines, and only there.

`broken_engines.txt` says which checker finds which broken engine: a seed that does, and how many of
the first twenty do. A test runs that seed. If seeds mean other runs by now, it runs more of them,
but no more than that share makes likely: a checker that finds an engine far less often than it did
fails then. `python -m tests.sim.broken` measures the shares again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import ceil, log
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from requite.sim import Options, run
from requite.sim.scenarios import GROUPS

TABLE: Final = Path(__file__).parent / "broken_engines.txt"
SEEDS: Final = range(1, 21)
_MISS_P: Final = 1e-4  # the chance that a checker as good as before finds nothing in time


class Broken(NamedTuple):
    """An engine that is broken on purpose: the checker that finds it, and where."""

    invariant: str
    scenario: str
    name: str
    options: Options

    @property
    def group(self) -> str:
        """Return the part of the simulator that it belongs to."""
        return next(g for g, names in GROUPS.items() if g != "all" and self.scenario in names)

    @property
    def key(self) -> tuple[str, str, str]:
        """Return what names it in the table."""
        return self.group, self.invariant, self.name

    def events(self, seed: int) -> int:
        """Run a seed; return how many events it took if the checker found something, else 0."""
        result = run(seed, self.scenario, replace(self.options, stop_at=self.invariant))
        found = {violation.invariant for violation in result.violations}
        return result.events if self.invariant in found else 0


class Row(NamedTuple):
    """What is known of a broken engine: a seed that finds it, the quickest one, and how many of
    `SEEDS` do."""

    scenario: str
    seed: int
    found: int

    @property
    def seeds_max(self) -> int:
        """Return how many seeds may be needed where seeds mean other runs than they did."""
        missed = 1 - (self.found + 1) / (len(SEEDS) + 2)
        return ceil(log(_MISS_P) / log(missed))

    def seeds(self) -> Iterator[int]:
        """Yield the seeds to try, the likeliest first."""
        yield self.seed
        yield from range(1, self.seeds_max)


@cache
def table() -> dict[tuple[str, str, str], Row]:
    """Read the table."""
    lines = [line for line in TABLE.read_text("utf-8").splitlines() if not line.startswith("#")]
    return {
        (group, invariant, name): Row(scenario, int(seed), int(found))
        for group, invariant, name, scenario, seed, found in map(str.split, lines)
    }


def assert_found(broken: Broken) -> None:
    """Check that a broken engine is found as it was before, or sooner."""
    row = table().get(broken.key)
    assert row, f"{broken.key} is not in {TABLE.name}: python -m tests.sim.broken {broken.name}"
    if not any(map(broken.events, row.seeds())):
        pytest.fail(
            f"{broken.invariant} does not find {broken.name} in {row.seeds_max} seeds of "
            f"{broken.scenario}; before, {row.found} of {len(SEEDS)} did"
        )


def assert_whole(scenarios: Iterable[str], seeds: Collection[int] = (1,)) -> None:
    """Check that engines that are not broken violate nothing."""
    for scenario in sorted(set(scenarios)):
        for seed in seeds:
            result = run(seed, scenario)
            assert not result.violations, result.replay
            assert result.calls


def name_of(kinds: Sequence[type], module: str) -> str:
    """Return the name of the first of these kinds of engine that comes from a module."""
    return next(kind.__name__ for kind in kinds if kind.__module__ == module)


def cases(engines: Iterable[Broken]) -> pytest.MarkDecorator:
    """Run a test with each broken engine."""
    params = [pytest.param(each, id=f"{each.invariant}-{each.name}") for each in engines]
    return pytest.mark.parametrize("broken", params)
