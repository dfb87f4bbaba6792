"""Every checker of the Pirates finds what it is there for, in broken engines."""

from __future__ import annotations

from typing import Any

from tests.sim import pirate_mutants as mutants
from tests.sim.finding import Broken, assert_found, assert_whole, cases, name_of

from requite.sim import Options
from requite.sim.pirate.checkers import PIRATE_CHECKERS
from requite.sim.pirate.parties import PirateParts

_CASES: list[tuple[str, str, PirateParts]] = [
    # invariant, scenario, the broken engine
    ("I1", "pirate-calm", PirateParts(client=mutants.AnswersTwice)),
    ("I1", "pirate-lazy", PirateParts(client=mutants.ForgetsToExpire)),
    ("I1", "pirate-partitions", PirateParts(client=mutants.LosesWhatWasSent)),
    ("I2", "pirate-overload", PirateParts(client=mutants.KeepsItsSocket)),
    ("I2", "pirate-calm", PirateParts(queue=mutants.SendsToTheFirst)),
    ("I2", "pirate-lazy", PirateParts(server=mutants.SwapsReplies)),
    ("lock-step", "pirate-overload", PirateParts(client=mutants.KeepsItsSocket)),
    ("I6", "pirate-simple", PirateParts(queue=mutants.Redelivers)),
    ("I6", "pirate-paranoid", PirateParts(queue=mutants.HandsOutOnTop)),
    ("I6", "pirate-garbage", PirateParts(queue=mutants.TakesAnyWord)),
    ("I8", "pirate-calm", PirateParts(queue=mutants.MostRecentlyUsed)),
    ("I9", "pirate-calm", PirateParts(client=mutants.RemembersTokens)),
    ("I9", "pirate-calm", PirateParts(queue=mutants.RemembersEverybody)),
    ("I10", "pirate-lazy", PirateParts(server=mutants.KeepsJobs)),
    ("I10", "pirate-lazy", PirateParts(client=mutants.NeverDialsAgain)),
    ("I10", "pirate-simple", PirateParts(worker=mutants.NeverSaysReadyAgain)),
    ("I11", "pirate-lazy", PirateParts(client=mutants.SendsAgainWhatMayHaveRun)),
    ("I11", "pirate-lazy", PirateParts(client=mutants.TriesForEver)),
    ("I13", "pirate-garbage", PirateParts(queue=mutants.DiesOfGarbage)),
    ("I15", "pirate-overload", PirateParts(queue=mutants.KeepsWhatWasGivenUp)),
    ("I15", "pirate-overload", PirateParts(server=mutants.StartsWhatWasGivenUp)),
    ("idle", "pirate-overload", PirateParts(queue=mutants.LetsWait)),
    ("presence", "pirate-calm", PirateParts(queue=mutants.NeverBeats)),
    ("presence", "pirate-silence", PirateParts(queue=mutants.TrustsForEver)),
    ("presence", "pirate-paranoid", PirateParts(queue=mutants.JudgesTheBusy)),
    ("presence", "pirate-paranoid", PirateParts(worker=mutants.NeverBreathes)),
    ("presence", "pirate-paranoid", PirateParts(worker=mutants.LeavesTooSoon)),
    ("presence", "pirate-paranoid", PirateParts(worker=mutants.ForgetsReceived)),
    ("may_have_executed", "pirate-lazy", PirateParts(client=mutants.SaysItHasNotRun)),
    ("lossless", "pirate-calm", PirateParts(queue=mutants.LosesSome)),
]


def _name(part: Any) -> str:
    kinds = (part.client, part.server, part.queue, part.worker)
    return name_of(kinds, mutants.__name__)


BROKEN = [
    Broken(invariant, scenario, _name(parts), Options(pirate_parts=parts))
    for invariant, scenario, parts in _CASES
]


@cases(BROKEN)
def test_a_broken_engine_is_found(broken: Broken) -> None:
    assert_found(broken)


def test_the_same_seeds_find_nothing_in_engines_that_are_whole() -> None:
    assert_whole(scenario for _, scenario, _ in _CASES)


def test_every_checker_has_a_broken_engine() -> None:
    broken = {invariant for invariant, _, _ in _CASES}
    ours = {checker.invariant for checker in PIRATE_CHECKERS} - {"I5"}  # that of all protocols
    assert broken == ours | {"I6", "I9", "I10", "idle"}
