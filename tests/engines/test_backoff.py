"""Pauses between attempts to connect."""

import pytest

from requite.backoff import Backoff, pause_s
from requite.errors import ConfigurationError


def test_the_ceiling_doubles_up_to_the_longest() -> None:
    backoff = Backoff(lambda: 0.0, first_s=0.05, max_s=1.0)
    assert [backoff.next_s() for _ in range(7)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_jitter_takes_away_up_to_half() -> None:
    assert Backoff(lambda: 1.0, first_s=0.05).next_s() == pytest.approx(0.025)
    assert Backoff(lambda: 0.5, first_s=0.08).next_s() == pytest.approx(0.06)


def test_a_success_starts_the_series_anew() -> None:
    backoff = Backoff(lambda: 0.0, first_s=0.05)
    assert [backoff.next_s(), backoff.next_s()] == [0.05, 0.1]
    backoff.reset()
    assert backoff.next_s() == 0.05


def test_without_jitter_a_pause_is_its_ceiling() -> None:
    assert [pause_s(failures, 1.0, 5.0) for failures in (1, 2, 3, 4)] == [1.0, 2.0, 4.0, 5.0]


def test_no_number_of_failures_is_too_large() -> None:
    assert pause_s(10**6, 0.05, 2.0, jitter=0.5, rng=lambda: 0.5) == 1.5


@pytest.mark.parametrize(("first_s", "max_s"), [(0, 1), (-1, 1), (2, 1)])
def test_pauses_that_make_no_sense_are_refused(first_s: float, max_s: float) -> None:
    with pytest.raises(ConfigurationError):
        Backoff(lambda: 0.0, first_s=first_s, max_s=max_s)
