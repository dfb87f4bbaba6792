"""Round robin among channels: fairness while channels join, leave, block and unblock."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, count

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from requite.protocols.scalability.channels import Channels
from requite.protocols.scalability.policy import PipeOptions


def channels(**weights: int) -> Channels:
    """Make a table of open channels."""
    table = Channels()
    for peer, weight in weights.items():
        table.join(peer, PipeOptions(weight=weight))
    return table


def serve(table: Channels, n: int) -> list[object]:
    """Serve n times; return who was."""
    served = []
    for _ in range(n):
        channel = table.next()
        assert channel is not None
        served.append(channel.peer)
    return served


def test_nobody_is_served_where_nobody_is() -> None:
    table = Channels()
    assert table.next() is None
    assert not table.any_open


def test_equals_take_turns() -> None:
    assert serve(channels(a=1, b=1, c=1), 7) == list("abcabca")


def test_weights_are_shares() -> None:
    served = serve(channels(a=1, b=4), 50)
    assert Counter(served) == {"a": 10, "b": 40}


def test_the_heavy_do_not_go_first_all_together() -> None:
    assert serve(channels(a=3, b=2), 5) == list("ababa")


def test_one_that_pushes_back_is_passed_over() -> None:
    table = channels(a=1, b=1)
    table.block("a")
    assert serve(table, 3) == ["b"] * 3
    assert table.blocked == 1
    table.block("b")
    assert table.next() is None
    table.unblock("a")
    assert serve(table, 2) == ["a"] * 2


def test_the_best_priority_that_takes_anything_is_served() -> None:
    table = Channels()
    for peer, priority in (("far", 2), ("near", 1), ("farther", 16), ("nearby", 1)):
        table.join(peer, PipeOptions(priority=priority))
    assert serve(table, 4) == ["near", "nearby"] * 2
    table.block("near")
    table.block("nearby")
    assert serve(table, 2) == ["far"] * 2
    table.leave("far")
    assert serve(table, 1) == ["farther"]
    table.unblock("nearby")
    assert serve(table, 2) == ["nearby"] * 2


def test_one_that_blocks_between_any_two_requests_is_served_all_the_same() -> None:
    table = channels(a=1, b=1, c=1)
    served: Counter[object] = Counter()
    for _ in range(30):
        table.block("c")
        table.unblock("c")
        served.update(serve(table, 1))
    assert served == {"a": 10, "b": 10, "c": 10}


def test_one_that_comes_and_goes_gains_nothing_by_it() -> None:
    table = channels(a=1, b=1)
    served: Counter[object] = Counter()
    for number in range(30):
        table.join(("new", number), PipeOptions())
        for peer in serve(table, 2):
            served["new" if isinstance(peer, tuple) else peer] += 1
        table.leave(("new", number))
    assert served["new"] <= min(served["a"], served["b"])


@pytest.mark.parametrize("weight", [1, 3])
def test_one_that_does_not_answer_is_passed_over(weight: int) -> None:
    table = channels(a=weight, b=1, c=1)
    served: Counter[object] = Counter()
    for _ in range(20):
        channel = table.next_but("a")
        assert channel is not None
        served[channel.peer] += 1
    assert served == {"b": 10, "c": 10}
    served = Counter(serve(table, 10 * (weight + 2)))
    assert abs(served["a"] - 10 * weight) <= weight


def test_the_only_one_is_not_passed_over() -> None:
    table = channels(a=1, b=1)
    table.block("b")
    channel = table.next_but("a")
    assert channel is not None
    assert channel.peer == "a"
    assert Channels().next_but("a") is None


@pytest.mark.parametrize("act", ["block", "unblock", "leave"])
def test_strangers_are_ignored(act: str) -> None:
    table = channels(a=1)
    assert not getattr(table, act)("b")
    assert serve(table, 1) == ["a"]


def test_a_channel_is_known_by_its_peer() -> None:
    table = channels(a=1, b=1)
    assert "a" in table
    assert table.leave("a")
    assert "a" not in table
    assert len(table) == 1


class Turns(RuleBasedStateMachine):
    """Any history of a table of channels.

    For every two channels of equal priority and weight it counts from the moment at which both are
    open, until one is not: I8. One that pushes back between two requests, and takes more again
    before the second one, has missed nothing: it may lose its place in the round, not its turn.
    """

    peers = Bundle("peers")

    def __init__(self) -> None:
        super().__init__()
        self.table = Channels()
        self.numbers = count()
        self.places: dict[int, PipeOptions] = {}
        self.open: set[int] = set()
        self.ahead: dict[tuple[int, int], int] = {}  # how often the first one, minus the second
        self.extremes: dict[tuple[int, int], tuple[int, int]] = {}
        self.flapped: set[tuple[int, int]] = set()

    @initialize(n=st.integers(0, 5))
    def begin(self, n):
        for _ in range(n):
            self.add(1, 1)

    @rule(
        target=peers,
        priority=st.sampled_from([1, 1, 1, 2]),
        weight=st.sampled_from([1, 1, 1, 3]),
    )
    def join(self, priority, weight):
        return self.add(priority, weight)

    def add(self, priority: int, weight: int) -> int:
        peer = next(self.numbers)
        self.places[peer] = PipeOptions("", priority, weight)
        self.table.join(peer, self.places[peer])
        self.opened(peer)
        return peer

    @rule(peer=consumes(peers))
    def leave(self, peer):
        assert self.table.leave(peer)
        self.shut(peer)
        del self.places[peer]

    @rule(peer=peers)
    def block(self, peer):
        self.table.block(peer)
        self.shut(peer)

    @rule(peer=peers)
    def unblock(self, peer):
        self.table.unblock(peer)
        if peer not in self.open:
            self.opened(peer)

    @rule(n=st.integers(1, 8))
    def serve(self, n):
        for _ in range(n):
            self.serve_one()

    @precondition(lambda self: self.places)
    @rule(data=st.data())
    def flap(self, data):
        peer = data.draw(st.sampled_from(sorted(self.places)))
        self.table.block(peer)
        self.unblock(peer)
        self.flapped |= {pair for pair in self.ahead if peer in pair}

    def serve_one(self) -> None:
        channel = self.table.next()
        if channel is None:
            assert not self.open
            return
        peer = channel.peer
        assert peer in self.open
        best = min(self.places[each].priority for each in self.open)
        assert self.places[peer].priority == best
        for pair in self.ahead:
            if peer in pair:
                self.ahead[pair] += 1 if peer == pair[0] else -1
                low, high = self.extremes[pair]
                ahead = self.ahead[pair]
                self.extremes[pair] = min(low, ahead), max(high, ahead)

    def opened(self, peer: int) -> None:
        self.open.add(peer)
        for other in self.open - {peer}:
            if self.places[other] == self.places[peer]:
                pair = min(peer, other), max(peer, other)
                self.ahead[pair] = 0
                self.extremes[pair] = 0, 0

    def shut(self, peer: int) -> None:
        self.open.discard(peer)
        for pair in [pair for pair in self.ahead if peer in pair]:
            del self.ahead[pair]
            self.flapped.discard(pair)

    @invariant()
    def equals_are_served_equally(self):
        """Over every stretch of time: no counter ever moves by more than the weight."""
        for pair in self.ahead:
            low, high = self.extremes[pair]
            weight = self.places[pair[0]].weight
            assert high - low <= (2 * weight if pair in self.flapped else weight)

    @invariant()
    def the_table_knows_who_takes_anything(self):
        assert self.table.any_open == bool(self.open)
        assert len(self.table) == len(self.places)
        assert self.table.blocked == len(self.places) - len(self.open)


TestTurns = Turns.TestCase


def test_pairs_are_compared_at_all() -> None:
    """The machine would pass if it compared nothing."""
    machine = Turns()
    machine.begin(3)
    machine.serve(4)
    assert sorted(machine.ahead) == list(combinations(range(3), 2))
    assert set(machine.ahead.values()) == {0, 1}
