"""Queued requests per client, and the order of turns."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from requite.core.turns import ClientPeer, Turns

MANY = 1 << 30


def turns_of(*peers: str, **settings: Any) -> Turns[ClientPeer]:
    turns: Turns[ClientPeer] = Turns(**{"queue_max": MANY, "queue_size_max": MANY} | settings)
    for peer in peers:
        turns.join(ClientPeer(peer))
    return turns


def push(turns: Turns[ClientPeer], *requests: str, size: int = 1) -> list[bool]:
    """Queue requests, which are named after their client: "a1" is a request of "a"."""
    return [turns.push(turns.by_peer[name[0]], name, size) for name in requests]


def pop_all(turns: Turns[ClientPeer]) -> list[str]:
    taken = []
    while due := turns.pop():
        assert due[0].peer == due[1][0]
        taken.append(due[1])
    return taken


def test_clients_are_served_in_turn_regardless_of_their_queues() -> None:
    turns = turns_of("a", "b", "c")
    push(turns, "a1", "a2", "a3", "b1", "c1", "c2")
    assert turns.waiting == 6
    assert pop_all(turns) == ["a1", "b1", "c1", "a2", "c2", "a3"]
    assert turns.waiting == 0


def test_waiting_requests_of_a_lost_client_are_dropped() -> None:
    turns = turns_of("a", "b")
    push(turns, "a1", "b1", "a2")
    left = turns.leave("a")
    assert left is not None
    assert len(left.waiting) == 2
    assert turns.leave("a") is None
    assert (pop_all(turns), len(turns)) == (["b1"], 1)


def test_a_blocked_client_is_skipped_and_gets_its_turn_later() -> None:
    turns = turns_of("a", "b")
    push(turns, "a1", "b1", "b2", "b3")
    turns.block("a")
    due = turns.pop()
    assert due is not None
    assert due[1] == "b1"
    assert turns.unblock("a") is turns.by_peer["a"]
    assert pop_all(turns) == ["a1", "b2", "b3"]


def test_a_briefly_blocked_client_keeps_its_turn() -> None:
    turns = turns_of("a", "b")
    push(turns, "b1", "a1", "b2")
    turns.block("a")
    assert turns.unblock("a") is not None
    assert turns.unblock("a") is None  # already unblocked
    assert pop_all(turns) == ["b1", "a1", "b2"]


def test_blocking_an_unknown_client_has_no_effect() -> None:
    turns = turns_of("a")
    turns.block("z")
    assert turns.unblock("z") is None


@pytest.mark.parametrize(
    ("stops_at_max", "stops"),
    [(False, [False, False, False, False, True]), (True, [False, False, False, True, False])],
)
def test_a_client_over_the_queue_limit_is_paused(stops_at_max, stops) -> None:
    turns = turns_of("a", queue_max=4, stops_at_max=stops_at_max)
    assert push(turns, "a1", "a2", "a3", "a4", "a5") == stops
    resumed = []
    while due := turns.pop():
        resumed.append(turns.resumes(due[0]))
    assert resumed == [False, False, True, False, False]  # at two, half of the limit of four
    assert push(turns, "a6", "a7", "a8", "a9", "a9") == stops


@pytest.mark.parametrize(
    ("stops_at_max", "stops"), [(False, [False, False, True]), (True, [False, True, False])]
)
def test_the_queue_limit_applies_to_bytes(stops_at_max, stops) -> None:
    turns = turns_of("a", queue_size_max=100, stops_at_max=stops_at_max)
    assert push(turns, "a1", "a2", "a3", size=50) == stops
    client = turns.by_peer["a"]
    turns.pop()
    assert not turns.resumes(client)
    turns.pop()
    assert turns.resumes(client)
    assert client.size == 50


def test_with_one_at_a_time_a_client_waits_for_an_offer() -> None:
    turns = turns_of("a", "b", one_at_a_time=True)
    push(turns, "a1", "a2", "b1")
    assert pop_all(turns) == ["a1", "b1"]
    push(turns, "a3")
    turns.block("a")
    turns.unblock("a")
    assert pop_all(turns) == []
    turns.offer(turns.by_peer["b"])
    assert pop_all(turns) == []
    turns.offer(turns.by_peer["a"])
    assert pop_all(turns) == ["a2"]


def test_clear_drops_all_waiting_requests() -> None:
    turns = turns_of("a", "b")
    push(turns, "a1", "a2", "b1")
    assert turns.clear() == 3
    assert pop_all(turns) == []
    assert [client.size for client in turns] == [0, 0]
    push(turns, "b2")
    assert pop_all(turns) == ["b2"]


# --- random orders of events ----------------------------------------------------------------------
PEERS = st.sampled_from("abcd")


class TurnsMachine(RuleBasedStateMachine):
    """No request is lost or overtaken, and no client gets two turns while another one waits for its
    own."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = turns_of(queue_max=3, queue_size_max=20)
        self.queues: dict[str, deque[tuple[int, int]]] = {}
        self.blocked: set[str] = set()
        self.number = 0
        self.served: dict[str, dict[str, int]] = {}  # turns of others, by waiting client

    @rule(peer=PEERS)
    def join(self, peer: str) -> None:
        if peer not in self.queues:
            self.turns.join(ClientPeer(peer))
            self.queues[peer] = deque()

    @rule(peer=PEERS)
    def leave(self, peer: str) -> None:
        left = self.turns.leave(peer)
        queue = self.queues.pop(peer, None)
        self.blocked.discard(peer)
        self.served.pop(peer, None)
        assert (None if left is None else left.waiting or deque()) == queue

    @rule(peer=PEERS)
    def block(self, peer: str) -> None:
        self.turns.block(peer)
        if peer in self.queues:
            self.blocked.add(peer)
            self.served.pop(peer, None)

    @rule(peer=PEERS)
    def unblock(self, peer: str) -> None:
        assert (self.turns.unblock(peer) is not None) == (peer in self.blocked)
        self.blocked.discard(peer)

    @precondition(lambda self: self.queues)
    @rule(data=st.data(), size=st.integers(0, 9))
    def push(self, data: st.DataObject, size: int) -> None:
        peer = data.draw(st.sampled_from(sorted(self.queues)))
        client = self.turns.by_peer[peer]
        was_read = client.is_read
        self.number += 1
        self.queues[peer].append((size, self.number))
        stops = self.turns.push(client, self.number, size)
        assert stops == (was_read and self._is_over(peer, 3, 20))
        assert client.is_read == (was_read and not stops)

    @rule()
    def pop(self) -> None:
        ready = {p for p, queue in self.queues.items() if queue and p not in self.blocked}
        due = self.turns.pop()
        if due is None:
            assert not ready
            return
        client, number = due
        peer = client.peer
        assert peer in ready
        assert self.queues[peer].popleft()[1] == number
        self.served.pop(peer, None)
        for other in ready - {peer}:
            counts = self.served.setdefault(other, {})
            counts[peer] = counts.get(peer, 0) + 1
            assert counts[peer] == 1
        was_read = client.is_read
        is_half = not self._is_over(peer, 3 // 2, 20 // 2)
        assert self.turns.resumes(client) == (not was_read and is_half)

    def _is_over(self, peer: str, count_max: int, size_max: int) -> bool:
        queue = self.queues[peer]
        return len(queue) > count_max or sum(size for size, _ in queue) > size_max

    @invariant()
    def tables_agree(self) -> None:
        line = list(self.turns.line)
        assert len(line) == len(set(line))
        assert set(self.turns.by_peer) == set(self.queues)
        assert self.turns.waiting == sum(map(len, self.queues.values()))
        for peer, client in self.turns.by_peer.items():
            assert client.has_turn == (client in line)
            assert client.size == sum(size for size, _ in self.queues[peer])
            if self.queues[peer] and peer not in self.blocked:
                assert client.has_turn  # otherwise the client would wait for ever


TestTurns = TurnsMachine.TestCase
