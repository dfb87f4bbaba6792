"""Peers that are read in turn: whose turn it is, what waits, and for how long it has waited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.shell.fair_bench import TURN_S, Bench

from requite.engine import (
    Effect,
    PeerLost,
    ReadFreely,
    ReadInTurn,
    Received,
    Send,
)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_peer_passes_within_the_burst() -> None:
    bench = Bench(burst=2)
    link, stream = bench.join("client")
    bench.send(link, 1)
    bench.send(link, 1)
    assert bench.batches() == [Received(link, [[b"go"]])] * 2
    assert "pause" not in stream.calls


def test_beyond_the_burst_messages_wait_and_the_peer_is_not_read_from(bench: Bench) -> None:
    link, stream = bench.join("client")
    bench.send(link, 240)
    bench.send(link, 1)
    assert len(bench.batches()) == 1
    for _ in range(2):
        bench.turn()
        assert bench.batches() == []
        assert stream.calls[-1] == "pause"
    bench.turn(0.25)
    assert bench.batches() == [Received(link, [[b"go"]], pytest.approx(0.27))]
    assert stream.calls[-1] == "resume"


def test_a_peer_that_is_served_in_the_same_turn_is_read_on(bench: Bench) -> None:
    bench.finishes_at_once = True
    client, stream = bench.join("client")
    bench.send(client, 1)
    bench.send(client, 1)
    bench.turn()
    assert len(bench.batches()) == 2
    assert "pause" not in stream.calls
    bench.now += 5.0
    bench.send(client, 1)
    bench.turn(0.25)
    assert [batch.behind_s for batch in bench.batches()] == [0.25]


@pytest.mark.parametrize("reads", [[True], [False, False]])
def test_a_peer_with_more_to_read_is_not_read_on(bench: Bench, reads: list[bool]) -> None:
    bench.finishes_at_once = True
    client, stream = bench.join("client")
    bench.send(client, 1)
    for full in reads:
        assert "pause" not in stream.calls
        bench.send(client, 1, full=full)
    assert stream.calls[-1] == "pause"
    bench.turn()
    assert [len(batch.messages) for batch in bench.batches()] == [1, len(reads)]


@pytest.mark.parametrize(("peers", "quantum"), [(2, 40_000), (50, 2000), (100, 1000)])
def test_each_peer_has_its_turn_within_some_seconds(peers: int, quantum: int) -> None:
    bench = Bench()
    links = [bench.join(f"c{n}")[0] for n in range(peers)]
    worker, _ = bench.join("worker")
    for link in links:
        bench.send(link, 100)
        bench.send(link, 100)
    served: list[object] = []
    for _ in range(5000):
        bench.send(worker, 100, b"done")  # 10,000 per second
        bench.turn(0.01)
        for batch in bench.batches():
            if batch.peer is not worker:
                served.append(batch.peer)
                bench.send(batch.peer, 100)  # type: ignore[arg-type]
    last = served[-3000:]
    assert set(last) == set(links)
    changes = sum(a is not b for a, b in pairwise(last))
    assert 0.8 < 100 * len(last) / (changes + 1) / quantum < 1.25


def test_a_peer_keeps_its_turn_if_it_has_nothing_to_read_for_a_moment(bench: Bench) -> None:
    first, second = (bench.join(name)[0] for name in ("first", "second"))
    worker, _ = bench.join("worker")
    for link in (first, second):
        bench.send(link, 100)
        bench.send(link, 100)
    served: Counter[object] = Counter()
    for turn in range(8000):
        bench.send(worker, 100, b"done")
        bench.turn(0.01)
        for link in (first, second):
            if link.share is not None and not link.share.messages and (link is first or turn % 3):
                bench.send(link, 100)
        served.update(each.peer for each in bench.batches())
    assert 0.8 < served[first] / served[second] < 1.25


def test_a_peer_that_sends_little_goes_first(bench: Bench) -> None:
    worker, _ = bench.join("worker")
    greedy = [bench.join(f"greedy{n}")[0] for n in range(3)]
    modest, _ = bench.join("modest")
    bench.send(greedy[0], 200)
    for link in [*greedy, modest]:
        bench.send(link, 1 if link is modest else 200)
    bench.send(worker, 200, b"done")
    bench.batches()
    bench.turn()
    assert bench.batches()[0].peer is modest


def test_a_peer_that_sends_much_does_not_stay_first_with_small_reads(bench: Bench) -> None:
    worker, _ = bench.join("worker")
    greedy, _ = bench.join("greedy")
    other, _ = bench.join("other")
    bench.send(other, 200)
    bench.send(other, 200)
    served = set()
    for _ in range(20):
        bench.send(greedy, 16)
        bench.send(worker, 16, b"done")
        bench.turn()
        served |= {batch.peer for batch in bench.batches()}
    assert other in served


def test_what_a_full_read_leaves_has_waited_as_well(bench: Bench) -> None:
    bench.finishes_at_once = True
    link, stream = bench.join("client")
    stream.has_unread = True
    bench.send(link, 1)
    bench.send(link, 1, full=True)
    bench.turn(0.1)
    assert [batch.behind_s for batch in bench.batches()][1:] == [pytest.approx(0.1)]
    bench.now += 0.1
    bench.send(link, 1, full=True)  # came since the read before, or while it waited
    bench.turn(0.1)
    assert [batch.behind_s for batch in bench.batches()] == [pytest.approx(0.3)]
    bench.now += 0.1
    for _ in range(2):
        bench.send(link, 1)
        bench.turn()
    assert [batch.behind_s for batch in bench.batches()] == pytest.approx([0.41, TURN_S])


@pytest.mark.parametrize("full", [False, True])
def test_a_peer_from_which_everything_was_read_has_not_waited(bench: Bench, full: bool) -> None:
    bench.finishes_at_once = True
    link, stream = bench.join("client")
    stream.has_unread = True
    bench.send(link, 1)
    bench.send(link, 1)
    bench.turn(0.1)
    stream.has_unread = False
    bench.send(link, 1, full=full)
    bench.turn()
    bench.batches()
    bench.now += 5.0
    bench.send(link, 1)
    bench.turn(0.25)
    assert [batch.behind_s for batch in bench.batches()] == [0.25]


@pytest.mark.parametrize("full", [False, True])
def test_a_read_may_return_all_that_has_arrived(bench: Bench, full: bool) -> None:
    bench.finishes_at_once = True
    link, stream = bench.join("client")
    bench.send(link, 1)
    bench.send(link, 1)
    stream.has_unread = True
    bench.turn()
    bench.now += TURN_S
    bench.host.flush()
    stream.has_unread = False
    bench.send(link, 1, full=full)
    bench.batches()
    bench.now += 5.0
    bench.send(link, 1)
    bench.turn(0.25)
    assert [batch.behind_s for batch in bench.batches()] == [0.25]


@pytest.mark.parametrize(("refuses", "turns"), [(False, 101), (True, 1)])
def test_messages_that_are_refused_count_less(bench: Bench, refuses: bool, turns: int) -> None:
    bench.refuses_waited = refuses
    bench.finishes_at_once = True
    link, _ = bench.join("client")
    bench.send(link, 1)
    bench.send(link, 16_000)
    bench.turn()
    bench.finishes_at_once = False
    bench.pending = 0 if refuses else 16_000
    bench.send(link, 1)
    bench.batches()
    passed = 0
    while not bench.batches():
        bench.turn()
        passed += 1
    assert passed == turns


def test_refusals_lower_only_what_their_peer_has_used() -> None:
    bench = Bench(burst=2)
    bench.refuses_waited = True
    bench.finishes_at_once = True
    link, stream = bench.join("client")
    stream.has_unread = True
    bench.send(link, 2)
    bench.send(link, 1, full=True)
    bench.turn(0.1)
    bench.send(link, 160, full=True)  # there is room, so it does not wait
    assert [batch.behind_s > 0 for batch in bench.batches()] == [False, True, True]
    assert link.share is not None
    assert link.share.used == 160 // 16


def test_a_peer_that_waits_is_reported_alive(bench: Bench) -> None:
    link, _ = bench.join("client")
    bench.send(link, 20_000)
    bench.send(link, 1)
    bench.engine.inputs.clear()
    bench.turn(0.25)
    assert not bench.engine.inputs
    bench.turn(0.25)
    assert bench.engine.inputs == [Received(link, ())]
    bench.turn(0.5)
    assert bench.engine.inputs == [Received(link, ())] * 2


def test_a_peer_is_reported_alive_as_often_as_the_engine_wants() -> None:
    bench = Bench(burst=2)
    link, _ = bench.join("w")
    bench.engine.script = lambda event: [
        *bench.script(event),
        ReadInTurn(event.peer, len(event.messages[0][0]) / 64, bench.unfinished),
    ]
    bench.send(link, 1, b"x" * 32)
    bench.send(link, 5000, b"x" * 4)
    bench.send(link, 1)
    bench.engine.script = bench.script
    bench.engine.inputs.clear()
    for _ in range(3):
        bench.turn(1 / 16)
    assert bench.engine.inputs == [Received(link, ())] * 3


def test_a_peer_that_is_read_freely_again_waits_no_more(bench: Bench) -> None:
    link, stream = bench.join("client")
    worker, _ = bench.join("worker")
    bench.send(link, 240)
    bench.send(link, 1)
    bench.turn()
    bench.batches()
    assert stream.calls[-1] == "pause"
    bench.engine.script = lambda event: [ReadFreely(link)] if event.peer is worker else []
    bench.send(worker, 1)
    assert [batch.peer for batch in bench.batches()] == [worker, link]
    assert stream.calls[-1] == "resume"
    bench.turn()
    for _ in range(2):
        bench.send(link, 1000)
    assert [len(batch.messages) for batch in bench.batches()] == [1000, 1000]


def test_the_messages_of_a_peer_that_leaves_are_dropped(bench: Bench) -> None:
    link, _ = bench.join("client")
    bench.send(link, 18)
    bench.send(link, 1)
    bench.host.closed(link, "")
    bench.engine.inputs.remove(PeerLost(link, "the peer closed the connection"))
    bench.turn()
    bench.turn()
    assert len(bench.batches()) == 1
    assert not bench.flushes_wanted


def test_output_of_messages_that_waited_is_sent_in_the_same_turn(bench: Bench) -> None:
    bench.finishes_at_once = True
    link, stream = bench.join("client")
    bench.send(link, 1)
    bench.send(link, 1)
    bench.engine.script = lambda event: [Send(event.peer, [b"answer"])]
    bench.turn()
    assert stream.written.endswith(b"answer\n")


class Peer:
    """A client, and what it has sent: `read` reads two messages at a time, a full read.

    `idle_at` is the last instant at which all that it had sent was handled.
    """

    def __init__(self, bench: Bench, name: str) -> None:
        self.link, self.stream = bench.join(name)
        self.sent = self.handled = self.unread = 0
        self.idle_at = bench.now
        self._bench = bench

    def send(self, count: int) -> None:
        self.sent += count
        self.unread += count
        self.stream.has_unread = True

    def read(self) -> None:
        if self.unread and not self.link.paused:
            count = min(2, self.unread)
            self.unread -= count
            self.stream.has_unread = self.unread > 0
            self._bench.send(self.link, count, full=count == 2)

    def look(self) -> None:
        if self.handled == self.sent:
            self.idle_at = self._bench.now


_STEP = st.tuples(
    st.sampled_from(["send", "read", "come", "turn"]), st.integers(0, 1), st.integers(1, 4)
)


@given(st.lists(_STEP, max_size=60))
@example([("come", 0, 2), ("come", 0, 1), ("turn", 0, 1), ("come", 0, 1), ("turn", 0, 1)])
def test_no_message_counts_as_older_than_its_peer_has_been_behind(
    steps: list[tuple[str, int, int]],
) -> None:
    bench = Bench()
    peers = {peer.link: peer for peer in (Peer(bench, f"c{n}") for n in range(2))}

    def check(event: Any) -> Iterable[Effect]:
        if isinstance(event, Received) and event.messages:
            peer = peers[event.peer]  # type: ignore[index]
            peer.handled += len(event.messages)
            assert event.behind_s <= bench.now - peer.idle_at + 1e-9
        return ()

    bench.engine.script = check
    each = [*peers.values()]
    for what, who, size in steps:
        bench.now += size / 8
        if what in ("send", "come"):
            each[who].send(size)
        if what in ("read", "come"):
            each[who].read()
        if what == "turn":
            bench.host.flush()
        for peer in each:
            peer.look()
