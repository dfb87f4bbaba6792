"""Heartbeats: pauses of this process, dead peers, and due heartbeats."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requite.core.liveness import HeartbeatPolicy, Liveness, absence_s, heartbeat_of
from requite.errors import ConfigurationError


def test_a_peer_is_dead_after_liveness_silent_intervals():
    peer = Liveness(HeartbeatPolicy(interval_s=2.0, liveness=4), now=10.0)
    assert (peer.speak_at(), peer.gone_at(), peer.next_at()) == (12.0, 18.0, 12.0)
    peer.heard_at, peer.spoke_at = 11.0, 20.0
    assert (peer.speak_at(), peer.gone_at(), peer.next_at()) == (22.0, 19.0, 19.0)


def test_a_silent_peer_is_pinged_once_per_interval():
    peer = Liveness(HeartbeatPolicy(interval_s=2.0), now=10.0)
    assert peer.ask_at() == 12.0
    peer.asked_at = 12.0
    assert peer.ask_at() == 14.0
    peer.heard_at = 13.5
    assert peer.ask_at() == 15.5
    peer.spoke_at = 100.0  # unprompted heartbeats are not requests for an answer
    assert peer.ask_at() == 15.5


def test_the_silence_limit_may_be_set_per_peer():
    peer = Liveness(HeartbeatPolicy(interval_s=1.0), now=0.0)
    peer.silence_s = 7.5
    assert (peer.gone_at(), peer.speak_at()) == (7.5, 1.0)


@pytest.mark.parametrize(
    ("announced_ms", "agreed_s"),
    [
        (0, 1.0),
        (10, 1.0),
        (999, 1.0),
        (1001, 1.001),
        (5000, 5.0),
        (30_000, 30.0),
        (2**32 - 1, 30.0),
    ],
)
def test_the_longer_interval_applies_within_bounds(announced_ms, agreed_s):
    peer = Liveness(HeartbeatPolicy(interval_s=1.0), now=0.0)
    peer.agree(announced_ms)
    assert (peer.interval_s, peer.silence_s) == (agreed_s, 3 * agreed_s)
    peer.agree(500)
    assert (peer.interval_s, peer.silence_s) == (agreed_s, 3 * agreed_s)


@pytest.mark.parametrize(
    ("planned_at", "now", "away_s"),
    [
        (10.0, 10.0, 0.0),
        (10.0, 9.0, 0.0),  # woken early
        (10.0, 12.0, 0.0),  # a timer may be late by up to one interval
        (10.0, 12.5, 2.5),
        (-inf, 5.0, inf),
        (inf, 5.0, 0.0),  # no wake-up was planned
    ],
)
def test_a_check_late_by_more_than_an_interval_shows_an_absence(planned_at, now, away_s):
    assert absence_s(planned_at, now, interval_s=2.0) == away_s


@pytest.mark.parametrize(
    ("away_s", "heard_at"), [(0.0, 10.0), (4.0, 14.0), (10.0, 20.0), (inf, 20.0)]
)
def test_an_absence_is_not_counted_against_the_peer(away_s, heard_at):
    peer = Liveness(HeartbeatPolicy(interval_s=2.0), now=10.0)
    peer.excuse(away_s, now=20.0)
    assert peer.heard_at == heard_at
    assert (peer.spoke_at, peer.asked_at) == (10.0, 10.0)  # nothing was sent meanwhile


def test_the_interval_is_sent_in_milliseconds():
    assert HeartbeatPolicy(interval_s=0.25).interval_ms == 250


@pytest.mark.parametrize(
    "bad", [{"interval_s": 0.009}, {"interval_s": 30.1}, {"liveness": 1}, {"liveness": 101}]
)
def test_an_invalid_policy_is_refused(bad):
    with pytest.raises(ConfigurationError):
        HeartbeatPolicy(**bad)


def test_a_setting_is_a_policy_or_seconds_or_the_default():
    usual, given = HeartbeatPolicy(interval_s=10.0), HeartbeatPolicy(0.5, 5)
    assert heartbeat_of(given, usual) is given
    assert heartbeat_of(2, usual) == HeartbeatPolicy(interval_s=2.0)
    assert heartbeat_of(None, usual) is usual
    assert heartbeat_of(None) == HeartbeatPolicy()
    with pytest.raises(ConfigurationError):
        heartbeat_of(0.001)


# --- two ends -------------------------------------------------------------------------------------
_DELAY_S = 0.2  # transit time of a message
_INTERVAL_S = 1.0
_SILENCE_S = 3 * _INTERVAL_S

# A delay of up to three quarters of an interval is a late timer; more than one interval is an
# absence. For delays in between, the peer's next heartbeat may still be in transit.
latenesses = st.one_of(st.floats(0.0, 0.75), st.floats(1.01, 20.0))


class Watcher:
    """One end of a connection, which checks the other at the planned times, or later. The other end
    sends a heartbeat per interval until `until`. Heartbeats that arrive during an absence are read
    after the check."""

    def __init__(self, until: float = inf) -> None:
        self.now = 0.0
        self.away_s = 0.0
        self.said_at: list[float] = []
        self._until = until
        self._peer = Liveness(HeartbeatPolicy(_INTERVAL_S), self.now)
        self._number = 0  # of the other end's last heartbeat read

    def check(self, late_s: float) -> bool:
        """Check the other end `late_s` after the planned time; return whether it is considered
        dead."""
        planned_at = self._peer.next_at()
        self._read(planned_at)
        if planned_at < self._peer.next_at():
            return False  # a heartbeat arrived just before the planned time
        self.now = planned_at + late_s
        away_s = absence_s(planned_at, self.now, _INTERVAL_S)
        self.away_s += away_s
        self._peer.excuse(away_s, self.now)
        if self.now >= self._peer.gone_at():
            return True
        if self.now >= self._peer.speak_at():
            self._peer.spoke_at = self.now
            self.said_at.append(self.now)
        self._read(self.now)
        return False

    def _read(self, now: float) -> None:
        """Read the heartbeats that have arrived by `now`."""
        while (spoke_at := (self._number + 1) * _INTERVAL_S) <= min(self._until, now - _DELAY_S):
            self._number += 1
            self._peer.heard_at = max(self._peer.heard_at, min(now, spoke_at + _DELAY_S))


@given(st.lists(latenesses, max_size=40))
def test_a_peer_that_sends_on_time_is_never_dead_despite_our_pauses(lates):
    watcher = Watcher()
    assert not any(watcher.check(late_s) for late_s in lates)


@given(st.lists(latenesses, max_size=40), st.floats(0.0, 10.0))
def test_a_dead_peer_is_detected_after_its_silence_and_our_absences(lates, died_at):
    watcher = Watcher(until=died_at)
    for late_s in [*lates, *[0.0] * 20]:
        if watcher.check(late_s):
            break
        assert watcher.now <= died_at + _DELAY_S + _SILENCE_S + watcher.away_s
    else:
        pytest.fail("it was never found gone")


@given(st.lists(st.floats(0.0, 0.75), min_size=5, max_size=40))
def test_an_end_without_absences_sends_once_per_interval(lates):
    watcher = Watcher()
    for late_s in lates:
        assert not watcher.check(late_s)
    gaps = [b - a for a, b in zip([0.0, *watcher.said_at], watcher.said_at, strict=False)]
    assert gaps
    assert max(gaps) <= _INTERVAL_S + 0.75 + 1e-9  # tolerance for rounding
