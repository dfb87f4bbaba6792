"""Every checker of RPC over AMQP finds what it is there for, in broken engines."""

from __future__ import annotations

from typing import Any

from tests.sim import amqp_mutants as mutants
from tests.sim.finding import Broken, assert_found, assert_whole, cases

from requite.protocols.amqp.caller import AmqpCaller
from requite.sim import Options
from requite.sim.amqp.simulation import AMQP_CHECKERS
from requite.sim.amqp.stage import AmqpParts

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


BROKEN = [
    Broken(invariant, scenario, broken.__name__, Options(amqp_parts=_parts(broken)))
    for invariant, scenario, broken in _CASES
]


@cases(BROKEN)
def test_a_broken_engine_is_found(broken: Broken) -> None:
    assert_found(broken)


def test_the_same_seeds_find_nothing_in_engines_that_are_whole() -> None:
    assert_whole(scenario for _, scenario, _ in _CASES)


def test_every_checker_has_a_broken_engine() -> None:
    broken = {invariant for invariant, _, _ in _CASES}
    assert broken == {checker.invariant for checker in AMQP_CHECKERS} | {"I10"}
