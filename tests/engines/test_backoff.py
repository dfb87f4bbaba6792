"""Pauses between attempts to connect."""

import pytest

from requite.backoff import Backoff, pause_s
from requite.errors import ConfigurationError


def test_the_ceiling_doubles_up_to_the_maximum() -> None:
    backoff = Backoff(lambda: 0.0, first_s=0.05, max_s=1.0)
    assert [backoff.next_s() for _ in range(7)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_jitter_shortens_a_pause_by_up_to_half() -> None:
    assert Backoff(lambda: 1.0, first_s=0.05).next_s() == pytest.approx(0.025)
    assert Backoff(lambda: 0.5, first_s=0.08).next_s() == pytest.approx(0.06)


def test_reset_restarts_the_series() -> None:
    backoff = Backoff(lambda: 0.0, first_s=0.05)
    assert [backoff.next_s(), backoff.next_s()] == [0.05, 0.1]
    backoff.reset()
    assert backoff.next_s() == 0.05


def test_without_jitter_pauses_double_up_to_the_maximum() -> None:
    assert [pause_s(failures, 1.0, 5.0) for failures in (1, 2, 3, 4)] == [1.0, 2.0, 4.0, 5.0]


def test_any_number_of_failures_is_accepted() -> None:
    assert pause_s(10**6, 0.05, 2.0, jitter=0.5, rng=lambda: 0.5) == 1.5


@pytest.mark.parametrize(("first_s", "max_s"), [(0, 1), (-1, 1), (2, 1)])
def test_invalid_pauses_are_refused(first_s: float, max_s: float) -> None:
    with pytest.raises(ConfigurationError):
        Backoff(lambda: 0.0, first_s=first_s, max_s=max_s)
