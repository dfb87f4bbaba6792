"""Lanes: the call of each connection, and the idle connections."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from requite.core.lanes import Lanes

CONNECTIONS_MAX = 3


def lanes_with(*peers: str) -> Lanes[str]:
    lanes: Lanes[str] = Lanes(CONNECTIONS_MAX)
    for peer in peers:
        assert lanes.join(peer)
        assert lanes.rest(peer)
    return lanes


def test_the_most_recently_used_lane_is_used_next():
    lanes = lanes_with("a", "b", "c")
    peer = lanes.occupy("call 1")
    assert lanes.vacate(peer) == "call 1"
    lanes.rest(peer)
    assert lanes.occupy("call 2") == peer


def test_a_vacated_lane_is_not_idle_before_rest():
    lanes = lanes_with("a")
    lanes.occupy("call")
    assert not lanes.rest("a")  # its reply is pending
    lanes.vacate("a")
    assert not lanes.idle
    assert lanes.rest("a")


def test_a_lane_that_pushes_back_is_not_idle():
    lanes = lanes_with("a")
    lanes.block("a")
    assert not lanes.idle
    assert not lanes.rest("a")
    lanes.unblock("a")
    assert lanes.rest("a")


def test_wanted_returns_the_number_of_missing_lanes():
    lanes: Lanes[str] = Lanes(CONNECTIONS_MAX)
    assert [lanes.wanted(2), lanes.wanted(2), lanes.wanted(9), lanes.wanted(9)] == [2, 0, 1, 0]
    assert lanes.join("a")
    assert (lanes.dialling, lanes.wanted(2)) == (2, 0)


def test_an_unrequested_lane_is_accepted_below_the_limit():
    lanes = lanes_with("a", "b", "c")
    assert lanes.dialling == 0
    assert not lanes.join("d")
    assert "d" not in lanes
    lanes.drop("b")
    assert lanes.join("d")


class Machine(RuleBasedStateMachine):
    """Random operations on lanes, checked against a model: the call of each connection, and the
    order of idle connections."""

    peers = Bundle("peers")

    def __init__(self) -> None:
        super().__init__()
        self.lanes: Lanes[int] = Lanes(CONNECTIONS_MAX)
        self.model: dict[int, int | None] = {}
        self.idle: list[int] = []
        self.blocked: set[int] = set()
        self.number = 0

    def new(self) -> int:
        self.number += 1
        return self.number

    @rule(target=peers)
    def join(self) -> int:
        peer = self.new()
        has_room = len(self.model) < CONNECTIONS_MAX
        assert self.lanes.join(peer) == has_room
        if has_room:
            self.model[peer] = None
        return peer

    @rule(peer=peers)
    def rest(self, peer: int) -> None:
        if peer in self.model and peer not in self.idle:
            may = self.model[peer] is None and peer not in self.blocked
            assert self.lanes.rest(peer) == may
            self.idle += [peer] if may else []

    @rule()
    def occupy(self) -> None:
        if self.idle:
            call = self.new()
            expected = self.idle.pop()
            assert self.lanes.occupy(call) == expected
            self.model[expected] = call

    @rule(peer=peers)
    def vacate(self, peer: int) -> None:
        if peer in self.model:
            assert self.lanes.vacate(peer) == self.model[peer]
            self.model[peer] = None

    @rule(peer=peers)
    def drop(self, peer: int) -> None:
        if peer in self.model:
            assert self.lanes.drop(peer) == self.model.pop(peer)
            self.forget(peer)
            self.blocked.discard(peer)

    @rule(peer=peers, blocks=st.booleans())
    def block(self, peer: int, blocks: bool) -> None:
        if peer in self.model and blocks:
            self.lanes.block(peer)
            self.blocked.add(peer)
            self.forget(peer)
        elif peer in self.model:
            self.lanes.unblock(peer)
            self.blocked.discard(peer)

    @rule()
    def clear(self) -> None:
        self.lanes.clear()
        self.model.clear()
        self.idle.clear()
        self.blocked.clear()

    def forget(self, peer: int) -> None:
        if peer in self.idle:
            self.idle.remove(peer)

    @invariant()
    def matches_the_model(self) -> None:
        assert self.lanes.calls == self.model
        assert list(self.lanes.idle) == self.idle
        assert self.lanes.blocked == self.blocked
        assert len(self.lanes) == len(list(self.lanes)) <= CONNECTIONS_MAX


TestMachine = Machine.TestCase
