"""The checkers of services that run requests once find stores that are broken on purpose."""

from __future__ import annotations

from typing import Any

import pytest
from tests.sim import dedup_mutants as mutants
from tests.sim.finding import Broken, assert_found, cases

from requite.dedup.engine import DedupEngine
from requite.sim import Options, run
from requite.sim.roles import Parts

# A disk so slow, and power cuts so frequent, that one falls between a write and its sync at once.
_SLOW: dict[str, Any] = {"disk_s": 0.3, "faults_per_s": 3.0, "service_s": 0.005, "timeout_s": 10.0}

_CASES: list[tuple[str, str, type[DedupEngine], dict[str, Any]]] = [
    ("I4", "dedup-calm", mutants.ForgetsReplies, {}),
    ("I4", "dedup-calm", mutants.RunsWhatRuns, {}),
    ("I4", "dedup-power", mutants.StartsBeforeItIsNoted, _SLOW | {"in_doubt": "refuse"}),
    ("I4", "dedup-power", mutants.AnswersBeforeItIsStored, _SLOW | {"in_doubt": "run"}),
    ("I4", "dedup-kill", mutants.ForgetsWhatHadBegun, {"in_doubt": "refuse"}),
    ("I2", "dedup-calm", mutants.AnswersWithTheLastReply, {}),
    ("I9", "dedup-calm", mutants.NeverExpires, {}),
    ("I9", "dedup-calm", mutants.KeepsTokens, {}),
]


BROKEN = [
    Broken(
        invariant,
        scenario,
        broken.__name__,
        Options(parts=Parts(dedup=broken), knobs={"repeat_p": 0.5, **knobs}),
    )
    for invariant, scenario, broken, knobs in _CASES
]


@cases(BROKEN)
def test_a_broken_store_is_found(broken: Broken) -> None:
    assert_found(broken)


@pytest.mark.parametrize("scenario", ["dedup-calm", "dedup-kill", "dedup-power"])
def test_a_store_that_is_whole_is_not(scenario: str) -> None:
    result = run(1, scenario, Options(knobs={"repeat_p": 0.5}))
    assert not result.violations, result.replay


def test_a_run_repeats_itself() -> None:
    assert run(7, "dedup-power").digest == run(7, "dedup-power").digest
