"""The worker under any order of events: each request is begun once at most, and answered the way it
came, and channels take turns.

The machine plays network, clients and handlers. A reply repeats its request's body, which no other
request has, so a reply that went the wrong way shows.
"""

from __future__ import annotations

from collections import deque
from itertools import count

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.sp_engines import RepBench, tag, way

from requite.protocols.scalability.wire import IDS
from requite.request import Status

HOPS = 3
CAPACITY = 2
QUEUE_MAX = 4
BACKLOG = 40
PEERS_MAX = 4
STATUSES = st.sampled_from([Status.OK, Status.OK, Status.OK, Status.FAILED, Status.CANCELLED])


class RepMachine(RuleBasedStateMachine):
    """Any history of a worker."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies = count()
        self.names = count()
        self.waiting: dict[str, deque[bytes]] = {}  # by channel, bodies not delivered yet
        self.came_by: dict[bytes, str] = {}  # body to channel
        self.stacks: dict[bytes, bytes] = {}
        self.parts: dict[bytes, bytes] = {}  # partial replies so far, by body
        self.said: dict[bytes, bytes] = {}  # complete replies that handlers gave, by body
        self.delivered = self.answered = 0  # how many were looked at
        self.turns: dict[tuple[str, str], int] = {}  # who is ahead, of two that wait all the time
        self.refused = {"malformed": 0, "hops": 0}
        self.draining = False

    @initialize(first_id=st.sampled_from([0, IDS - 1]), peers=st.integers(0, 3))
    def start(self, first_id, peers):
        self.bench = RepBench(
            first_id=first_id,
            hops=HOPS,
            capacity=CAPACITY,
            queue_max=QUEUE_MAX,
            backlog_size_max=BACKLOG,
        )
        for _ in range(peers):
            self.join()

    # --- the network --------------------------------------------------------------------------
    @precondition(lambda self: len(self.bench.peers) < PEERS_MAX)
    @rule()
    def join(self):
        peer = f"p{next(self.names)}"
        self.bench.join(peer)
        if self.draining:
            assert peer in self.bench.disconnected
        else:
            self.waiting[peer] = deque()

    @precondition(lambda self: self.bench.peers)
    @rule(data=st.data())
    def lose(self, data):
        peer = self.draw_peer(data)
        self.bench.lose(peer)
        del self.waiting[peer]

    @precondition(lambda self: self.bench.peers)
    @rule(data=st.data())
    def block_or_unblock(self, data):
        peer = self.draw_peer(data)
        if self.bench.peers[peer]:
            self.bench.block(peer)
        else:
            self.bench.unblock(peer)

    # --- clients ------------------------------------------------------------------------------
    @precondition(lambda self: self.bench.peers and not self.bench.stopped)
    @rule(data=st.data(), depths=st.lists(st.integers(0, HOPS + 1), min_size=1, max_size=5))
    def ask(self, data, depths):
        """Send requests behind so many channel ids; those with HOPS of them or more are refused."""
        peer = self.draw_peer(data)
        payloads = []
        for depth in depths:
            body = b"%d" % next(self.bodies)
            stack = way(*range(depth)) + tag(7)
            payloads.append(stack + body)
            if depth < HOPS:
                self.came_by[body] = peer
                self.stacks[body] = stack
                self.waiting[peer].append(body)
            else:
                self.refused["hops"] += 1
        self.bench.say(peer, *payloads)

    @precondition(lambda self: self.bench.peers and not self.bench.stopped)
    @rule(data=st.data(), size=st.integers(0, 4 * HOPS - 1))
    def junk(self, data, size):
        self.bench.say(self.draw_peer(data), bytes(size))
        self.refused["malformed"] += 1

    def draw_peer(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.bench.peers)))

    # --- handlers -----------------------------------------------------------------------------
    @precondition(lambda self: self.bench.running)
    @rule(data=st.data(), status=STATUSES)
    def finish(self, data, status):
        self.end(data.draw(st.sampled_from(self.bench.running)), status)

    def end(self, job, status: Status) -> None:
        body = self.bench.requests[job].body
        if status is Status.OK and job not in self.bench.abandoned:
            self.said[body] = self.parts.get(body, b"") + b"re " + body
        self.bench.finish(job, b"re ", body, status=status)

    @precondition(lambda self: self.bench.running)
    @rule(data=st.data())
    def produce(self, data):
        job = data.draw(st.sampled_from(self.bench.running))
        body = self.bench.requests[job].body
        self.parts[body] = self.parts.get(body, b"") + b"part "
        self.bench.produce(job, b"part ")

    @rule(sure=st.sampled_from([False] * 19 + [True]))
    def drain(self, sure):
        if sure:
            self.draining = True
            self.bench.drain()

    # --- what must hold -----------------------------------------------------------------------
    @invariant()
    def all_is_in_order(self):
        """One invariant, since the later checks rely on the first."""
        if self.bench.stopped:
            for waiting in self.waiting.values():
                waiting.clear()
        self.requests_are_delivered_in_turn_and_in_order()
        self.replies_go_the_way_their_requests_came()
        self.handlers_are_busy_as_long_as_something_waits()
        self.those_with_too_much_waiting_are_not_read_from()
        self.the_tables_hold_what_is_there()

    def requests_are_delivered_in_turn_and_in_order(self) -> None:
        for job, request in list(self.bench.requests.items())[self.delivered :]:
            self.delivered += 1
            body = request.body
            peer = self.came_by[body]
            if peer in self.waiting:
                assert self.waiting[peer].popleft() == body
            else:  # it was lost since
                assert job in self.bench.abandoned
            for pair in self.turns:
                if peer in pair:
                    self.turns[pair] += 1 if peer == pair[0] else -1
                    assert abs(self.turns[pair]) <= 1
        self.compare_those_who_wait()

    def compare_those_who_wait(self) -> None:
        ready = sorted(p for p in self.bench.peers if self.bench.peers[p] and self.waiting[p])
        pairs = {(a, b) for a in ready for b in ready if a < b}
        self.turns = {pair: self.turns.get(pair, 0) for pair in pairs}

    def replies_go_the_way_their_requests_came(self) -> None:
        for sent in self.bench.sent[self.answered :]:
            self.answered += 1
            body = sent.payload.rpartition(b"re ")[2]
            assert sent.payload == self.stacks[body] + self.said.pop(body)
            assert sent.peer == self.came_by[body]

    def handlers_are_busy_as_long_as_something_waits(self) -> None:
        assert len(self.bench.running) <= CAPACITY
        if len(self.bench.running) < CAPACITY:
            is_open = self.bench.peers
            assert not [peer for peer, waits in self.waiting.items() if waits and is_open[peer]]

    def those_with_too_much_waiting_are_not_read_from(self) -> None:
        if self.draining:
            assert self.bench.unread == set(self.bench.peers)
            return
        for peer, waiting in self.waiting.items():
            if peer in self.bench.unread:
                assert len(waiting) > QUEUE_MAX // 2
            else:
                assert len(waiting) <= QUEUE_MAX

    def the_tables_hold_what_is_there(self) -> None:
        snapshot = self.bench.worker.snapshot()
        assert snapshot.waiting == sum(map(len, self.waiting.values()))
        assert snapshot.running + snapshot.abandoned == len(self.bench.running)
        assert snapshot.channels == len(self.bench.peers)
        for why, times in self.refused.items():
            assert snapshot.dropped.get(why, 0) == times
        idle = not self.bench.running
        assert self.bench.stopped == snapshot.stopped
        assert not (self.draining and idle) or self.bench.stopped

    def teardown(self) -> None:
        """End all back-pressure and all handlers: no table leaks (I9)."""
        if not hasattr(self, "bench"):
            return
        for peer, is_open in list(self.bench.peers.items()):
            if not is_open:
                self.bench.unblock(peer)
        while self.bench.running:
            self.end(self.bench.running[0], Status.OK)
            self.all_is_in_order()
        if not self.bench.stopped:
            self.bench.assert_empty()
            self.bench.drain()
        assert self.bench.stopped
        self.bench.assert_empty()


TestRep = RepMachine.TestCase
