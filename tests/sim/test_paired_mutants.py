"""The checkers of a pair of brokers find what they are there for, in broken engines."""

from __future__ import annotations

from tests.sim import paired_mutants as mutants
from tests.sim.finding import Broken, assert_found, assert_whole, cases, name_of

from requite.sim import Options
from requite.sim.roles import Parts

_CASES: list[tuple[str, str, Parts]] = [
    # invariant, scenario, the broken engine
    ("I12", "pair-broker-switch", Parts(gate=mutants.NeverShuts)),
    ("I12", "pair-broker-freeze", Parts(half=mutants.LeaseWithoutEnd)),
    ("I12", "pair-broker-kill", Parts(half=mutants.SameEpoch)),
    ("I10", "pair-broker-calm", Parts(gate=mutants.LetsNobodyIn)),
    ("I10", "pair-broker-switch", Parts(broker=mutants.KeepsEverybody)),
    ("I11", "pair-broker-switch", Parts(broker=mutants.GivesBackTooMuch)),
    ("may_have_executed", "pair-broker-switch", Parts(broker=mutants.GivesBackTooMuch)),
]


def _name(parts: Parts) -> str:
    kinds = (parts.broker, parts.gate, parts.half)
    return name_of(kinds, mutants.__name__)


BROKEN = [
    Broken(invariant, scenario, _name(parts), Options(parts=parts))
    for invariant, scenario, parts in _CASES
]


@cases(BROKEN)
def test_a_broken_engine_is_found(broken: Broken) -> None:
    assert_found(broken)


def test_the_same_seeds_find_nothing_in_engines_that_are_whole() -> None:
    assert_whole(scenario for _, scenario, _ in _CASES)
