"""Every checker of RPC over AMQP finds what it is there for, in broken engines."""

from __future__ import annotations

from typing import Any

import pytest
from tests.sim import amqp_mutants as mutants
from tests.sim.finding import assert_found, assert_whole

from requite.protocols.amqp.caller import AmqpCaller
from requite.sim import Options
from requite.sim.amqp.party import AmqpParts
from requite.sim.amqp.simulation import AMQP_CHECKERS

# Where each is found now comes first; it changes with every knob that is added.
_FOUND_AT = {
    mutants.ForgetsToExpire: 2,
    mutants.TakesLateReplies: 3,
    mutants.RunsForEver: 3,
    mutants.TriesForEver: 3,
    mutants.IsImpatient: 3,
    mutants.PublishesAnyhow: 2,
    mutants.SaysItHasNotRun: 2,
    mutants.KeepsWhatIsLost: 3,
    mutants.LeavesAtOnce: 3,
    mutants.WaitsForEver: 9,
    mutants.ForgetsCopies: 3,
    mutants.WaitsForTheNextReturn: 84,
}
_SEEDS = range(1, 41)

_CASES: list[tuple[str, str, Any]] = [
    # invariant, scenario, the broken engine
    ("I1", "amqp-calm", mutants.AnswersTwice),
    ("I1", "amqp-workers", mutants.ForgetsToExpire),
    ("I2", "amqp-overload", mutants.TakesLateReplies),
    ("I5", "amqp-calm", mutants.JumblesPartials),
    ("I5", "amqp-streams", mutants.MissesSome),
    ("I7", "amqp-workers", mutants.RunsForEver),
    ("I9", "amqp-overload", mutants.TakesOneMore),
    ("I9", "amqp-overload", mutants.TakesTooMany),
    ("I9", "amqp-rabbit", mutants.RemembersCalls),
    ("I10", "amqp-deleted", mutants.StaysAway),
    ("I10", "amqp-deleted", mutants.KeepsTheOldQueue),
    ("I10", "amqp-drain", mutants.NeverAcknowledges),
    ("I11", "amqp-once", mutants.SendsWhatMayHaveRun),
    ("I11", "amqp-rabbit", mutants.TriesForEver),
    ("I11", "amqp-overload", mutants.IsImpatient),
    ("I13", "amqp-garbage", mutants.DiesOfGarbage),
    ("I13", "amqp-garbage", mutants.PunishesTheInnocent),
    ("I15", "amqp-cancels", mutants.ForgetsCancels),
    ("I15", "amqp-swarm", mutants.PublishesAnyhow),
    ("may_have_executed", "amqp-workers", mutants.SaysItHasNotRun),
    ("acked-last", "amqp-calm", mutants.AcknowledgesAtOnce),
    ("returned", "amqp-deleted", mutants.IgnoresReturns),
    ("manners", "amqp-calm", mutants.AcknowledgesTwice),
    ("manners", "amqp-rabbit", mutants.KeepsWhatIsLost),
    ("drain", "amqp-drain", mutants.LeavesAtOnce),
    ("heard", "amqp-quiet", mutants.NeverBeats),
    ("heard", "amqp-standstill", mutants.WaitsForEver),
    ("lossless", "amqp-calm", mutants.HearsBadly),
    # Bugs that the simulator has found: put back, they are found again.
    ("I15", "amqp-cancels", mutants.ForgetsCopies),
    ("returned", "amqp-swarm", mutants.WaitsForTheNextReturn),
]


def _parts(broken: Any) -> AmqpParts:
    """Put a broken engine in the place of the one it is made of."""
    if issubclass(broken, AmqpCaller):
        return AmqpParts(caller=broken)
    return AmqpParts(responder=broken)


@pytest.mark.parametrize(
    ("invariant", "scenario", "broken"),
    [pytest.param(*case, id=f"{case[0]}-{case[2].__name__}") for case in _CASES],
)
def test_a_broken_engine_is_found(invariant: str, scenario: str, broken: Any) -> None:
    options = Options(amqp_parts=_parts(broken))
    assert_found(invariant, scenario, options, (_FOUND_AT.get(broken, 1), *_SEEDS))


def test_the_same_seeds_find_nothing_in_engines_that_are_whole() -> None:
    assert_whole(scenario for _, scenario, _ in _CASES)


def test_every_checker_has_a_broken_engine() -> None:
    broken = {invariant for invariant, _, _ in _CASES}
    assert broken == {checker.invariant for checker in AMQP_CHECKERS} | {"I10"}
