"""The checkers of a pair of brokers find what they are there for, in broken engines."""

from __future__ import annotations

import pytest
from tests.sim import paired_mutants as mutants

from requite.sim import Options, run
from requite.sim.roles import Parts

_SEEDS = range(1, 31)

_CASES: list[tuple[str, str, Parts]] = [
    # invariant, scenario, the broken engine
    ("I12", "pair-broker-switch", Parts(door=mutants.NeverShuts)),
    ("I12", "pair-broker-freeze", Parts(half=mutants.LeaseWithoutEnd)),
    ("I12", "pair-broker-kill", Parts(half=mutants.SameEpoch)),
    ("I10", "pair-broker-calm", Parts(door=mutants.LetsNobodyIn)),
    ("I10", "pair-broker-switch", Parts(broker=mutants.KeepsEverybody)),
    ("I11", "pair-broker-switch", Parts(broker=mutants.GivesBackTooMuch)),
    ("may_have_executed", "pair-broker-switch", Parts(broker=mutants.GivesBackTooMuch)),
]


def _name(parts: Parts) -> str:
    kinds = (parts.broker, parts.door, parts.half)
    return next(kind.__name__ for kind in kinds if kind.__module__ == mutants.__name__)


@pytest.mark.parametrize(
    ("invariant", "scenario", "parts"),
    [pytest.param(*case, id=f"{case[0]}-{_name(case[2])}") for case in _CASES],
)
def test_a_broken_engine_is_found(invariant: str, scenario: str, parts: Parts) -> None:
    for seed in _SEEDS:
        result = run(seed, scenario, Options(parts=parts))
        if invariant in {violation.invariant for violation in result.violations}:
            return
    pytest.fail(f"{invariant} found nothing in {len(_SEEDS)} seeds of {scenario}")


def test_the_same_seeds_find_nothing_in_engines_that_are_whole() -> None:
    for scenario in sorted({scenario for _, scenario, _ in _CASES}):
        result = run(1, scenario)
        assert not result.violations, result.replay
