"""One server of a pair that drains."""

from __future__ import annotations

import pytest
from tests.pair.hand import Bench

from requite.engine import Wake
from requite.protocols.binarystar.table import State


def test_an_active_one_that_drains_lets_the_other_take_over_first() -> None:
    bench = Bench()
    bench.become(State.ACTIVE)
    bench.drain()
    assert bench.last_word().state is State.RESIGNED
    assert not bench.stopped
    assert not bench.vote()
    bench.hear(State.ACTIVE, 2)
    assert bench.stopped
    assert bench.engine.deadline() is None
    bench.feed(Wake())
    assert not bench.words()[1:]


def test_it_does_not_wait_for_ever() -> None:
    bench = Bench()
    bench.become(State.ACTIVE)
    bench.drain()
    bench.pass_time(2.0)
    assert bench.stopped
    assert not bench.serves


def test_one_that_drains_does_not_take_over_any_more() -> None:
    """Not even from a peer that has taken over, and has resigned in its turn."""
    bench = Bench()
    bench.become(State.ACTIVE)
    bench.drain()
    bench.hear(State.RESIGNED, 2)
    assert bench.state is State.RESIGNED
    assert not any(view.serves for view in bench.views[-2:])
    bench.pass_time(2.0)
    assert bench.stopped


@pytest.mark.parametrize("state", [State.PRIMARY, State.PASSIVE, State.SUSPENDED, State.FAILED])
def test_who_does_not_serve_ends_at_once(state: State) -> None:
    bench = Bench()
    bench.become(state)
    bench.drain()
    assert bench.stopped


def test_an_active_one_that_is_alone_ends_at_once() -> None:
    bench = Bench()
    bench.become(State.ACTIVE)
    bench.pass_time(2.0)
    bench.drain()
    assert bench.stopped
    assert not bench.serves


def test_who_has_ended_serves_nobody_whatever_comes() -> None:
    bench = Bench()
    bench.become(State.ACTIVE)
    bench.engine.end()
    bench.pass_time(0.5)
    bench.feed(Wake())
    bench.hear(State.RESIGNED, 8)
    assert not bench.vote()
