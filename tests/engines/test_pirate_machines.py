"""Random orders of events at a client, a server and a worker of the Pirates."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.pirate_engines import ClientBench, ServerBench, WorkerBench

from requite.engine import Produced, Wake
from requite.protocols.pirate.policy import ClientPolicy, ServerPolicy, WorkerPolicy
from requite.protocols.pirate.wire import Pattern
from requite.request import RetryPolicy, Status

SECONDS = st.sampled_from([0.0, 0.1, 1.0, 4.0])
LIMITS = settings(max_examples=60, stateful_step_count=40, deadline=None)


class ClientMachine(RuleBasedStateMachine):
    """A client: each call ends once, the number of connections is bounded, and no expired request
    is sent."""

    def __init__(self) -> None:
        super().__init__()
        retry = RetryPolicy(attempts=3, attempt_timeout=1.0)
        self.bench = ClientBench(ClientPolicy(slots=5, retry=retry, connections_max=3))
        self.number = 0
        self.asked: dict[int, float] = {}
        self.checked = 0

    @rule(timeout=st.sampled_from([0.0, 0.5, 3.0, 60.0]), idempotent=st.booleans())
    def submit(self, timeout: float, idempotent: bool) -> None:
        self.number += 1
        self.asked[self.number] = self.bench.now + timeout
        self.bench.submit(self.number, b"%d" % self.number, timeout=timeout, idempotent=idempotent)

    @precondition(lambda self: bool(self.asked))
    @rule(data=st.data())
    def cancel(self, data: Any) -> None:
        self.bench.cancel(data.draw(st.sampled_from(sorted(self.asked))))

    @precondition(lambda self: self.bench.client.snapshot().dialling)
    @rule()
    def connect(self) -> None:
        self.number += 1
        self.bench.join(f"peer {self.number}")

    @precondition(lambda self: bool(self.bench.peers))
    @rule(data=st.data(), times=st.integers(1, 2))
    def answer(self, data: Any, times: int) -> None:
        asked = [peer for peer, _ in self.bench.sent if peer in self.bench.peers]
        peer = data.draw(st.sampled_from(asked or sorted(self.bench.peers)))
        request = (self.bench.to(peer) or [[b"nothing"]])[-1]
        self.bench.say(peer, *([b"re", *request] for _ in range(times)))

    @precondition(lambda self: bool(self.bench.peers))
    @rule(data=st.data())
    def lose(self, data: Any) -> None:
        self.bench.lose(data.draw(st.sampled_from(sorted(self.bench.peers))))

    @rule(seconds=SECONDS, stalled=st.booleans())
    def advance(self, seconds: float, stalled: bool) -> None:
        if stalled:
            self.bench.freeze(seconds)
        else:
            self.bench.advance(seconds)

    @invariant()
    def no_expired_request_is_sent(self) -> None:
        for peer, frames in self.bench.sent[self.checked :]:
            assert self.bench.now < self.asked[int(frames[-1])], f"{frames} went to {peer} too late"
        self.checked = len(self.bench.sent)

    @invariant()
    def replies_match_their_calls(self) -> None:
        for token, reply in self.bench.replies.items():
            assert list(reply.frames) == [b"re", b"%d" % token]

    @invariant()
    def tables_are_consistent(self) -> None:
        seen = self.bench.client.snapshot()
        ended = len(self.bench.replies) + len(self.bench.errors)
        assert seen.held + seen.sent == len(self.asked) - ended <= 5
        assert seen.connections == len(self.bench.peers)
        assert seen.connections + seen.dialling <= 3
        assert not seen.held or seen.sent == seen.connections  # no connection is idle meanwhile

    def teardown(self) -> None:
        self.bench.drain()
        assert len(self.bench.replies) + len(self.bench.errors) == len(self.asked)
        assert self.bench.peers == set()


class ServerMachine(RuleBasedStateMachine):
    """A server: it runs one request per connection, and sends each reply to the client of its
    request."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = ServerBench(ServerPolicy(capacity=2, queue_max=3))
        self.number = 0
        self.senders: dict[bytes, str] = {}
        self.running: list[Any] = []

    @rule()
    def client_joins(self) -> None:
        self.number += 1
        self.bench.join(f"c{self.number}")

    @precondition(lambda self: bool(self.bench.peers - self.bench.unread))
    @rule(data=st.data(), count=st.integers(1, 4))
    def client_sends(self, data: Any, count: int) -> None:
        peer = data.draw(st.sampled_from(sorted(self.bench.peers - self.bench.unread)))
        bodies = []
        for _ in range(count):
            self.number += 1
            bodies.append(b"%d" % self.number)
            self.senders[bodies[-1]] = peer
        self.bench.say(peer, *([body] for body in bodies))

    @precondition(lambda self: bool(self.open_jobs()))
    @rule(data=st.data(), status=st.sampled_from([Status.OK, Status.OK, Status.FAILED]))
    def handler_ends(self, data: Any, status: Status) -> None:
        job = data.draw(st.sampled_from(self.open_jobs()))
        self.running.append(job)
        self.bench.feed(Produced(job, (b"part",)))
        self.bench.finish(job, b"re " + self.bench.requests[job].body, status=status)

    def open_jobs(self) -> list[Any]:
        return [job for job in self.bench.jobs if job not in self.running]

    @precondition(lambda self: bool(self.bench.peers))
    @rule(data=st.data(), gone=st.booleans())
    def client_leaves_or_pushes_back(self, data: Any, gone: bool) -> None:
        peer = data.draw(st.sampled_from(sorted(self.bench.peers)))
        if gone:
            self.bench.lose(peer)
        else:
            self.bench.block(peer)
            self.bench.unblock(peer)

    @invariant()
    def replies_reach_their_clients(self) -> None:
        for peer, frames in self.bench.sent:
            assert frames[0] == b"part"
            assert self.senders[frames[1].removeprefix(b"re ")] == peer

    @invariant()
    def tables_are_consistent(self) -> None:
        seen = self.bench.server.snapshot()
        assert seen.clients == len(self.bench.peers)
        assert seen.running + seen.abandoned == len(self.open_jobs()) <= 2
        assert not seen.waiting or seen.running + seen.abandoned

    def teardown(self) -> None:
        self.bench.drain()
        for job in self.open_jobs():
            self.running.append(job)
            self.bench.finish(job)
        assert self.bench.stopped


