"""Plans: reading and writing, and replays of plans that once violated an invariant."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sim.mutant_table import BROKEN
from tests.sim.plans import FOLDER, NO_ENGINE, Known, known
from tests.support.builds import pure_only

from requite.errors import ConfigurationError
from requite.sim import Options, draw, play, read_plan, run
from requite.sim.kernel.faults import Fault, FaultKind
from requite.sim.kernel.plan import Kinds, Plan, from_tables, read_tables, write
from requite.sim.kernel.simulation import Simulation
from requite.sim.kernel.workload import CallPlan
from requite.sim.pool.knobs import PoolKnobs
from requite.sim.pool.simulation import PoolCall
from requite.sim.scenarios import GROUPS

_GROUPS = sorted(GROUPS.keys() - {"all"})
_ENGINES = {"/".join(broken.key): broken for broken in BROKEN}


# --- known bad plans ------------------------------------------------------------------------------
@pytest.mark.parametrize("each", known(), ids=lambda each: each.name)
def test_a_known_bad_plan_violates_nothing(each: Known) -> None:
    result = play(each.plan())
    assert not result.violations, "\n".join(map(str, result.violations))
    assert result.calls >= 0.9 * each.calls  # calls are made, whatever their outcome


@pytest.mark.parametrize(
    "each", [each for each in known() if each.engine != NO_ENGINE], ids=lambda each: each.name
)
@pure_only("broken engines inherit from engines")
def test_a_plan_finds_its_reintroduced_bug(each: Known) -> None:
    broken = _ENGINES[each.engine]
    result = play(each.plan(), Options(parts=broken.options.parts))
    assert broken.invariant in {violation.invariant for violation in result.violations}


def test_each_plan_is_in_the_list() -> None:
    assert sorted(each.name for each in known()) == sorted(p.stem for p in FOLDER.glob("*.toml"))


# --- drawing and playing --------------------------------------------------------------------------
@pytest.mark.parametrize("group", _GROUPS)
def test_a_written_plan_reads_back_equal(group: str) -> None:
    for scenario in GROUPS[group][-2:]:
        plan = draw(3, scenario)
        assert plan.calls
        assert read_plan(write(plan)) == plan


@pytest.mark.parametrize("group", _GROUPS)
def test_playing_a_plan_draws_nothing(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = GROUPS[group][0]
    text = write(draw(5, scenario))
    expected = run(5, scenario)

    def refuse(*_: Any) -> None:
        raise AssertionError("something was drawn")

    monkeypatch.setattr("requite.sim.scenarios.draw", refuse)
    for kind in _kinds():
        for name in ("draw_calls", "draw_faults"):
            monkeypatch.setattr(kind, name, refuse)
    assert play(read_plan(text)) == expected


def _kinds() -> list[type]:
    kinds: list[type] = [Simulation]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class _MoreKnobs(PoolKnobs):
    new_s: float = 0.0


def test_a_knob_missing_from_an_old_plan_gets_its_default() -> None:
    plan = draw(1, "pool-calm")
    tables = read_tables(write(plan), "plan")
    later = from_tables(tables, Kinds(_MoreKnobs, PoolCall), "plan")
    assert later.knobs.new_s == 0.0
    assert later.knobs.calls == plan.knobs.calls
    assert later.calls == plan.calls


_CALL = draw(1, "calm").calls[0]
_KNOBS = draw(1, "pool-calm").knobs


@given(
    st.text(max_size=5),
    st.floats(0, 1e12),
    st.binary(max_size=5),
    st.integers(0, 3),
    st.none() | st.floats(0, 1e12),
)
def test_any_written_call_reads_back_equal(
    client: str, at_s: float, part: bytes, times: int, cancel_after_s: float | None
) -> None:
    call = _CALL._replace(
        client=client, at_s=at_s, payload=part * times, cancel_after_s=cancel_after_s
    )
    fault = Fault(at_s, FaultKind.MEDDLE, at_s, 0.5)
    plan = Plan("pool-calm", 1, _KNOBS, (call,), (fault,))
    assert from_tables(read_tables(write(plan), "plan"), Kinds(PoolKnobs, CallPlan), "") == plan


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("seed = 1", "seed = ", "x.toml is not a plan"),
        ("seed = 1", "seed = 1.5", "'seed' is missing, or has the wrong type"),
        ('"pool-calm"', '"nope"', "there is no scenario 'nope'"),
        ("knobs.callers", "knobs.shouters", "x.toml: knobs: there is no 'shouters'; the names are"),
        ("knobs.keys", "# knobs.keys", "x.toml: knobs: 'keys' is missing, and has no default"),
        ("knobs.calls = ", 'knobs.calls = "two" # ', "x.toml: knobs: calls: 'two' has the wrong"),
        ("knobs.tasks = [", 'knobs.tasks = ["nap", ', "x.toml: knobs: tasks: there is no 'nap'"),
        ("\nfaults = []", "\nfaults = [1]", "x.toml: faults: 1 is not a table"),
    ],
)
def test_an_invalid_plan_is_rejected(old: str, new: str, complaint: str) -> None:
    text = write(draw(1, "pool-calm"))
    assert old in text
    with pytest.raises(ConfigurationError, match=complaint.replace("[", r"\[")):
        read_plan(text.replace(old, new, 1), "x.toml")


def test_a_fault_that_a_run_cannot_have_is_refused() -> None:
    plan = draw(1, "pool-calm")._replace(faults=(Fault(1.0, FaultKind.FREEZE_BROKER, 1.0, 0.5),))
    with pytest.raises(ConfigurationError, match="no 'freeze-broker' in this run; there are crash"):
        play(read_plan(write(plan)))


def test_a_payload_is_written_as_text_and_repetitions() -> None:
    plan = draw(1, "calm")
    assert 'payload = "1:*' in write(plan)
    text = write(plan).replace('payload = "1:*', 'payload = "1:*x', 1)
    with pytest.raises(ConfigurationError, match="not a text with a number of repetitions"):
        read_plan(text, "x.toml")


def test_plans_may_be_edited(tmp_path: Path) -> None:
    plan = draw(1, "calm")
    shorter = plan._replace(calls=tuple(c for c in plan.calls if c.follows is None)[:10])
    result = play(read_plan(write(shorter)))
    assert not result.violations
    assert result.calls == 10 + len(plan.knobs.clients) * len(plan.knobs.services)


_TEXT = write(draw(4, "swarm", Options(knobs={"follow_p": 0.0})))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("seed = 4", "seed = " + "[" * 5000, "nested too deeply"),
        ("seed = 4", "seed = " + "9" * 5000, "is not a plan"),
        ("seed = 4", "seed = 0x" + "f" * 5000, "its seed is out of range"),
        ("seed = 4", "seed = -4", "its seed is out of range"),
        (
            "calls = .*",
            f"calls = 0x{'f' * 5000}",
            "a number of thousands of digits is out of range",
        ),
        ("calls = .*", f"calls = '{'f' * 5000}'", "calls: '.{99}… has the wrong type"),
        (r"timeout_s = [\d.]+\n", f"timeout_s = {'9' * 400}\n", "out of range"),
        (r'payload = "\d+:\*', 'payload = "1:*999999999', "longer than"),
        (r'payload = "\d+:', 'payload = "…', "number of repetitions"),
        (r"number = 2,", "number = 1,", "calls: number: 1 is there twice"),
        (r"number = 2,", "number = 2, follows = 9999,", "call 2 cannot follow 9999"),
        (r"number = 2,", "number = 2, follows = 2,", "call 2 cannot follow 2"),
        ('"worker-2"', '"worker-1"', "workers: name: 'worker-1' is there twice"),
        (r"lot = [\d.]+", "lot = 1.0", "it is less than 1"),
    ],
)
def test_an_inconsistent_plan_is_rejected(old: str, new: str, why: str) -> None:
    text = re.sub(old, new, _TEXT, count=1)
    assert text != _TEXT
    with pytest.raises(ConfigurationError, match=why):
        read_plan(text)


def test_a_plan_with_a_call_of_nobody_is_rejected() -> None:
    plan = draw(4, "calm")
    nobody = plan.calls[0]._replace(client="nobody")
    with pytest.raises(ConfigurationError, match="there is no 'nobody' in this run"):
        play(plan._replace(calls=(nobody,)))


def test_a_plan_whose_processes_do_not_fit_together_is_rejected() -> None:
    plan = draw(4, "rights-calm")
    with pytest.raises(ConfigurationError, match="seed 4 of rights-calm does not fit together"):
        play(plan._replace(knobs=replace(plan.knobs, members=())))
