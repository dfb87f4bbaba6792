"""Every check of the pair's simulation finds what it is there for, in servers that are broken."""

from __future__ import annotations

import pytest
from tests.sim import pair_mutants as mutants
from tests.sim.finding import Broken, assert_found, assert_whole, cases

from requite.protocols.binarystar.peer import BinaryStarPeer
from requite.sim import Options, run
from requite.sim.pair.server import PairParts

_CASES: list[tuple[str, str, type[BinaryStarPeer]]] = [
    ("I12", "pair-freeze", mutants.ServesOnWaking),
    ("I12", "pair-all-at-once", mutants.BelievesOldWords),
    ("I12", "pair-freeze", mutants.TakesItsPauseForSilence),
    ("I12", "pair-calm", mutants.Impatient),
    ("I12", "pair-crash", mutants.StartsActive),
    ("I12", "pair-islands", mutants.CountsOneByOne),
    ("fatal", "pair-cut", mutants.IgnoresEpochs),
    ("I10", "pair-calm", mutants.FailsBack),
    ("I10", "pair-calm", mutants.NeverTakesOver),
    ("I10", "pair-calm", mutants.NeverGoesOn),
    ("I10", "pair-calm", mutants.KeepsSwitchesToItself),
    ("I10", "pair-calm", mutants.LeavesAtOnce),
    ("I10", "pair-calm", mutants.NeverLeaves),
    ("I13", "pair-garbage", mutants.DiesOfGarbage),
]


BROKEN = [
    Broken(invariant, scenario, mutant.__name__, Options(pair_parts=PairParts(engine=mutant)))
    for invariant, scenario, mutant in _CASES
]


@cases(BROKEN)
def test_a_broken_server_is_found(broken: Broken) -> None:
    assert_found(broken)


def test_the_same_seeds_find_nothing_in_servers_that_are_whole() -> None:
    assert_whole((scenario for _, scenario, _ in _CASES), (1, 2, 3))


@pytest.mark.parametrize("scenario", ["pair-swarm", "pair-all-at-once"])
def test_a_run_is_a_function_of_its_seed(scenario: str) -> None:
    assert run(7, scenario).digest == run(7, scenario, Options(transcript=True)).digest
    assert run(7, scenario).digest != run(8, scenario).digest
