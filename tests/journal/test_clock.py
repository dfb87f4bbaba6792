"""The offset between the monotonic and the wall clock: measurement, small changes and steps."""

from __future__ import annotations

from itertools import chain, repeat

from tests.journal.faulty import STARTED_NS, Clock

from requite.journal.clock import SLACK_US, WallClock


def test_the_offset_turns_instants_into_utc():
    clock = Clock()
    wall = clock.as_wall_clock()
    assert wall.now() == 100.0
    assert wall.offset_us() == STARTED_NS // 1000


def test_the_offset_ignores_small_differences():
    clock = Clock()
    wall = clock.as_wall_clock()
    first = wall.offset_us()
    clock.ahead_ns += SLACK_US * 1000 // 2
    assert wall.offset_us() == first


def test_the_offset_follows_a_step_in_either_direction():
    clock = Clock()
    wall = clock.as_wall_clock()
    for step_s in (3600, -7200):
        before = wall.offset_us()
        clock.ahead_ns += step_s * 10**9
        assert wall.offset_us() - before == step_s * 10**6


def test_an_interrupted_reading_is_repeated():
    # 5 ms pass between the first two readings of the monotonic clock, 1 µs between later ones.
    times = chain([0, 5_000_000], *repeat([10_000_000, 10_001_000], 10))
    walls = chain([STARTED_NS], repeat(STARTED_NS + 10_000_500))
    wall = WallClock(times.__next__, walls.__next__)
    assert wall.offset_us() == STARTED_NS // 1000


def test_the_closest_reading_is_used_if_all_are_interrupted():
    times = chain([0, 9_000_000], [10_000_000, 12_000_000], *repeat([20_000_000, 25_000_000], 10))
    walls = chain([STARTED_NS], [STARTED_NS + 11_000_000], repeat(STARTED_NS))
    wall = WallClock(times.__next__, walls.__next__)
    assert wall.offset_us() == STARTED_NS // 1000


def test_the_real_clocks():
    import time

    assert abs(WallClock().offset_us() / 1e6 + time.monotonic() - time.time()) < 1.0
