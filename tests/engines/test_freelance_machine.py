"""Random orders of events for Freelance clients and servers.

Every call ends once, with its own reply, and leaves no state. A server answers each accepted
request once, or abandons it. The machines play user, network and peers. A request's body is the
token of its call, and a reply repeats it, so that a reply delivered to the wrong call is detected
(I2).
"""

from __future__ import annotations

from itertools import count
from math import inf
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.freelance_engines import ClientBench, ServerBench

from requite.core.jobs import ClientJob
from requite.errors import CallTimeout, Cancelled, Overloaded, TransportError
from requite.protocols.freelance.agent import AgentClient
from requite.protocols.freelance.failover import FailoverClient
from requite.protocols.freelance.shotgun import ShotgunClient
from requite.protocols.freelance.wire import Model
from requite.request import Status

SLOTS = 4
ADDRESSES = ("a", "b", "c")
PEERS_MAX = 5
TIMEOUTS = st.sampled_from([inf, 5.0, 1.0, 0.3])
GARBAGE = st.lists(
    st.lists(
        st.sampled_from([b"", b"PING", b"PONG", b"1", b"2", b"99", b"\xff" * 9]),
        min_size=1,
        max_size=4,
    ),
    max_size=4,
)


class _ClientMachine(RuleBasedStateMachine):
    """Random orders of events for a client."""

    kind: ClassVar[type]
    envelope: ClassVar[int]
    settings_: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.tokens = count()
        self.names = count()
        self.submitted: set[int] = set()
        self.attempts: dict[int, int] = {}
        self.checked = 0  # number of messages in bench.sent that were checked
        self.unanswered: dict[str, list[list[bytes]]] = {}
        self.answered: set[int] = set()  # tokens for which a reply has been sent

    @initialize(attempts_max=st.sampled_from([1, 2, 3]), budget_burst=st.sampled_from([100, 0]))
    def start(self, attempts_max: int, budget_burst: int) -> None:
        given = {"attempt_timeout": 0.7, **self.settings_}
        self.attempts_max = attempts_max
        self.bench = ClientBench(
            self.kind,
            servers=len(ADDRESSES),
            slots=SLOTS,
            attempts=attempts_max,
            budget_burst=budget_burst,
            **given,
        )

    # --- the network ------------------------------------------------------------------------------
    @precondition(lambda self: len(self.bench.peers) < PEERS_MAX)
    @rule(place=st.sampled_from(ADDRESSES))
    def join(self, place: str) -> None:
        self.bench.join(f"{place}{next(self.names)}", place=place)

    @precondition(lambda self: self.bench.peers)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.bench.lose(data.draw(st.sampled_from(sorted(self.bench.peers))))

    @precondition(lambda self: True in self.bench.peers.values())
    @rule(data=st.data())
    def block(self, data: st.DataObject) -> None:
        open_ones = sorted(peer for peer, is_open in self.bench.peers.items() if is_open)
        self.bench.block(data.draw(st.sampled_from(open_ones)))

    @precondition(lambda self: False in self.bench.peers.values())
    @rule(data=st.data())
    def unblock(self, data: st.DataObject) -> None:
        shut = sorted(peer for peer, is_open in self.bench.peers.items() if not is_open)
        self.bench.unblock(data.draw(st.sampled_from(shut)))

    # --- the user ---------------------------------------------------------------------------------
    @rule(timeout=TIMEOUTS, idempotent=st.booleans())
    def submit(self, timeout: float, idempotent: bool) -> None:
        token = next(self.tokens)
        self.submitted.add(token)
        is_idempotent = idempotent or self.kind is ShotgunClient
        self.bench.submit(token, b"%d" % token, timeout=timeout, idempotent=is_idempotent)

    @precondition(lambda self: self.open())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.open())))
        self.bench.cancel(token)
        assert isinstance(self.bench.errors[token], Cancelled)

    # --- servers ----------------------------------------------------------------------------------
    @precondition(lambda self: any(map(self.waiting, self.bench.peers)))
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        peers = sorted(peer for peer in self.bench.peers if self.waiting(peer))
        peer = data.draw(st.sampled_from(peers))
        request = self.unanswered[peer].pop(0)
        self.answered.add(int(request[self.envelope]))
        self.bench.say(peer, [*request[: self.envelope], request[self.envelope]])

    @precondition(lambda self: self.bench.peers and self.kind is AgentClient)
    @rule(data=st.data())
    def pong(self, data: st.DataObject) -> None:
        self.bench.say(data.draw(st.sampled_from(sorted(self.bench.peers))), [b"PONG"])

    # --- time -------------------------------------------------------------------------------------
    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 7.0]))
    def advance(self, seconds: float) -> None:
        self.bench.advance(seconds)

    @rule(seconds=st.sampled_from([1.0, 20.0]))
    def freeze(self, seconds: float) -> None:
        self.bench.freeze(seconds)

    # --- invariants -------------------------------------------------------------------------------
    @invariant()
    def check(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.check_requests()
        bench = self.bench
        for token, reply in bench.replies.items():
            assert reply.body == b"%d" % token
            assert token in self.answered
        for error in bench.errors.values():
            assert isinstance(error, CallTimeout | Cancelled | Overloaded | TransportError)
            assert error.may_have_executed == (error.attempts > 0)
        snapshot = bench.client.snapshot()
        assert snapshot.held + snapshot.sent == len(self.open()) <= SLOTS
        assert snapshot.connections == len(bench.peers)

    def check_requests(self) -> None:
        for peer, message in self.bench.sent[self.checked :]:
            if message == [b"PING"]:
                continue
            token = int(message[self.envelope])
            assert token in self.submitted
            self.attempts[token] = self.attempts.get(token, 0) + 1
            servers = len(ADDRESSES) if self.kind is ShotgunClient else 1
            assert self.attempts[token] <= self.attempts_max * servers
            self.unanswered.setdefault(peer, []).append(message)
        self.checked = len(self.bench.sent)

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.drain()
            assert not self.open()
            self.bench.assert_empty()
            assert self.bench.client.deadline() is None

    def waiting(self, peer: str) -> list[list[bytes]]:
        return self.unanswered.get(peer, [])

    def open(self) -> set[int]:
        return self.submitted - set(self.bench.replies) - set(self.bench.errors)


class AgentMachine(_ClientMachine):
    kind = AgentClient
    envelope = 1

    @precondition(lambda self: self.bench.peers)
    @rule(data=st.data(), messages=GARBAGE)
    def send_garbage(self, data: st.DataObject, messages: list[list[bytes]]) -> None:
        """Send messages other than replies to pending requests."""
        harmless = [m for m in messages if m[0] not in self.bench.client._pending or len(m) < 2]
        self.bench.say(data.draw(st.sampled_from(sorted(self.bench.peers))), *harmless)


class ShotgunMachine(_ClientMachine):
    kind = ShotgunClient
    envelope = 2

    @precondition(lambda self: self.bench.peers)
    @rule(data=st.data(), messages=GARBAGE)
    def send_garbage(self, data: st.DataObject, messages: list[list[bytes]]) -> None:
        """Send messages other than replies to pending requests."""
        pending = self.bench.client._pending
        harmless = [m for m in messages if len(m) < 3 or m[1] not in pending]
        self.bench.say(data.draw(st.sampled_from(sorted(self.bench.peers))), *harmless)


class FailoverMachine(_ClientMachine):
    kind = FailoverClient
    envelope = 0

    def check_requests(self) -> None:
        fresh = self.bench.sent[self.checked :]
        super().check_requests()
        for peer, _ in fresh:
            assert len(self.unanswered[peer]) == 1, "two requests on one connection"


class ServerMachine(RuleBasedStateMachine):
    """Random orders of events for a server."""

    def __init__(self) -> None:
        super().__init__()
        self.names = count()
        self.numbers = count()
        self.asked: dict[str, set[bytes]] = {}
        self.pings: dict[str, int] = {}

    @initialize(capacity=st.sampled_from([1, 2, 5]), queue_max=st.sampled_from([1, 3]))
    def start(self, capacity: int, queue_max: int) -> None:
        self.capacity = capacity
        self.bench = ServerBench(model=Model.AGENT, capacity=capacity, queue_max=queue_max)

    @rule()
    def join(self) -> None:
        name = f"c{next(self.names)}"
        self.bench.join(name)
        self.asked[name] = set()
        self.pings[name] = 0

    @precondition(lambda self: self.bench.peers)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.bench.lose(data.draw(st.sampled_from(sorted(self.bench.peers))))

    @precondition(lambda self: self.readable())
    @rule(data=st.data(), requests=st.integers(0, 3), pings=st.integers(0, 2), garbage=GARBAGE)
    def say(
        self, data: st.DataObject, requests: int, pings: int, garbage: list[list[bytes]]
    ) -> None:
        peer = data.draw(st.sampled_from(self.readable()))
        controls = [b"%d" % next(self.numbers) for _ in range(requests)]
        self.asked[peer].update(controls)
        self.pings[peer] += pings
        broken = [m for m in garbage if len(m) == 1 and m != [b"PING"]]
        messages = [[b"PING"]] * pings + broken + [[control, b"x"] for control in controls]
        self.bench.say(peer, *data.draw(st.permutations(messages)))

    @precondition(lambda self: self.bench.running)
    @rule(data=st.data(), status=st.sampled_from([Status.OK, Status.OK, Status.FAILED]))
    def finish(self, data: st.DataObject, status: Status) -> None:
        job: ClientJob = data.draw(st.sampled_from(self.bench.running))
        is_lost = job in self.bench.abandoned
        self.bench.finish(job, status=Status.CANCELLED if is_lost else status)

    @invariant()
    def check(self) -> None:
        if not hasattr(self, "bench"):
            return
        bench = self.bench
        assert len(bench.running) <= self.capacity
        snapshot = bench.server.snapshot()
        assert snapshot.waiting == 0 or len(bench.running) == self.capacity
        for peer in bench.peers:
            pongs = [message for message in bench.to(peer) if message == [b"PONG"]]
            answered = [message[0] for message in bench.to(peer) if message != [b"PONG"]]
            assert len(pongs) == self.pings[peer]
            assert set(answered) <= self.asked[peer]
            assert len(answered) == len(set(answered)), "answered twice"

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.drain()
            while self.bench.running:
                self.bench.finish(self.bench.running[0])
            assert self.bench.stopped
            self.bench.assert_empty()

    def readable(self) -> list[str]:
        return sorted(peer for peer in self.bench.peers if peer not in self.bench.unread)


TestAgent = AgentMachine.TestCase
TestShotgun = ShotgunMachine.TestCase
TestFailover = FailoverMachine.TestCase
TestServer = ServerMachine.TestCase
