"""Requests of operators to one server of a pair."""

from __future__ import annotations

import pytest
from tests.pair.bench import Bench

from requite.protocols.binarystar.table import PairRole, State
from requite.protocols.binarystar.wire import Ask, Refused, Switch, View


def test_an_operator_gets_the_servers_view() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.bring_into(State.PASSIVE, 3)
    bench.join("operator", dialled=False)
    bench.advance(0.25)
    bench.receive(Ask(), "operator")
    assert bench.sent["operator"] == [
        View(PairRole.BACKUP, State.PASSIVE, False, False, State.ACTIVE, 250, 1000, 3)
    ]


def test_a_switch_at_the_active_server_makes_it_resign() -> None:
    bench = Bench()
    bench.bring_into(State.ACTIVE)
    bench.join("operator", dialled=False)
    bench.receive(Switch(1), "operator")
    (view,) = bench.sent["operator"]
    assert isinstance(view, View)
    assert view.state is State.RESIGNED
    assert bench.last_heartbeat().state is State.RESIGNED
    bench.receive_heartbeat(State.ACTIVE, 2)
    assert bench.state is State.PASSIVE


def test_a_switch_at_the_passive_server_is_forwarded_to_the_active_one() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.bring_into(State.PASSIVE, 1)
    bench.join("operator", dialled=False)
    bench.receive(Switch(1), "operator")
    assert Switch(1) in bench.sent["peer"]
    bench.receive_heartbeat(State.RESIGNED, 1)
    assert (bench.state, bench.epoch) == (State.ACTIVE, 2)


def test_only_an_active_server_obeys_a_forwarded_switch_of_its_epoch() -> None:
    bench = Bench()
    bench.bring_into(State.ACTIVE)
    bench.receive(Switch(7))
    assert bench.serves
    bench.receive(Switch(1))
    assert bench.state is State.RESIGNED
    passive = Bench(PairRole.BACKUP)
    passive.bring_into(State.PASSIVE, 1)
    passive.receive(Switch(1))
    assert Switch(1) not in passive.sent["peer"]


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (State.PRIMARY, "the pair is starting"),
        (State.SUSPENDED, "checks whether it is still active"),
        (State.RESIGNED, "in progress"),
        (State.FAILED, "has failed"),
    ],
)
def test_a_switch_that_is_not_possible_is_refused(state: State, why: str) -> None:
    bench = Bench()
    bench.bring_into(state)
    bench.join("operator", dialled=False)
    bench.receive(Switch(bench.epoch), "operator")
    (refused,) = bench.sent["operator"]
    assert isinstance(refused, Refused)
    assert why in refused.reason
    bench.switch()
    assert bench.state is state
    assert why in bench.warnings[-1]


def test_the_view_of_a_silent_peer_gives_the_reason() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.engine._why_unheard = lambda: "connection refused"
    assert bench.engine.view(bench.now).trouble == "connection refused"
    bench.bring_into(State.PASSIVE)
    assert bench.engine.view(bench.now).trouble == ""
    bench.advance(2.0)
    assert bench.engine.view(bench.now).trouble == "connection refused"


def test_a_switch_to_a_silent_peer_is_refused() -> None:
    bench = Bench()
    bench.bring_into(State.ACTIVE)
    bench.advance(2.0)
    assert "neither would serve" in bench.engine.objection(bench.now)
    bench.switch()
    assert bench.serves


def test_a_switch_for_an_older_epoch_is_refused() -> None:
    bench = Bench()
    bench.bring_into(State.ACTIVE, 3)
    bench.join("operator", dialled=False)
    bench.receive(Switch(1), "operator")
    (refused,) = bench.sent["operator"]
    assert isinstance(refused, Refused)
    assert refused.reason.startswith("the switch is for epoch 1, but this is epoch 3")
