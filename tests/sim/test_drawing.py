"""Knobs: each has its own random stream, and scenarios fix only knobs that exist."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from requite.sim import run
from requite.sim.kernel.drawing import Draw, always, between, chance, one_of, plan_faults
from requite.sim.kernel.faults import FaultKind
from requite.sim.kernel.knobs import Scenario
from requite.sim.kernel.result import Options
from requite.sim.kernel.world import luck
from requite.sim.run import knobs_of
from requite.sim.scenarios import SCENARIOS

_FAULTS = (FaultKind.RESET, FaultKind.CLOG, FaultKind.POWER_LOSS)
_CHOICES = {"slots": between(1, 1000), "late_s": between(0.0, 1.0), "kept": chance(0.5)}


def _draw(seed: int, **scenario: Any) -> Draw:
    return Draw(seed, "group", Scenario("name", "about", **scenario))


@pytest.mark.parametrize("seed", range(20))
def test_a_new_knob_changes_no_other(seed: int) -> None:
    before = _draw(seed).knobs(_CHOICES)
    after = _draw(seed).knobs({"new": one_of(1, 2), **_CHOICES})
    assert {name: after[name] for name in before} == before
    assert _draw(seed, fixed={"slots": 7}).knobs(_CHOICES) == {**before, "slots": 7}


@pytest.mark.parametrize("seed", range(20))
def test_a_new_process_changes_no_other(seed: int) -> None:
    two = _draw(seed).specs("client", always(2), _CHOICES)
    three = _draw(seed).specs("client", always(3), _CHOICES)
    assert three == {**two, "client-3": three["client-3"]}


@pytest.mark.parametrize("seed", range(20))
def test_a_new_kind_of_fault_changes_no_other(seed: int) -> None:
    two = _draw(seed, faults=_FAULTS[:2], swarm=True).faults()
    three = _draw(seed, faults=_FAULTS, swarm=True).faults()
    assert [kind for kind in three if kind in _FAULTS[:2]] == [*two]

    knobs = knobs_of(seed, "swarm", Options(knobs={"faults": _FAULTS}))
    fewer = knobs_of(seed, "swarm", Options(knobs={"faults": _FAULTS[:2]}))
    planned = list(plan_faults(knobs, lambda name: luck(seed, name)))
    assert [f for f in planned if f.kind in _FAULTS[:2]] == [
        *plan_faults(fewer, lambda name: luck(seed, name))
    ]


def test_choices_cover_their_range() -> None:
    drawn = [_draw(seed).knobs(_CHOICES) for seed in range(200)]
    assert {each["kept"] for each in drawn} == {True, False}
    assert min(each["slots"] for each in drawn) < 100 < 900 < max(each["slots"] for each in drawn)
    assert all(isinstance(each["slots"], int) for each in drawn)


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios_fix_only_knobs_that_exist(name: str) -> None:
    knobs = knobs_of(1, name)
    for fixed, value in SCENARIOS[name].fixed.items():
        thing, _, field = fixed.rpartition(".")
        for holder in _holders(getattr(knobs, thing) if thing else knobs):
            assert field in {each.name for each in fields(holder)}, fixed
            if thing and field != "interval_s":  # a multiple of the broker's
                assert getattr(holder, field) == value, fixed


def _holders(value: Any) -> list[Any]:
    """Return the records that a fixed knob is part of: one, or each of several processes."""
    return [value] if is_dataclass(value) else [*value]


def test_a_run_is_drawn_the_same_each_time() -> None:
    assert knobs_of(3, "sp-swarm") == knobs_of(3, "sp-swarm")
    assert run(3, "sp-swarm").digest == run(3, "sp-swarm").digest