class WorkerMachine(RuleBasedStateMachine):
    """A worker with an arbitrary queue: it sends READY first, and always reconnects."""

    bench: WorkerBench

    @initialize(pattern=st.sampled_from(Pattern))
    def begin(self, pattern: Pattern) -> None:
        policy = WorkerPolicy(backlog_max=2, pause_first_s=0.5, pause_max_s=2.0)
        self.bench = WorkerBench(pattern, policy)
        self.number = 0
        self.ended: list[Any] = []
        self.bench.feed(Wake())

    @precondition(lambda self: self.bench.worker.snapshot().dialling)
    @rule()
    def connect(self) -> None:
        self.number += 1
        name = self.bench.join(f"q{self.number}")
        word = b"\x01" if self.bench.pattern is Pattern.PARANOID else b"READY"
        assert self.bench.to(name) == [[word]]

    def queue(self) -> str:
        """Return the only connection: the same object as on joining, since peers are compared by
        identity."""
        return next(iter(self.bench.peers))

    @precondition(lambda self: bool(self.bench.peers))
    @rule(kind=st.sampled_from(["request", "beat", "malformed"]))
    def queue_sends(self, kind: str) -> None:
        self.number += 1
        messages = {
            "request": [b"c", b"", b"%d" % self.number],
            "beat": [b"\x02"],
            "malformed": [b"c", b""],
        }
        self.bench.say(self.queue(), messages[kind])

    @precondition(lambda self: bool(self.open_jobs()))
    @rule(data=st.data(), status=st.sampled_from([Status.OK, Status.OK, Status.FAILED]))
    def handler_ends(self, data: Any, status: Status) -> None:
        job = data.draw(st.sampled_from(self.open_jobs()))
        self.ended.append(job)
        self.bench.finish(job, b"done", status=status)

    def open_jobs(self) -> list[Any]:
        return [job for job in self.bench.jobs if job not in self.ended]

    @precondition(lambda self: bool(self.bench.peers))
    @rule()
    def lose_queue(self) -> None:
        self.bench.lose(self.queue())

    @rule(seconds=SECONDS, stalled=st.booleans())
    def advance(self, seconds: float, stalled: bool) -> None:
        if stalled:
            self.bench.freeze(seconds)
        else:
            self.bench.advance(seconds)

    @invariant()
    def it_is_connected_or_reconnects(self) -> None:
        seen = self.bench.worker.snapshot()
        assert len(self.bench.peers) == seen.connected <= 1
        if not (seen.connected or seen.dialling or seen.abandoned):
            at = self.bench.engine.deadline()
            assert at is not None
            assert at <= self.bench.now + 2.0

    @invariant()
    def tables_are_consistent(self) -> None:
        seen = self.bench.worker.snapshot()
        assert seen.running + seen.abandoned == len(self.open_jobs())
        assert seen.running <= 1
        assert seen.waiting <= 2

    def teardown(self) -> None:
        self.bench.drain()
        for job in self.open_jobs():
            self.bench.finish(job)
        assert self.bench.stopped
        assert self.bench.peers == set()


TestClientMachine = ClientMachine.TestCase
TestClientMachine.settings = LIMITS
TestServerMachine = ServerMachine.TestCase
TestServerMachine.settings = LIMITS
TestWorkerMachine = WorkerMachine.TestCase
TestWorkerMachine.settings = LIMITS
