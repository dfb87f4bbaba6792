"""Check that the simulator finds each broken engine, and no violation in intact ones.

`broken_engines.txt` has a row per broken engine: a seed that finds it, and how many of the seeds 1
to 20 do. A test runs the known seed first. If seeds produce other runs by now, it runs as many more
as that share makes likely. It fails if the checker finds the engine far less often than before.
`python -m tests.sim.broken` measures the shares again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from math import ceil, log
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from requite.sim import Options, run
from requite.sim.scenarios import GROUPS

TABLE: Final = Path(__file__).parent / "broken_engines.txt"
SEEDS: Final = range(1, 21)
_MISS_P: Final = 1e-4  # the probability that an unchanged checker misses the engine


class Broken(NamedTuple):
    """A broken engine, and the invariant and scenario that find it."""

    invariant: str
    scenario: str
    name: str
    options: Options

    @property
    def group(self) -> str:
        """The group of the scenario (`requite.sim.scenarios.GROUPS`)."""
        return next(g for g, names in GROUPS.items() if g != "all" and self.scenario in names)

    @property
    def key(self) -> tuple[str, str, str]:
        """The key in `broken_engines.txt`."""
        return self.group, self.invariant, self.name

    def events(self, seed: int) -> int:
        """Run a seed; return the number of events if it violates the invariant, else 0."""
        result = run(seed, self.scenario, replace(self.options, stop_at=self.invariant))
        found = {violation.invariant for violation in result.violations}
        return result.events if self.invariant in found else 0


class Row(NamedTuple):
    """The quickest seed that finds a broken engine, and how many of `SEEDS` find it."""

    scenario: str
    seed: int
    found: int

    @property
    def seeds_max(self) -> int:
        """The number of seeds to try once the known seed no longer finds the engine."""
        missed = 1 - (self.found + 1) / (len(SEEDS) + 2)
        return ceil(log(_MISS_P) / log(missed))

    def seeds(self) -> Iterator[int]:
        """Yield the seeds to try: the known one, then 1, 2, ..."""
        yield self.seed
        yield from range(1, self.seeds_max)


@cache
def table() -> dict[tuple[str, str, str], Row]:
    """Read `broken_engines.txt`."""
    lines = [line for line in TABLE.read_text("utf-8").splitlines() if not line.startswith("#")]
    return {
        (group, invariant, name): Row(scenario, int(seed), int(found))
        for group, invariant, name, scenario, seed, found in map(str.split, lines)
    }


def assert_found(broken: Broken) -> None:
    """Check that a broken engine is found about as often as before."""
    row = table().get(broken.key)
    assert row, f"{broken.key} is not in {TABLE.name}: python -m tests.sim.broken {broken.name}"
    if not any(map(broken.events, row.seeds())):
        pytest.fail(
            f"{broken.invariant} does not find {broken.name} in {row.seeds_max} seeds of "
            f"{broken.scenario}; before, {row.found} of {len(SEEDS)} did"
        )


def assert_intact(
    scenarios: Iterable[str], seeds: Collection[int] = (1,), knobs: Mapping[str, Any] = {}
) -> None:
    """Check that intact engines violate nothing in the scenarios."""
    for scenario in sorted(set(scenarios)):
        for seed in seeds:
            result = run(seed, scenario, Options(knobs=dict(knobs)))
            assert not result.violations, result.replay
            assert result.calls


def cases(engines: Iterable[Broken]) -> pytest.MarkDecorator:
    """Parametrize a test over broken engines."""
    params = [pytest.param(each, id="-".join(each.key)) for each in engines]
    return pytest.mark.parametrize("broken", params)
