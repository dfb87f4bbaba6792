"""The arithmetic of heartbeats."""

from __future__ import annotations

import pytest

from requite.core.liveness import Heartbeat, HeartbeatPolicy
from requite.errors import ConfigurationError


def test_a_peer_is_gone_after_its_liveness_of_silent_intervals():
    heart = Heartbeat(HeartbeatPolicy(interval_s=2.0, liveness=4), now=10.0)
    assert (heart.speak_at(), heart.gone_at(), heart.next_at()) == (12.0, 18.0, 12.0)
    heart.heard_at, heart.spoke_at = 11.0, 20.0
    assert (heart.speak_at(), heart.gone_at(), heart.next_at()) == (22.0, 19.0, 19.0)


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
def test_the_longer_interval_holds_within_bounds(announced_ms, agreed_s):
    heart = Heartbeat(HeartbeatPolicy(interval_s=1.0), now=0.0)
    heart.agree(announced_ms)
    assert heart.interval_s == agreed_s
    heart.agree(500)
    assert heart.interval_s == agreed_s


def test_the_interval_travels_in_milliseconds():
    assert HeartbeatPolicy(interval_s=0.25).interval_ms == 250


@pytest.mark.parametrize(
    "bad", [{"interval_s": 0.009}, {"interval_s": 30.1}, {"liveness": 1}, {"liveness": 101}]
)
def test_a_policy_that_cannot_work_is_refused(bad):
    with pytest.raises(ConfigurationError):
        HeartbeatPolicy(**bad)
