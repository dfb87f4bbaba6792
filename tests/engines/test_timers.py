"""Named timers, compared with a table of numbers."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from requite.core.timers import Timers

NAMES = st.sampled_from("abcdefgh")
INSTANTS = st.integers(0, 50).map(float)


class TimersMachine(RuleBasedStateMachine):
    """Random operations on `Timers`, compared with a dict of instant and order of arming by
    name."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: Timers[str] = Timers()
        self.model: dict[str, tuple[float, int]] = {}
        self.armed = 0
        self.now = 0.0

    @rule(name=NAMES, ahead=INSTANTS)
    def set(self, name, ahead):
        self.armed += 1
        self.model[name] = (self.now + ahead, self.armed)
        self.timers.set(name, self.now + ahead)

    @rule(name=NAMES)
    def clear(self, name):
        self.model.pop(name, None)
        self.timers.clear(name)

    @rule(n=st.integers(1, 200), name=NAMES)
    def re_arm_often(self, n, name):
        for ahead in range(n):
            self.set(name, float(ahead))

    @rule(seconds=INSTANTS)
    def due(self, seconds):
        self.now += seconds
        expected = sorted((at, n, name) for name, (at, n) in self.model.items() if at <= self.now)
        assert list(self.timers.due(self.now)) == [name for _, _, name in expected]
        for _, _, name in expected:
            del self.model[name]

    @rule(seconds=INSTANTS, again=INSTANTS)
    def due_and_armed_again(self, seconds, again):
        """Timers may be re-armed for a later time while due ones are handled."""
        self.now += seconds
        for name in self.timers.due(self.now):
            self.set(name, again + 0.5)

    @invariant()
    def matches_the_model(self):
        assert self.timers.next() == min((at for at, _ in self.model.values()), default=None)
        assert len(self.timers) == len(self.model)
        for name in "abcdefgh":
            assert (name in self.timers) is (name in self.model)
            assert self.timers.at(name) == self.model.get(name, (None, 0))[0]

    @invariant()
    def stale_entries_are_bounded(self):
        assert len(self.timers._heap) <= max(64, 2 * len(self.model)) + 1


TestTimers = TimersMachine.TestCase


def test_equal_instants_are_due_in_the_order_of_arming():
    timers: Timers[object] = Timers()
    names = [object() for _ in range(5)]  # objects without an order
    for name in names:
        timers.set(name, 1.0)
    assert list(timers.due(1.0)) == names


def test_a_re_armed_timer_is_due_after_others_of_the_same_instant():
    timers: Timers[str] = Timers()
    for name in ("a", "b", "a"):
        timers.set(name, 1.0)
    assert list(timers.due(1.0)) == ["b", "a"]


def test_nothing_is_due_before_its_time():
    timers: Timers[str] = Timers()
    timers.set("a", 1.0)
    assert list(timers.due(0.999)) == []
    assert timers.next() == 1.0


@pytest.mark.parametrize("live", [1, 1000])
def test_memory_depends_on_the_number_of_armed_timers(live):
    timers: Timers[int] = Timers()
    for name in range(live):
        timers.set(name, 1.0)
    for _ in range(20):
        for name in range(live):
            timers.set(name, 2.0)
    for name in range(live - 1):
        timers.clear(name)
    timers.set(live, 3.0)
    assert len(timers._heap) <= max(64, 2 * 2) + 1
