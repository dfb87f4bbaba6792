"""What operators ask of one server of a pair."""

from __future__ import annotations

import pytest
from tests.pair.hand import Bench

from requite.protocols.binarystar.table import PairRole, State
from requite.protocols.binarystar.wire import Ask, Refused, Switch, View


def test_an_operator_sees_what_the_server_knows() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.become(State.PASSIVE, 3)
    bench.join("operator", dialled=False)
    bench.pass_time(0.25)
    bench.tell(Ask(), "operator")
    assert bench.said["operator"] == [
        View(PairRole.BACKUP, State.PASSIVE, False, False, State.ACTIVE, 250, 1000, 3)
    ]


def test_an_operator_switches_at_the_active_one() -> None:
    bench = Bench()
    bench.become(State.ACTIVE)
    bench.join("operator", dialled=False)
    bench.tell(Switch(1), "operator")
    (view,) = bench.said["operator"]
    assert isinstance(view, View)
    assert view.state is State.RESIGNED
    assert bench.last_word().state is State.RESIGNED
    bench.hear(State.ACTIVE, 2)
    assert bench.state is State.PASSIVE


def test_an_operator_switches_at_the_passive_one() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.become(State.PASSIVE, 1)
    bench.join("operator", dialled=False)
    bench.tell(Switch(1), "operator")
    assert Switch(1) in bench.said["peer"]
    bench.hear(State.RESIGNED, 1)
    assert (bench.state, bench.epoch) == (State.ACTIVE, 2)


def test_a_switch_that_the_peer_passes_on_is_obeyed_by_the_active_one_in_its_epoch() -> None:
    bench = Bench()
    bench.become(State.ACTIVE)
    bench.tell(Switch(7))
    assert bench.serves
    bench.tell(Switch(1))
    assert bench.state is State.RESIGNED
    passive = Bench(PairRole.BACKUP)
    passive.become(State.PASSIVE, 1)
    passive.tell(Switch(1))
    assert Switch(1) not in passive.said["peer"]


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
    bench.become(state)
    bench.join("operator", dialled=False)
    bench.tell(Switch(bench.epoch), "operator")
    (refused,) = bench.said["operator"]
    assert isinstance(refused, Refused)
    assert why in refused.reason
    bench.switch()
    assert bench.state is state
    assert why in bench.warnings[-1]


def test_who_is_not_heard_is_told_of_with_what_keeps_it() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.engine._why_unheard = lambda: "connection refused"
    assert bench.engine.view(bench.now).trouble == "connection refused"
    bench.become(State.PASSIVE)
    assert bench.engine.view(bench.now).trouble == ""
    bench.pass_time(2.0)
    assert bench.engine.view(bench.now).trouble == "connection refused"


def test_nobody_switches_to_a_silent_peer() -> None:
    bench = Bench()
    bench.become(State.ACTIVE)
    bench.pass_time(2.0)
    assert "neither would serve" in bench.engine.objection(bench.now)
    bench.switch()
    assert bench.serves


def test_a_late_switch_is_void() -> None:
    bench = Bench()
    bench.become(State.ACTIVE, 3)
    bench.join("operator", dialled=False)
    bench.tell(Switch(1), "operator")
    (refused,) = bench.said["operator"]
    assert isinstance(refused, Refused)
    assert refused.reason.startswith("the switch is for epoch 1, but this is epoch 3")
