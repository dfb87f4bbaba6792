"""Every checker of the scalability protocols finds what it is there for, in broken engines."""

from __future__ import annotations

from typing import Any

from tests.sim import sp_mutants as mutants
from tests.sim.finding import Broken, assert_found, assert_whole, cases, name_of

from requite.sim import Options
from requite.sim.scalability.checkers import SP_CHECKERS
from requite.sim.scalability.party import SpParts

_CASES: list[tuple[str, str, SpParts]] = [
    # invariant, scenario, the broken engine
    ("I1", "sp-calm", SpParts(client=mutants.AnswersTwice)),
    ("I1", "sp-crash", SpParts(client=mutants.ForgetsToExpire)),
    ("I2", "sp-garbage", SpParts(client=mutants.TakesStrayReplies)),
    ("I2", "sp-slow-readers", SpParts(device=mutants.SwapsBodies)),
    ("I2", "sp-calm", SpParts(client=mutants.CountsFromOne, device=mutants.OneIdForAll)),
    ("I8", "sp-fair", SpParts(client=mutants.SameForEver)),
    ("I8", "sp-priorities", SpParts(client=mutants.WithoutWeights)),
    ("I8", "sp-overload", SpParts(worker=mutants.ServesOneAfterTheOther)),
    ("I9", "sp-crash", SpParts(client=mutants.RemembersTokens)),
    ("I9", "sp-calm", SpParts(device=mutants.RemembersEverybody)),
    ("I9", "sp-overload", SpParts(worker=mutants.ReadsOn)),
    ("I9", "sp-slow-readers", SpParts(device=mutants.ReadsAndReads)),
    ("I9", "sp-overload", SpParts(client=mutants.KeepsTags)),
    ("I9", "sp-overload", SpParts(client=mutants.HasNoLimit)),
    ("I9", "sp-overload", SpParts(worker=mutants.TakesTooMany)),
    ("I10", "sp-overload", SpParts(client=mutants.HoldsOn)),
    ("I10", "sp-overload", SpParts(worker=mutants.NeverReadsAgain)),
    ("I10", "sp-restart-devices", SpParts(client=mutants.NeverSendsAgain)),
    ("I10", "sp-slow-readers", SpParts(device=mutants.HoldsForEver)),
    ("I10", "sp-crash", SpParts(worker=mutants.WorksForNobody)),
    ("I11", "sp-no-resend", SpParts(client=mutants.SendsAgainWhatMayHaveRun)),
    ("I11", "sp-crash", SpParts(client=mutants.TriesForEver)),
    ("I11", "sp-partitions", SpParts(client=mutants.SendsAgainTooSoon)),
    ("resend", "sp-crash", SpParts(client=mutants.WaitsForItsTimer)),
    ("I13", "sp-garbage", SpParts(worker=mutants.DiesOfGarbage)),
    ("I13", "sp-garbage", SpParts(worker=mutants.PunishesTheInnocent)),
    ("I15", "sp-overload", SpParts(worker=mutants.StartsWhatWasLost)),
    ("I15", "sp-slow-readers", SpParts(client=mutants.SendsWhatIsTooLate)),
    ("pushback", "sp-slow-readers", SpParts(client=mutants.TakesNoNotice)),
    ("pushback", "sp-priorities", SpParts(client=mutants.Backwards)),
    ("pushback", "sp-slow-readers", SpParts(device=mutants.GivesUpAtOnce)),
    ("hops", "sp-loop", SpParts(device=mutants.GoesRoundAndRound)),
    ("hops", "sp-garbage", SpParts(worker=mutants.TakesDeepRequests)),
    ("lossless", "sp-calm", SpParts(device=mutants.LosesSome)),
    ("lossless", "sp-calm", SpParts(worker=mutants.SwapsRequests)),
    ("may_have_executed", "sp-crash", SpParts(client=mutants.SaysItHasNotRun)),
    # A bug that the simulator has found: put back, it is found again.
    ("I10", "sp-overload", SpParts(client=mutants.SpendsItsBudgetForGood)),
]


def _name(part: Any) -> str:
    kinds = (part.client, part.worker, part.device)
    return name_of(kinds, mutants.__name__)


BROKEN = [
    Broken(invariant, scenario, _name(parts), Options(sp_parts=parts))
    for invariant, scenario, parts in _CASES
]


@cases(BROKEN)
def test_a_broken_engine_is_found(broken: Broken) -> None:
    assert_found(broken)


def test_the_same_seeds_find_nothing_in_engines_that_are_whole() -> None:
    assert_whole(scenario for _, scenario, _ in _CASES)


def test_every_checker_has_a_broken_engine() -> None:
    broken = {invariant for invariant, _, _ in _CASES}
    assert broken == {checker.invariant for checker in SP_CHECKERS} | {"I9", "I10"}
