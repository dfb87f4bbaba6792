"""Shrinking finds a small plan that violates the same invariant as the drawn one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from tests.sim.finding import Broken, table
from tests.sim.mutant_table import BROKEN

from requite.errors import ConfigurationError
from requite.sim import Plan, draw, play, read_plan, violates
from requite.sim.kernel.plan import write
from requite.sim.kernel.shrink import shrink

# One broken engine per part of the simulator, each of which shrinks within a second.
_NAMES = (
    ("mdp", "MutatesBodies"),
    ("dedup", "ForgetsWhatHadBegun"),
    ("sp", "TriesForEver"),
    ("flp", "SaysItHasNotRun"),
    ("pirate", "HandsOutOnTop"),
    ("titanic", "dies-of-garbage"),
    ("pair-broker", "LetsNobodyIn"),
    ("pool", "HastyWithExpirations"),
    ("amqp", "IgnoresReturns"),
)
_CASES = [each for each in BROKEN if (each.group, each.name) in _NAMES]


def _fails(broken: Broken) -> Callable[[Plan], bool]:
    return lambda plan: violates(broken.invariant, plan, broken.options)


def _drawn(broken: Broken) -> Plan:
    return draw(table()[broken.key].seed, broken.scenario, broken.options)


def test_every_part_of_the_simulator_is_shrunk_here() -> None:
    assert {(each.group, each.name) for each in _CASES} == set(_NAMES)


@pytest.mark.parametrize("broken", _CASES, ids=lambda each: f"{each.group}-{each.name}")
def test_a_violation_needs_one_fault_and_few_calls(broken: Broken) -> None:
    drawn = _drawn(broken)
    plan, tries = shrink(drawn, _fails(broken), 200)
    assert len(plan.faults) <= 1
    assert len(plan.calls) <= 3
    assert 0 < tries <= 200
    assert (plan.scenario, plan.seed) == (drawn.scenario, drawn.seed)
    assert _fails(broken)(read_plan(write(plan)))
    assert not play(plan).violations  # intact engines pass


def test_shrinking_is_deterministic() -> None:
    broken = _CASES[0]
    found = [shrink(_drawn(broken), _fails(broken), 100) for _ in range(2)]
    assert found[0] == found[1]


def test_the_smallest_plan_so_far_is_returned_when_no_more_runs_are_allowed() -> None:
    plan = draw(1, "swarm")
    played: list[Plan] = []

    def fails(candidate: Plan) -> bool:
        played.append(candidate)
        return len(candidate.calls) >= 50

    shrunk = shrink(plan, fails, 4)
    assert shrunk.tries == len(played) == 4
    assert shrunk.plan == min((p for p in played if len(p.calls) >= 50), key=_size)


def _size(plan: Plan) -> int:
    return len(plan.calls) + len(plan.faults)


def test_shrinking_keeps_the_calls_a_violation_needs() -> None:
    plan = draw(1, "swarm")
    needed = {plan.calls[3].number, plan.calls[-1].number}
    shrunk = shrink(plan, lambda each: needed <= {call.number for call in each.calls})
    assert {call.number for call in shrunk.plan.calls} == needed
    assert not shrunk.plan.faults


def test_a_call_no_longer_follows_a_removed_one() -> None:
    plan = next(
        p for p in map(partial(draw, scenario="swarm"), range(9)) if any(map(_last, p.calls))
    )
    follower = next(call for call in plan.calls if call.follows)
    shrunk = shrink(plan, lambda each: follower.number in {call.number for call in each.calls})
    assert [call.follows for call in shrunk.plan.calls] == [None]


def _last(call: object) -> bool:
    return bool(getattr(call, "follows", None))


def test_a_service_keeps_a_worker_and_a_call_its_client() -> None:
    plan = draw(1, "swarm")
    shrunk = shrink(plan, lambda _: True).plan
    services = {worker.service for worker in plan.knobs.workers}
    assert sorted(worker.service for worker in shrunk.knobs.workers) == sorted(services)
    assert len(shrunk.knobs.clients) == 1


def test_both_ends_of_connections_stay_connected() -> None:
    plan = draw(3, "sp-overload")
    shrunk = shrink(plan, lambda each: play(each, None).calls >= 0).plan
    ends = {end for edge in shrunk.knobs.edges for end in (edge.upper, edge.lower)}
    names = {each.name for each in (*shrunk.knobs.clients, *shrunk.knobs.workers)}
    assert names <= ends


def test_a_plan_that_violates_nothing_is_not_shrunk() -> None:
    with pytest.raises(ConfigurationError, match="it did not violate the invariant"):
        shrink(draw(1, "calm"), lambda _: False)


def test_a_plan_that_cannot_be_played_violates_nothing() -> None:
    plan = draw(1, "calm")
    assert not violates("I1", plan._replace(knobs=None))
