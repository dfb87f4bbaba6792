"""Draining one server of a pair."""

from __future__ import annotations

import pytest
from tests.pair.bench import Bench

from requite.engine import Wake
from requite.protocols.binarystar.table import State


def test_draining_an_active_server_ends_after_the_other_has_taken_over() -> None:
    bench = Bench()
    bench.bring_into(State.ACTIVE)
    bench.drain()
    assert bench.last_heartbeat().state is State.RESIGNED
    assert not bench.stopped
    assert not bench.vote()
    bench.receive_heartbeat(State.ACTIVE, 2)
    assert bench.stopped
    assert bench.engine.deadline() is None
    bench.feed(Wake())
    assert not bench.heartbeats()[1:]


def test_a_drain_ends_after_a_fail_over_time_without_a_take_over() -> None:
    bench = Bench()
    bench.bring_into(State.ACTIVE)
    bench.drain()
    bench.advance(2.0)
    assert bench.stopped
    assert not bench.serves


def test_a_draining_server_does_not_take_over() -> None:
    """The peer has taken over and resigned in the meantime."""
    bench = Bench()
    bench.bring_into(State.ACTIVE)
    bench.drain()
    bench.receive_heartbeat(State.RESIGNED, 2)
    assert bench.state is State.RESIGNED
    assert not any(view.serves for view in bench.views[-2:])
    bench.advance(2.0)
    assert bench.stopped


@pytest.mark.parametrize("state", [State.PRIMARY, State.PASSIVE, State.SUSPENDED, State.FAILED])
def test_a_drain_of_a_server_that_is_not_active_ends_at_once(state: State) -> None:
    bench = Bench()
    bench.bring_into(state)
    bench.drain()
    assert bench.stopped


def test_a_drain_without_a_live_peer_ends_at_once() -> None:
    bench = Bench()
    bench.bring_into(State.ACTIVE)
    bench.advance(2.0)
    bench.drain()
    assert bench.stopped
    assert not bench.serves


def test_an_ended_server_does_not_serve_again() -> None:
    bench = Bench()
    bench.bring_into(State.ACTIVE)
    bench.engine.end()
    bench.advance(0.5)
    bench.feed(Wake())
    bench.receive_heartbeat(State.RESIGNED, 8)
    assert not bench.vote()
