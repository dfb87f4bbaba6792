"""Every checker finds what it is there for: engines that are broken on purpose.

A broken engine gets a few seeds of a scenario in which the broken rule matters. The same seeds find
nothing in the engines as they are.
"""

from __future__ import annotations

from typing import Any

from tests.sim import mutants
from tests.sim.finding import Broken, assert_found, assert_whole, cases, name_of

from requite.sim import Options
from requite.sim.checkers import CHECKERS
from requite.sim.roles import Parts

_CASES: list[tuple[str, str, Parts]] = [
    # invariant, scenario, the broken engine
    ("I1", "calm", Parts(client=mutants.AnswersTwice)),
    ("I1", "calm", Parts(client=mutants.ForgetsToExpire)),
    ("I1", "crash-broker", Parts(client=mutants.LosesWhatWasSent)),
    ("I2", "overload", Parts(client=mutants.TakesLateReplies)),
    ("I2", "old-dialects", Parts(client=mutants.keeps_lanes_open)),
    ("I2", "overload", Parts(broker=mutants.MutatesBodies)),
    ("I5", "streams", Parts(client=mutants.StreamsAnew)),
    ("I5", "streams", Parts(broker=mutants.RepeatsAnIndex)),
    ("I6", "calm", Parts(broker=mutants.RedeliversFromTheLiving)),
    ("I6", "crash-workers", Parts(broker=mutants.IgnoresProgress)),
    ("I6", "calm", Parts(broker=mutants.HandsOutTwice)),
    ("I6", "crash-workers", Parts(broker=mutants.HearsFormerOwners)),
    ("I6", "calm", Parts(broker=mutants.DropsTheHasty)),
    ("I7", "crash-workers", Parts(broker=mutants.NeverPoisoned)),
    ("I7", "crash-workers", Parts(broker=mutants.PoisonedAtOnce)),
    ("I8", "fair", Parts(broker=mutants.UnfairToWorkers)),
    ("I8", "overload", Parts(broker=mutants.UnfairToClients)),
    ("I9", "calm", Parts(broker=mutants.KeepsServices)),
    ("I9", "calm", Parts(broker=mutants.RemembersEverybody)),
    ("I9", "calm", Parts(broker=mutants.SettlesHalf)),
    ("I9", "calm", Parts(client=mutants.RemembersTokens)),
    ("I10", "calm", Parts(client=mutants.KeepsSlots)),
    ("I10", "calm", Parts(worker=mutants.KeepsJobs)),
    ("I10", "crash-broker", Parts(worker=mutants.NeverComesBack)),
    ("I11", "crash-broker", Parts(client=mutants.SendsAgainWhatMayHaveRun)),
    ("I11", "crash-broker", Parts(client=mutants.TriesForEver)),
    ("I13", "garbage", Parts(broker=mutants.DiesOfGarbage)),
    ("I13", "garbage", Parts(broker=mutants.PunishesTheInnocent)),
    ("I13", "overload", Parts(client=mutants.LeavesTooSoon)),
    ("I15", "overload", Parts(broker=mutants.NeverExpires)),
    ("I15", "overload", Parts(broker=mutants.DisobeysCancel)),
    ("I15", "overload", Parts(broker=mutants.TellsNoWorker)),
    ("I15", "standstill", Parts(client=mutants.SendsWhatIsTooLate)),
    ("I15", "crash-clients", Parts(broker=mutants.WorksForThoseWhoLeft)),
    # Bugs that the simulator has found: put back, they are found again.
    ("may_have_executed", "crash-workers", Parts(client=mutants.BelievesNoService)),
    ("I8", "swarm", Parts(broker=mutants.LetsReturnedTakeTurns)),
    ("I8", "standstill", Parts(broker=mutants.LosesTurns)),
    ("heartbeat", "calm", Parts(broker=mutants.IsSlowToSpeak)),
    ("may_have_executed", "crash-broker", Parts(client=mutants.SaysItHasNotRun)),
]


def _name(part: Any) -> str:
    kinds = (part.broker, part.client, part.worker)
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


def test_every_checker_has_a_broken_engine() -> None:
    broken = {invariant for invariant, _, _ in _CASES}
    assert broken == {checker.invariant for checker in CHECKERS} | {"I9", "I10"}
