"""Random orders of events for the worker: requests start at most once, replies reach their
channels, and channels take turns.

The machine plays network, clients and handlers. A reply repeats the unique body of its request, so
that a misrouted reply is detected.
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
    """Random orders of events for a worker."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies = count()
        self.names = count()
        self.waiting: dict[str, deque[bytes]] = {}  # bodies not delivered yet, by channel
        self.channel_of: dict[bytes, str] = {}  # channel by body
        self.stacks: dict[bytes, bytes] = {}
        self.parts: dict[bytes, bytes] = {}  # partial replies so far, by body
        self.expected: dict[bytes, bytes] = {}  # complete replies of handlers, by body
        self.delivered = self.answered = 0  # numbers of checked requests and replies
        self.turns: dict[tuple[str, str], int] = {}  # turns of the first, minus the second's
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
        """Send requests with these numbers of channel ids; HOPS of them or more are too many."""
        peer = self.draw_peer(data)
        payloads = []
        for depth in depths:
            body = b"%d" % next(self.bodies)
            stack = way(*range(depth)) + tag(7)
            payloads.append(stack + body)
            if depth < HOPS:
                self.channel_of[body] = peer
                self.stacks[body] = stack
                self.waiting[peer].append(body)
            else:
                self.refused["hops"] += 1
        self.bench.say(peer, *payloads)

    @precondition(lambda self: self.bench.peers and not self.bench.stopped)
    @rule(data=st.data(), size=st.integers(0, 4 * HOPS - 1))
    def send_garbage(self, data, size):
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
            self.expected[body] = self.parts.get(body, b"") + b"re " + body
        self.bench.finish(job, b"re ", body, status=status)

    @precondition(lambda self: self.bench.running)
    @rule(data=st.data())
    def produce(self, data):
        job = data.draw(st.sampled_from(self.bench.running))
        body = self.bench.requests[job].body
        self.parts[body] = self.parts.get(body, b"") + b"part "
        self.bench.produce(job, b"part ")

    @rule(is_chosen=st.sampled_from([False] * 19 + [True]))
    def drain(self, is_chosen):
        if is_chosen:
            self.draining = True
            self.bench.drain()

    # --- invariants -------------------------------------------------------------------------------
    @invariant()
    def all_invariants_hold(self):
        """A single invariant, since the later checks rely on the first."""
        if self.bench.stopped:
            for waiting in self.waiting.values():
                waiting.clear()
        self.requests_are_delivered_in_turn_and_in_order()
        self.replies_reach_their_channels()
        self.handlers_are_busy_while_requests_wait()
        self.channels_over_the_limit_are_paused()
        self.tables_match_the_model()

    def requests_are_delivered_in_turn_and_in_order(self) -> None:
        for job, request in list(self.bench.requests.items())[self.delivered :]:
            self.delivered += 1
            body = request.body
            peer = self.channel_of[body]
            if peer in self.waiting:
                assert self.waiting[peer].popleft() == body
            else:  # the channel has been lost since
                assert job in self.bench.abandoned
            for pair in self.turns:
                if peer in pair:
                    self.turns[pair] += 1 if peer == pair[0] else -1
                    assert abs(self.turns[pair]) <= 1
        self.compare_waiting_peers()

    def compare_waiting_peers(self) -> None:
        ready = sorted(p for p in self.bench.peers if self.bench.peers[p] and self.waiting[p])
        pairs = {(a, b) for a in ready for b in ready if a < b}
        self.turns = {pair: self.turns.get(pair, 0) for pair in pairs}

    def replies_reach_their_channels(self) -> None:
        for sent in self.bench.sent[self.answered :]:
            self.answered += 1
            body = sent.payload.rpartition(b"re ")[2]
            assert sent.payload == self.stacks[body] + self.expected.pop(body)
            assert sent.peer == self.channel_of[body]

    def handlers_are_busy_while_requests_wait(self) -> None:
        assert len(self.bench.running) <= CAPACITY
        if len(self.bench.running) < CAPACITY:
            is_open = self.bench.peers
            assert not [peer for peer, waits in self.waiting.items() if waits and is_open[peer]]

    def channels_over_the_limit_are_paused(self) -> None:
        if self.draining:
            assert self.bench.unread == set(self.bench.peers)
            return
        for peer, waiting in self.waiting.items():
            if peer in self.bench.unread:
                assert len(waiting) > QUEUE_MAX // 2
            else:
                assert len(waiting) <= QUEUE_MAX

    def tables_match_the_model(self) -> None:
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
        """End all back-pressure and all handlers, and check that no table leaks (I9)."""
        if not hasattr(self, "bench"):
            return
        for peer, is_open in list(self.bench.peers.items()):
            if not is_open:
                self.bench.unblock(peer)
        while self.bench.running:
            self.end(self.bench.running[0], Status.OK)
            self.all_invariants_hold()
        if not self.bench.stopped:
            self.bench.assert_empty()
            self.bench.drain()
        assert self.bench.stopped
        self.bench.assert_empty()


TestRep = RepMachine.TestCase
