"""The tracker of expected groups, and the filter of activity reports."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.spec.requirement import requirement

from requite.pool.activity import ActivityFilter
from requite.pool.backoff import Pauses
from requite.pool.config import Lifetime
from requite.pool.tracker import GroupStatus, Tracker

ACTIVE, UNBOUND = GroupStatus.ACTIVE, GroupStatus.UNBOUND
POLICY = Lifetime(unbind_delay_s=10.0, stop_delay_s=4.0, extra_lifetime_s=2.0)


@pytest.fixture
def tracker() -> Tracker:
    return Tracker(POLICY)


# --- the tracker ----------------------------------------------------------------------------------
@requirement("pool:tracker:unbind", "pool:tracker:stop")
def test_a_group_is_active_then_unbound_then_may_be_removed(tracker: Tracker) -> None:
    tracker.require("a", 0.0, 0.0)
    assert tracker.advance(9.9) == []
    assert tracker.status("a") is ACTIVE
    assert tracker.advance(10.0) == []
    assert tracker.status("a") is UNBOUND
    assert tracker.advance(13.9) == []
    assert tracker.advance(14.0) == ["a"]
    assert tracker.status("a") is UNBOUND
    tracker.remove("a")
    assert tracker.status("a") is None
    assert tracker.deadline() is None


@requirement("pool:tracker:again")
def test_a_request_makes_it_active_again(tracker: Tracker) -> None:
    first = tracker.require("a", 0.0, 0.0)
    tracker.advance(10.0)
    second = tracker.require("a", 0.0, 12.0)
    assert second > first
    assert tracker.status("a") is ACTIVE
    assert tracker.deadline() == 22.0


@requirement("pool:tracker:generations")
def test_every_change_has_a_generation(tracker: Tracker) -> None:
    assert tracker.require("a", 0.0, 0.0) == 1
    assert tracker.require("b", 0.0, 0.0) == 2
    assert tracker.require("a", 0.0, 5.0) == 1, "since when it is active, not how far all are"
    tracker.advance(10.0)
    assert tracker.state().generation == 3
    assert tracker.state().groups["b"] == (UNBOUND, 3)
    assert tracker.state().groups["a"] == (ACTIVE, 1)


@requirement("pool:tracker:extra-lifetime")
def test_extra_lifetime_is_added_and_never_shortened(tracker: Tracker) -> None:
    tracker.require("a", 5.0, 0.0)
    assert tracker.deadline() == 15.0
    tracker.require("a", 0.0, 1.0)
    assert tracker.deadline() == 15.0
    tracker.require("a", 0.0, 6.0)
    assert tracker.deadline() == 16.0


@requirement("pool:tracker:initial")
def test_the_tracker_starts_with_the_existing_groups() -> None:
    tracker = Tracker(POLICY, ["a", "b"], 3.0)
    assert {*tracker.state().groups} == {"a", "b"}
    assert tracker.deadline() == 13.0


def test_a_group_that_was_required_again_is_not_removed(tracker: Tracker) -> None:
    tracker.require("a", 0.0, 0.0)
    tracker.advance(10.0)
    assert tracker.advance(14.0) == ["a"]
    tracker.require("a", 0.0, 14.0)
    tracker.remove("a")
    assert tracker.status("a") is ACTIVE


def test_delays_restart_after_a_pause(tracker: Tracker) -> None:
    tracker.require("a", 0.0, 0.0)
    tracker.require("b", 0.0, 5.0)
    tracker.advance(10.0)
    tracker.resume(1000.0)
    assert tracker.advance(1000.0) == []
    assert tracker.state().groups.keys() == {"a", "b"}
    assert tracker.advance(1004.0) == ["a"]
    assert tracker.status("b") is ACTIVE


def test_an_operator_releases_a_group(tracker: Tracker) -> None:
    tracker.release("a", 0.0)
    tracker.require("a", 0.0, 0.0)
    tracker.release("a", 1.0)
    assert tracker.status("a") is UNBOUND
    assert tracker.deadline() == 5.0


class TrackerMachine(RuleBasedStateMachine):
    """Random orders of events: the status of a group follows from the time of its last request."""

    def __init__(self) -> None:
        super().__init__()
        self.tracker = Tracker(POLICY)
        self.now = 0.0
        self.until: dict[str, float] = {}
        self.generation = 0

    @rule(key=st.sampled_from("abc"), extra_s=st.sampled_from((0.0, 1.5)))
    def require(self, key: str, extra_s: float) -> None:
        was_active = self.tracker.status(key) is ACTIVE
        generation = self.tracker.require(key, extra_s, self.now)
        assert generation <= self.tracker.generation
        until = self.now + 10.0 + extra_s
        self.until[key] = max(until, self.until[key]) if was_active else until

    @rule(seconds=st.sampled_from((0.5, 3.0, 4.0, 10.0)))
    def advance(self, seconds: float) -> None:
        self.now += seconds
        for key in self.tracker.advance(self.now):
            assert self.now >= self.until[key] + 4.0
            self.tracker.remove(key)

    @invariant()
    def statuses_follow_from_times(self) -> None:
        for key, until in self.until.items():
            status = self.tracker.status(key)
            if self.now < until:
                assert status is ACTIVE
            else:
                assert status is not ACTIVE

    @invariant()
    def generations_increase(self) -> None:
        assert self.tracker.generation >= self.generation
        self.generation = self.tracker.generation
        groups = self.tracker.state().groups.values()
        assert len({group.generation for group in groups}) == len(groups)


TestTrackerMachine = TrackerMachine.TestCase


# --- reports --------------------------------------------------------------------------------------
@requirement("pool:activity:first-only")
def test_only_the_first_report_of_a_window_is_forwarded() -> None:
    reports = ActivityFilter(2.0)
    times = [0.0, 0.1, 1.9, 2.0, 3.0, 4.5, 100.0]
    passed = [
        t
        for t in times
        if reports.reported("a", "request-received", t, expected=True, stopping=False)
    ]
    assert passed == [0.0, 2.0, 4.5, 100.0]


@pytest.mark.parametrize("pause_s", [0.01, 0.5, 1.99, 2.0, 2.01, 5.0, 9.9])
def test_steady_reports_at_any_rate_keep_a_group_active(pause_s: float) -> None:
    tracker, reports = Tracker(POLICY), ActivityFilter(POLICY.extra_lifetime_s)
    tracker.require("a", 0.0, 0.0)
    now = 0.0
    while now < 100.0:
        now += pause_s
        tracker.advance(now)
        assert tracker.status("a") is ACTIVE, now
        if reports.reported("a", "request-received", now, expected=True, stopping=False):
            tracker.require("a", reports.window_s, now)


def test_each_group_has_its_own_window_which_expires() -> None:
    reports = ActivityFilter(2.0)
    for i in range(100):
        assert reports.reported(f"key-{i}", "request-received", 0.0, expected=True, stopping=False)
    assert len(reports) == 100
    assert reports.reported("late", "request-received", 2.0, expected=True, stopping=False)
    assert len(reports) == 1


@pytest.mark.parametrize("event", ["started", "ready"])
def test_a_start_report_is_forwarded_only_if_the_group_is_neither_expected_nor_stopping(
    event: str,
) -> None:
    reports = ActivityFilter(2.0)
    assert not reports.reported("a", event, 0.0, expected=True, stopping=False)
    assert not reports.reported("a", event, 0.0, expected=False, stopping=True)
    assert reports.reported("a", event, 0.0, expected=False, stopping=False)
    assert reports.reported("a", "request-received", 0.1, expected=True, stopping=False), (
        "no window was opened"
    )


def test_a_report_of_a_removed_group_is_forwarded_at_once() -> None:
    reports = ActivityFilter(2.0)
    assert reports.reported("a", "request-received", 0.0, expected=True, stopping=False)
    assert reports.reported("a", "request-received", 0.5, expected=False, stopping=True)


@pytest.mark.parametrize("event", ["", "STARTED", "received", "\ufffd"])
def test_unknown_reports_are_counted(event: str) -> None:
    reports = ActivityFilter(2.0)
    assert not reports.reported("a", event, 0.0, expected=False, stopping=False)
    assert reports.unknown == 1
    assert not reports.reported("a", "stopping", 0.0, expected=False, stopping=False)
    assert reports.unknown == 1


# --- pauses ---------------------------------------------------------------------------------------
def test_pauses_double_up_to_a_limit_until_a_success_resets_them() -> None:
    pauses: Pauses[str] = Pauses(1.0, 5.0)
    waits = []
    now = 0.0
    for _ in range(5):
        pauses.failed("a", now)
        assert "a" in pauses
        waits.append((pauses.deadline() or 0.0) - now)
        now = pauses.deadline() or 0.0
        assert pauses.due(now) == ["a"]
    assert waits == [1.0, 2.0, 4.0, 5.0, 5.0]
    pauses.succeeded("a")
    pauses.failed("a", 0.0)
    assert pauses.deadline() == 1.0
    assert len(pauses) == 1
