"""The same seeds in every run, and seeds that this state of the source has not run before."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest

import requite
from requite.sim import run
from requite.sim.scenarios import SCENARIOS


def _of_the_source() -> int:
    """Return a first seed that changes with the source: a run of the same tree can be repeated."""
    files = sorted(Path(requite.__file__).parent.rglob("*.py"))
    return zlib.crc32(b"".join(file.read_bytes() for file in files)) >> 1


# About 25 s of work. REQUITE_SIM_SEEDS=20 runs twenty times as many seeds; REQUITE_SIM_SEED=S
# starts with another one. `make test` runs the same seeds of every tree, so that what is changed
# elsewhere does not draw lots anew; `make long` those of the source, and `make sim` seeds that
# nobody has run before.
_FIRST = int(os.environ.get("REQUITE_SIM_SEED") or 1_000_000)
_TIMES = int(os.environ.get("REQUITE_SIM_SEEDS", "1"))
_SEEDS = {"swarm": 100 * _TIMES, "sp-swarm": 40 * _TIMES}
_SCENARIO_SEEDS = 8 * _TIMES


def _find_nothing(scenario: str, seed: int) -> None:
    result = run(seed, scenario)
    found = "\n".join(map(str, result.violations))
    assert not found, f"{found}\nreplay: {result.replay}"
    assert result.calls


@pytest.mark.timeout(180 * _TIMES)
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("first", [_FIRST, pytest.param(_of_the_source(), marks=pytest.mark.long)])
def test_seeds_find_nothing(scenario: str, first: int) -> None:
    for i in range(_SEEDS.get(scenario, _SCENARIO_SEEDS)):
        _find_nothing(scenario, first + i)
