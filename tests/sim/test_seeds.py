"""Simulate fixed seeds, and seeds that depend on the commit or the source."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest

import requite
from requite.sim import run
from requite.sim.scenarios import SCENARIOS


def _of_the_source() -> int:
    """Return a first seed derived from the source files, so that a run can be repeated."""
    files = sorted(Path(requite.__file__).parent.rglob("*.py"))
    return zlib.crc32(b"".join(file.read_bytes() for file in files)) >> 1


# `make test` runs seeds that depend on the commit, which its first line prints, and a fixed one in
# `test_determinism.py`. `make long` runs more fixed ones, and seeds that depend on the source.
# `make sim` runs random seeds.
# REQUITE_SIM_SEEDS=20 runs twenty times as many seeds.
_OF_EVERY_TREE = 1_000_000
_OF_THE_COMMIT = int(os.environ.get("REQUITE_TEST_SEED", "0"))
_TIMES = int(os.environ.get("REQUITE_SIM_SEEDS", "1"))
_SEEDS = {"swarm": 10 * _TIMES, "sp-swarm": 5 * _TIMES}
_SCENARIO_SEEDS = _TIMES


def _assert_no_violation(scenario: str, seed: int) -> None:
    result = run(seed, scenario)
    found = "\n".join(map(str, result.violations))
    assert not found, f"{found}\nreplay: {result.replay}"
    assert result.calls


@pytest.mark.timeout(180 * _TIMES)
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(
    ("first", "times"),
    [
        pytest.param(_OF_EVERY_TREE, 3, id="same", marks=pytest.mark.long),
        pytest.param(_OF_THE_COMMIT, 3, id="of the commit"),
        pytest.param(_of_the_source(), 9, id="of the source", marks=pytest.mark.long),
    ],
)
def test_seeds_violate_nothing(scenario: str, first: int, times: int) -> None:
    for i in range(times * _SEEDS.get(scenario, _SCENARIO_SEEDS)):
        _assert_no_violation(scenario, first + i)
