"""Sweeps over deadlines that are rarely reached, and pauses between connections."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from requite.core.sweep import Sweep
from requite.protocols.majordomo.redial import Redial


class Thing:
    """An object with a deadline."""

    def __init__(self, due_at: float) -> None:
        self.due_at = due_at


class SweepMachine(RuleBasedStateMachine):
    """Random operations on a table of things, which are added, removed, re-armed or become due."""

    def __init__(self) -> None:
        super().__init__()
        self.sweep = Sweep()
        self.things: list[Thing] = []
        self.now = 0.0

    @rule(ahead=st.sampled_from([0.001, 0.5, 1.0, 2.0, inf]))
    def add(self, ahead):
        self.things.append(Thing(self.now + ahead))
        self.sweep.arm(self.now + ahead)

    @precondition(lambda self: self.things)
    @rule(data=st.data())
    def remove(self, data):
        self.things.remove(data.draw(st.sampled_from(self.things)))

    @rule(seconds=st.sampled_from([0.0001, 0.5, 1.0, 5.0]), again=st.booleans())
    def sweep_due(self, seconds, again):
        self.now += seconds
        if self.now < self.sweep.at:
            return
        expected = sorted((t for t in self.things if t.due_at <= self.now), key=lambda t: t.due_at)
        due = self.sweep.due(self.things, self.now)
        assert due == expected
        for thing in due:
            if again:
                thing.due_at = self.now + 0.25
                self.sweep.arm(thing.due_at)
            else:
                self.things.remove(thing)

    @invariant()
    def no_deadline_is_missed(self):
        """The next sweep is no later than the next deadline, except for the minimum interval of
        sweeps."""
        due_at = min((thing.due_at for thing in self.things), default=inf)
        assert self.sweep.at <= max(due_at, self.now + 1e-6 * 100)


TestSweep = SweepMachine.TestCase


def test_sweeps_have_a_minimum_interval_when_many_deadlines_pass():
    sweep = Sweep()
    things = [Thing(1.0 + n * 1e-7) for n in range(1000)]
    for thing in things:
        sweep.arm(thing.due_at)
    sweeps = []
    while things:
        sweeps.append(sweep.at)
        for thing in sweep.due(things, sweep.at):
            things.remove(thing)
    assert all(later - earlier > 1e-5 for earlier, later in pairwise(sweeps))
    assert len(sweeps) < 10


# --- pauses between connections -------------------------------------------------------------------
def pauses(redial: Redial, n: int, stays_s: float = 0.0, works: bool = False) -> list[float]:
    """Connect and lose the connection `n` times; return the length of each pause."""
    now, found = 100.0, []
    for _ in range(n):
        redial.joined(now)
        if works:
            redial.fruitless = 0
        now += stays_s
        redial.plan(now)
        redial.plan(now + 50.0)  # a later plan does not postpone the first
        found.append(redial.at - now)
        now = redial.at
        assert not redial.is_due(now - 1e-6)
        assert redial.is_due(now)
        assert not redial.is_due(now)
    return found


def test_the_first_pause_is_zero_and_later_ones_grow():
    found = pauses(Redial(lambda: 0.0), 12)
    assert found[0] == 0.0
    assert found[1:4] == pytest.approx([0.1, 0.2, 0.4])
    assert found[-1] == 10.0


def test_a_connection_that_worked_or_lasted_is_replaced_at_once():
    assert pauses(Redial(lambda: 0.0), 5, works=True) == [0.0] * 5
    assert pauses(Redial(lambda: 0.0), 5, stays_s=10.0) == [0.0] * 5


def test_jitter_changes_the_pauses():
    assert pauses(Redial(lambda: 0.0), 3)[1:] != pauses(Redial(lambda: 0.9), 3)[1:]
