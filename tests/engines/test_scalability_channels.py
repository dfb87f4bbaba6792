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
    """Return a table of open channels."""
    table = Channels()
    for peer, weight in weights.items():
        table.join(peer, PipeOptions(weight=weight))
    return table


def take_next(table: Channels, n: int) -> list[object]:
    """Take the next channel n times; return the peers."""
    served = []
    for _ in range(n):
        channel = table.next()
        assert channel is not None
        served.append(channel.peer)
    return served


def test_an_empty_table_has_no_next_channel() -> None:
    table = Channels()
    assert table.next() is None
    assert not table.any_open


def test_equal_channels_take_turns() -> None:
    assert take_next(channels(a=1, b=1, c=1), 7) == list("abcabca")


def test_weights_determine_the_shares() -> None:
    served = take_next(channels(a=1, b=4), 50)
    assert Counter(served) == {"a": 10, "b": 40}


def test_channels_of_different_weight_are_interleaved() -> None:
    assert take_next(channels(a=3, b=2), 5) == list("ababa")


def test_a_channel_that_pushes_back_is_skipped() -> None:
    table = channels(a=1, b=1)
    table.block("a")
    assert take_next(table, 3) == ["b"] * 3
    assert table.blocked == 1
    table.block("b")
    assert table.next() is None
    table.unblock("a")
    assert take_next(table, 2) == ["a"] * 2


def test_the_best_priority_with_an_open_channel_is_used() -> None:
    table = Channels()
    for peer, priority in (("far", 2), ("near", 1), ("farther", 16), ("nearby", 1)):
        table.join(peer, PipeOptions(priority=priority))
    assert take_next(table, 4) == ["near", "nearby"] * 2
    table.block("near")
    table.block("nearby")
    assert take_next(table, 2) == ["far"] * 2
    table.leave("far")
    assert take_next(table, 1) == ["farther"]
    table.unblock("nearby")
    assert take_next(table, 2) == ["nearby"] * 2


def test_a_channel_that_blocks_between_requests_keeps_its_share() -> None:
    table = channels(a=1, b=1, c=1)
    served: Counter[object] = Counter()
    for _ in range(30):
        table.block("c")
        table.unblock("c")
        served.update(take_next(table, 1))
    assert served == {"a": 10, "b": 10, "c": 10}


def test_a_channel_that_rejoins_gains_no_extra_turns() -> None:
    table = channels(a=1, b=1)
    served: Counter[object] = Counter()
    for number in range(30):
        table.join(("new", number), PipeOptions())
        for peer in take_next(table, 2):
            served["new" if isinstance(peer, tuple) else peer] += 1
        table.leave(("new", number))
    assert served["new"] <= min(served["a"], served["b"])


@pytest.mark.parametrize("weight", [1, 3])
def test_next_but_skips_a_channel_which_keeps_its_share(weight: int) -> None:
    table = channels(a=weight, b=1, c=1)
    served: Counter[object] = Counter()
    for _ in range(20):
        channel = table.next_but("a")
        assert channel is not None
        served[channel.peer] += 1
    assert served == {"b": 10, "c": 10}
    served = Counter(take_next(table, 10 * (weight + 2)))
    assert abs(served["a"] - 10 * weight) <= weight


def test_next_but_returns_the_only_open_channel() -> None:
    table = channels(a=1, b=1)
    table.block("b")
    channel = table.next_but("a")
    assert channel is not None
    assert channel.peer == "a"
    assert Channels().next_but("a") is None


@pytest.mark.parametrize("act", ["block", "unblock", "leave"])
def test_unknown_channels_are_ignored(act: str) -> None:
    table = channels(a=1)
    assert not getattr(table, act)("b")
    assert take_next(table, 1) == ["a"]


def test_channels_are_looked_up_by_peer() -> None:
    table = channels(a=1, b=1)
    assert "a" in table
    assert table.leave("a")
    assert "a" not in table
    assert len(table) == 1


class ChannelsMachine(RuleBasedStateMachine):
    """Random orders of events for a table of channels.

    For every two channels of equal priority and weight, the machine counts from the moment when
    both are open until one is not (I8). A channel that pushes back between two requests, and is
    open again before the second one, may lose its place in the round, but not its turn.
    """

    peers = Bundle("peers")

    def __init__(self) -> None:
        super().__init__()
        self.table = Channels()
        self.numbers = count()
        self.options: dict[int, PipeOptions] = {}
        self.open: set[int] = set()
        self.ahead: dict[tuple[int, int], int] = {}  # turns of the first, minus the second's
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
        self.options[peer] = PipeOptions("", priority, weight)
        self.table.join(peer, self.options[peer])
        self.mark_open(peer)
        return peer

    @rule(peer=consumes(peers))
    def leave(self, peer):
        assert self.table.leave(peer)
        self.mark_closed(peer)
        del self.options[peer]

    @rule(peer=peers)
    def block(self, peer):
        self.table.block(peer)
        self.mark_closed(peer)

    @rule(peer=peers)
    def unblock(self, peer):
        self.table.unblock(peer)
        if peer not in self.open:
            self.mark_open(peer)

    @rule(n=st.integers(1, 8))
    def take_next(self, n):
        for _ in range(n):
            self.take_one()

    @precondition(lambda self: self.options)
    @rule(data=st.data())
    def flap(self, data):
        peer = data.draw(st.sampled_from(sorted(self.options)))
        self.table.block(peer)
        self.unblock(peer)
        self.flapped |= {pair for pair in self.ahead if peer in pair}

    def take_one(self) -> None:
        channel = self.table.next()
        if channel is None:
            assert not self.open
            return
        peer = channel.peer
        assert peer in self.open
        best = min(self.options[each].priority for each in self.open)
        assert self.options[peer].priority == best
        for pair in self.ahead:
            if peer in pair:
                self.ahead[pair] += 1 if peer == pair[0] else -1
                low, high = self.extremes[pair]
                ahead = self.ahead[pair]
                self.extremes[pair] = min(low, ahead), max(high, ahead)

    def mark_open(self, peer: int) -> None:
        self.open.add(peer)
        for other in self.open - {peer}:
            if self.options[other] == self.options[peer]:
                pair = min(peer, other), max(peer, other)
                self.ahead[pair] = 0
                self.extremes[pair] = 0, 0

    def mark_closed(self, peer: int) -> None:
        self.open.discard(peer)
        for pair in [pair for pair in self.ahead if peer in pair]:
            del self.ahead[pair]
            self.flapped.discard(pair)

    @invariant()
    def equal_channels_get_equal_shares(self):
        """Over every period, no counter changes by more than the weight."""
        for pair in self.ahead:
            low, high = self.extremes[pair]
            weight = self.options[pair[0]].weight
            assert high - low <= (2 * weight if pair in self.flapped else weight)

    @invariant()
    def the_table_counts_open_channels(self):
        assert self.table.any_open == bool(self.open)
        assert len(self.table) == len(self.options)
        assert self.table.blocked == len(self.options) - len(self.open)


TestChannels = ChannelsMachine.TestCase


def test_the_machine_compares_pairs() -> None:
    """A machine that compares no pairs would pass as well."""
    machine = ChannelsMachine()
    machine.begin(3)
    machine.take_next(4)
    assert sorted(machine.ahead) == list(combinations(range(3), 2))
    assert set(machine.ahead.values()) == {0, 1}
