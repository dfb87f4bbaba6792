"""Pauses between attempts to connect."""

import pytest

from requite.errors import ConfigurationError
from requite.transport.backoff import LIVED_S, Backoff


def test_the_ceiling_doubles_up_to_the_longest() -> None:
    backoff = Backoff(lambda: 0.0, first_s=0.05, max_s=1.0)
    assert [backoff.next_s() for _ in range(7)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_jitter_takes_away_up_to_half() -> None:
    assert Backoff(lambda: 1.0, first_s=0.05).next_s() == pytest.approx(0.025)
    assert Backoff(lambda: 0.5, first_s=0.08).next_s() == pytest.approx(0.06)


def test_only_a_connection_that_lived_starts_the_series_anew() -> None:
    backoff = Backoff(lambda: 0.0, first_s=0.05)
    backoff.next_s()
    backoff.note_life(LIVED_S * 0.9)
    assert backoff.next_s() == 0.1
    backoff.note_life(LIVED_S)
    assert backoff.next_s() == 0.05


@pytest.mark.parametrize(("first_s", "max_s"), [(0, 1), (-1, 1), (2, 1)])
def test_pauses_that_make_no_sense_are_refused(first_s: float, max_s: float) -> None:
    with pytest.raises(ConfigurationError):
        Backoff(lambda: 0.0, first_s=first_s, max_s=max_s)
