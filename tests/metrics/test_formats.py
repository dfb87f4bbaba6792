"""Counts, rates, durations and sizes in few characters."""

from __future__ import annotations

from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requite.metrics.formats import count, duration, percentile, rate, size


@pytest.mark.parametrize(
    ("per_s", "text"),
    [
        (nan, "–"),
        (0, "0"),
        (0.01, "<0.1"),
        (0.5, "0.5"),
        (9.94, "9.9"),
        (9.95, "10"),
        (1234, "1,234"),
        (99_999.4, "99,999"),
        (123_456, "123k"),
        (2_345_678, "2.3M"),
        (234_567_890, "235M"),
    ],
)
def test_rates(per_s: float, text: str) -> None:
    assert rate(per_s) == text


@pytest.mark.parametrize(
    ("s", "text"),
    [
        (nan, "–"),
        (0.00034, "0.3 ms"),
        (0.0123, "12 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (60, "1m00s"),
        (185, "3m05s"),
        (3599.9, "59m59s"),
        (3600, "1h00m"),
        (86_399, "23h59m"),
        (90_000, "1d01h"),
    ],
)
def test_durations(s: float, text: str) -> None:
    assert duration(s) == text


def test_counts() -> None:
    assert (count(0), count(1234)) == ("0", "1,234")


def test_a_percentile_at_the_last_bound_may_be_longer() -> None:
    assert (percentile(30.0), percentile(29.0), percentile(nan)) == ("≥30 s", "29 s", "–")


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (nan, "–"),
        (0, "0"),
        (512, "512 B"),
        (1023.6, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (102_400, "100 KiB"),
        (1 << 20, "1.0 MiB"),
        (1 << 30, "1.0 GiB"),
        (5 << 50, "5,120 TiB"),
    ],
)
def test_sizes(n: float, text: str) -> None:
    assert size(n) == text


@given(st.floats(0, 1e8))
def test_figures_fit_into_their_columns(value: float) -> None:
    assert len(rate(value)) <= 6
    assert len(duration(value)) <= 7
    assert len(size(value)) <= 9
