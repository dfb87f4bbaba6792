"""Every checker of the Freelance pattern finds what it is there for, in broken engines."""

from __future__ import annotations

from typing import Any

from tests.sim import flp_mutants as mutants
from tests.sim.finding import Broken, assert_found, assert_whole, cases

from requite.protocols.freelance.agent import AgentClient
from requite.protocols.freelance.failover import FailoverClient
from requite.protocols.freelance.shotgun import ShotgunClient
from requite.protocols.freelance.wire import Model
from requite.sim import Options
from requite.sim.freelance.simulation import FLP_CHECKERS
from requite.sim.freelance.stage import FlpParts

_MODELS: dict[Model, type] = {
    Model.FAILOVER: FailoverClient,
    Model.SHOTGUN: ShotgunClient,
    Model.AGENT: AgentClient,
}

_CASES: list[tuple[str, str, Any]] = [
    # invariant, scenario, the broken engine
    ("I1", "flp-agent", mutants.AnswersTwice),
    ("I1", "flp-agent", mutants.ForgetsToExpire),
    ("I2", "flp-agent", mutants.TakesAnyReply),
    ("I2", "flp-failover", mutants.KeepsTheLane),
    ("I2", "flp-shotgun", mutants.TakesTheWrongAnswer),
    ("I5", "flp-calm", mutants.JumblesPartials),
    ("I8", "flp-overload", mutants.ServesOneAfterTheOther),
    ("I9", "flp-agent", mutants.RemembersCalls),
    ("I9", "flp-overload", mutants.HasNoLimit),
    ("I9", "flp-overload", mutants.ReadsOn),
    ("I9", "flp-overload", mutants.TakesTooMany),
    ("I10", "flp-agent", mutants.NeverPings),
    ("I10", "flp-overload", mutants.NeverReadsAgain),
    ("I10", "flp-partitions", mutants.WorksForNobody),
    ("I11", "flp-once", mutants.SendsWhatMayHaveRun),
    ("I11", "flp-agent", mutants.TriesForEver),
    ("I11", "flp-standstill", mutants.IsImpatient),
    ("I11", "flp-shotgun", mutants.ShootsAgain),
    ("I13", "flp-garbage", mutants.DiesOfGarbage),
    ("I13", "flp-garbage", mutants.PunishesTheInnocent),
    ("I15", "flp-overload", mutants.StartsWhatWasLost),
    ("may_have_executed", "flp-agent", mutants.SaysItHasNotRun),
    ("live", "flp-standstill", mutants.BelievesForEver),
    ("live", "flp-overload", mutants.TakesNoNotice),
    ("faithful", "flp-agent", mutants.ChangesItsMind),
    ("moves-on", "flp-agent", mutants.WaitsForGodot),
    ("lanes", "flp-failover", mutants.SendsOneAfterTheOther),
    ("volley", "flp-shotgun", mutants.HitsOne),
    ("pong", "flp-overload", mutants.SaysNothingWhenBusy),
    ("lossless", "flp-calm", mutants.LosesSome),
    # Bugs that the simulator has found: put back, they are found again.
    ("I15", "flp-shotgun", mutants.AsksTooLate),
]


def _parts(broken: Any) -> FlpParts:
    """Put a broken engine in the place of the one it is made of."""
    clients = {m: broken if issubclass(broken, kind) else kind for m, kind in _MODELS.items()}
    if broken in clients.values():
        return FlpParts(clients=clients)
    return FlpParts(server=broken)


BROKEN = [
    Broken(invariant, scenario, broken.__name__, Options(flp_parts=_parts(broken)))
    for invariant, scenario, broken in _CASES
]


@cases(BROKEN)
def test_a_broken_engine_is_found(broken: Broken) -> None:
    assert_found(broken)


def test_the_same_seeds_find_nothing_in_engines_that_are_whole() -> None:
    assert_whole(scenario for _, scenario, _ in _CASES)


def test_every_checker_has_a_broken_engine() -> None:
    broken = {invariant for invariant, _, _ in _CASES}
    assert broken == {checker.invariant for checker in FLP_CHECKERS} | {"I9", "I10"}
