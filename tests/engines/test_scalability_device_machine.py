"""Random orders of events for the device: requests are forwarded once, and replies reach their
clients.

The machine plays network, clients and services. Bodies are unique, and a reply contains the body of
its request, so that a misrouted reply is detected.
"""

from __future__ import annotations

from collections import Counter
from itertools import count

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.sp_engines import DeviceBench, tag, way

from requite.protocols.scalability.wire import IDS

HOPS = 4
HOLD_S = 3.0
BACKLOG = 30
PEERS_MAX = 4


class DeviceMachine(RuleBasedStateMachine):
    """Random orders of events for a device."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies = count()
        self.names = count()
        self.front: dict[str, bytes] = {}  # open channels to the front, and their tags
        self.sent_by: dict[bytes, str] = {}  # bodies of valid requests, and their channel
        self.forwarded: set[bytes] = set()  # bodies of forwarded requests
        self.by_service: dict[str, int] = Counter()  # forwarded requests, by service
        self.pending: list[tuple[str, bytes]] = []  # replies that may be sent: client and payload
        self.expected: dict[bytes, str] = {}  # replies in transit: payload, and client
        self.checked = 0
        self.refused = Counter(malformed=0, hops=0, stray=0)
        self.draining = False

    @initialize(
        first_id=st.sampled_from([0, IDS - 2]), front=st.integers(0, 3), back=st.integers(0, 2)
    )
    def start(self, first_id, front, back):
        self.first_id = first_id
        self.joined = 0
        self.bench = DeviceBench(
            first_id=first_id, hops=HOPS, hold_s=HOLD_S, backlog_size_max=BACKLOG, linger_s=2.0
        )
        for _ in range(front):
            self.join_front()
        for _ in range(back):
            self.join_back()

    def back(self) -> list[str]:
        return [peer for peer in self.bench.peers if peer not in self.front]

    # --- the network --------------------------------------------------------------------------
    @precondition(lambda self: len(self.front) < PEERS_MAX)
    @rule()
    def join_front(self):
        peer = f"f{next(self.names)}"
        self.bench.front(peer)
        if not self.draining:
            self.front[peer] = way((self.first_id + self.joined) % IDS)
            self.joined += 1

    @precondition(lambda self: len(self.back()) < PEERS_MAX)
    @rule()
    def join_back(self):
        self.bench.back(f"b{next(self.names)}")

    @precondition(lambda self: self.bench.peers)
    @rule(data=st.data())
    def lose(self, data):
        peer = data.draw(st.sampled_from(sorted(self.bench.peers)))
        self.bench.lose(peer)
        self.front.pop(peer, None)

    @precondition(lambda self: self.bench.peers)
    @rule(data=st.data())
    def block_or_unblock(self, data):
        peer = data.draw(st.sampled_from(sorted(self.bench.peers)))
        if self.bench.peers[peer]:
            self.bench.block(peer)
        else:
            self.bench.unblock(peer)

    @rule(seconds=st.sampled_from([0.01, 1.0, 4.0]), is_late=st.booleans())
    def advance(self, seconds, is_late):
        if is_late:
            self.bench.freeze(seconds)
        else:
            self.bench.advance(seconds)

    # --- clients and services -----------------------------------------------------------------
    @precondition(lambda self: self.front and not self.bench.stopped)
    @rule(data=st.data(), depths=st.lists(st.integers(1, HOPS), min_size=1, max_size=4))
    def ask(self, data, depths):
        """Send requests with these numbers of tags; a request with HOPS tags has too many to be
        forwarded."""
        peer = data.draw(st.sampled_from(sorted(self.front)))
        payloads = []
        for depth in depths:
            body = b"#%d" % next(self.bodies)
            payloads.append(way(*range(depth - 1)) + tag(3) + body)
            if depth < HOPS:
                self.sent_by[body] = peer
            else:
                self.refused["hops"] += 1
        self.bench.say(peer, *payloads)

    @precondition(lambda self: self.pending and self.back() and not self.bench.stopped)
    @rule(data=st.data(), again=st.booleans())
    def answer(self, data, again):
        """Answer a forwarded request; its client may be lost, or may have been answered already."""
        index = data.draw(st.integers(0, len(self.pending) - 1))
        client, payload = self.pending[index] if again else self.pending.pop(index)
        if client in self.front:
            self.expected[payload[4:]] = client
        else:
            self.refused["stray"] += 1
        self.bench.say(data.draw(st.sampled_from(sorted(self.back()))), payload)

    @precondition(lambda self: self.bench.peers and not self.bench.stopped)
    @rule(data=st.data())
    def send_garbage(self, data):
        peer = data.draw(st.sampled_from(sorted(self.bench.peers)))
        if peer in self.front:
            payload = bytes(data.draw(st.integers(0, 4 * (HOPS - 1) - 1)))
            self.refused["malformed"] += 1
        else:
            payload = data.draw(st.sampled_from([b"", way(1), tag(1) + tag(2), way(99) + tag(1)]))
            self.refused["stray" if payload == way(99) + tag(1) else "malformed"] += 1
        self.bench.say(peer, payload)

    @rule(is_chosen=st.sampled_from([False] * 19 + [True]))
    def drain(self, is_chosen):
        if is_chosen:
            self.draining = True
            self.bench.drain()

    # --- invariants -------------------------------------------------------------------------------
    @invariant()
    def all_invariants_hold(self):
        """A single invariant, since the later checks rely on the first."""
        self.messages_are_forwarded_correctly()
        self.no_request_waits_needlessly()
        self.clients_with_waiting_requests_are_paused()
        self.counters_are_correct()
        self.waiting_requests_have_a_deadline()

    def messages_are_forwarded_correctly(self) -> None:
        for sent in self.bench.sent[self.checked :]:
            self.checked += 1
            if sent.peer in self.bench.backs:
                self.check_request(sent.peer, sent.payload)
            else:
                assert self.expected[sent.payload] == sent.peer

    def check_request(self, peer: str, payload: bytes) -> None:
        body = b"#" + payload.rpartition(b"#")[2]
        client = self.sent_by[body]
        assert body not in self.forwarded
        assert len(payload) - len(body) <= 4 * HOPS
        assert payload[:4] == self.front.get(client, payload[:4])
        self.forwarded.add(body)
        self.by_service[peer] += 1
        self.pending.append((client, payload))

    def no_request_waits_needlessly(self) -> None:
        snapshot = self.bench.device.snapshot()
        any_open = any(self.bench.peers[peer] for peer in self.back())
        waiting = {self.sent_by[body] for body in self.sent_by.keys() - self.forwarded}
        if any_open and snapshot.held:
            assert any(not self.bench.peers[peer] for peer in waiting if peer in self.front)
        assert snapshot.held <= len(self.sent_by) - len(self.forwarded)

    def clients_with_waiting_requests_are_paused(self) -> None:
        callers = {caller.peer: caller for caller in self.bench.device._turns}
        assert callers.keys() == self.front.keys()
        for peer, caller in callers.items():
            assert (peer in self.bench.unread) == (bool(caller.waiting) or self.draining)

    def counters_are_correct(self) -> None:
        snapshot = self.bench.device.snapshot()
        assert snapshot.front == len(self.front)
        assert snapshot.back == len(self.back())
        assert snapshot.requests == len(self.forwarded) == sum(self.by_service.values())
        for why in ("malformed", "hops", "stray"):
            assert snapshot.dropped.get(why, 0) == self.refused[why]
        gone = snapshot.dropped.get("lost", 0) + snapshot.dropped.get("stuck", 0)
        assert snapshot.requests + snapshot.held + gone == len(self.sent_by)

    def waiting_requests_have_a_deadline(self) -> None:
        """Except for a lack of services or back-pressure of its client."""
        at = self.bench.device.deadline()
        turns = self.bench.device._turns.line
        if turns and self.back() and not self.bench.stopped:
            assert at is not None
            assert at <= self.bench.now + HOLD_S

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        if not self.bench.stopped and not self.draining:
            self.heal()
        self.bench.drain()
        self.bench.advance(2.0)
        assert self.bench.stopped
        assert self.bench.device.deadline() is None

    def heal(self) -> None:
        """End all back-pressure, and check that nothing waits any more (I10)."""
        for peer, is_open in list(self.bench.peers.items()):
            if not is_open:
                self.bench.unblock(peer)
        if not self.back():
            self.join_back()
        self.bench.advance(0)
        self.messages_are_forwarded_correctly()
        self.bench.assert_empty()
        assert self.bench.unread == set()


TestDevice = DeviceMachine.TestCase
