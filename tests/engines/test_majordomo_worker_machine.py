"""Random orders of events for worker engines: each request gets at most one FINAL, and never a
wrong one.

The machine plays network, broker and handlers. A reply repeats its request's body, so that a reply
with a wrong dispatch id is detected.
"""

from __future__ import annotations

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.worker import WorkerBench

from requite.engine import Finished
from requite.protocols.majordomo.jobs import Job
from requite.protocols.majordomo.wire import Disconnect, WorkerCancel, WorkerFinal, WorkerPartial
from requite.request import Status


class WorkerMachine(RuleBasedStateMachine):
    """Random orders of events for a worker; `version` is the dialect."""

    version = "0.3"
    capacity = 3

    def __init__(self) -> None:
        super().__init__()
        self.bodies = count()
        self.running: list[Job] = []  # jobs whose handler has not ended
        self.dispatched: dict[str, dict[int, bytes]] = {}  # bodies by dispatch id, by connection
        self.draining = False

    @initialize(lease_s=st.sampled_from([0.0, 1.5]), connected=st.booleans())
    def start(self, lease_s, connected):
        self.bench = WorkerBench(self.version, capacity=self.capacity, lease_s=lease_s)
        if connected:
            self.bench.start()

    # --- the network and the clock ------------------------------------------------------------
    @precondition(lambda self: self.bench.dialling)
    @rule()
    def join(self):
        self.bench.join()

    @precondition(lambda self: self.bench.link)
    @rule()
    def lose(self):
        self.bench.lose()

    @rule(seconds=st.sampled_from([0.1, 0.6, 2.0, 4.0]), frozen=st.booleans())
    def advance(self, seconds, frozen):
        if frozen:
            self.bench.freeze(seconds)
        else:
            self.bench.advance(seconds)

    # --- the broker ---------------------------------------------------------------------------
    @precondition(lambda self: self.bench.link)
    @rule(n=st.integers(1, 2), timeout_ms=st.sampled_from([0, 500, 3000]))
    def request(self, n, timeout_ms):
        link = self.bench.link
        messages = []
        for _ in range(n):
            body = b"%d" % next(self.bodies)
            messages.append(self.bench.encode_request(body, timeout_ms=timeout_ms))
            self.dispatched.setdefault(link, {})[self.bench._dispatch_id] = body
        known = len(self.bench.requests)
        self.bench.say(*messages)
        self.running += list(self.bench.requests)[known:]

    @precondition(lambda self: self.version == "0.3" and self.bench.link)
    @rule(dispatch_id=st.integers(0, 12))
    def cancel(self, dispatch_id):
        self.bench.say(self.bench.dialect.encode(WorkerCancel(dispatch_id)))

    @precondition(lambda self: self.bench.link)
    @rule(interval_ms=st.sampled_from([100, 1000, 2000]))
    def heartbeat(self, interval_ms):
        self.bench.heartbeat(interval_ms)

    @precondition(lambda self: self.bench.link)
    @rule(disconnects=st.booleans(), garbage=st.lists(st.binary(max_size=24), max_size=4))
    def end_connection(self, disconnects, garbage):
        self.bench.say(self.bench.dialect.encode(Disconnect()) if disconnects else garbage)

    # --- handlers -----------------------------------------------------------------------------
    @precondition(lambda self: self.running)
    @rule(data=st.data(), status=st.sampled_from([Status.OK, Status.OK, Status.FAILED]))
    def finish(self, data, status):
        job = data.draw(st.sampled_from(self.running))
        self.running.remove(job)
        self.bench.finish(job, self.bench.requests[job].body, status)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), partial=st.booleans())
    def show_progress(self, data, partial):
        job = data.draw(st.sampled_from(self.running))
        if partial:
            self.bench.produce(job, self.bench.requests[job].body)
        else:
            self.bench.progress(job)

    @rule(sure=st.sampled_from([False] * 9 + [True]))
    def drain(self, sure):
        if sure:
            self.draining = True
            self.bench.drain()

    # --- invariants -------------------------------------------------------------------------------
    @invariant()
    def replies_match_their_requests(self):
        for link, commands in self.bench.sent.items():
            finals = [c for c in commands if isinstance(c, WorkerFinal)]
            for reply in finals + [c for c in commands if isinstance(c, WorkerPartial)]:
                if reply.status if isinstance(reply, WorkerFinal) else False:
                    continue
                dispatched = self.dispatched[link]
                if self.version == "0.3":
                    assert set(reply.body) == {dispatched[reply.dispatch_id]}
                else:
                    assert len(set(reply.body)) == 1
                    assert reply.body[0] in dispatched.values()

    @invariant()
    def running_jobs_do_not_exceed_the_capacity(self):
        snapshot = self.bench.worker.snapshot()
        assert snapshot.running + snapshot.abandoned <= self.capacity
        assert snapshot.running + snapshot.abandoned <= len(self.running)
        assert snapshot.connected is (self.bench.link is not None)
        assert snapshot.dialling is bool(self.bench.dialling) or self.draining

    @invariant()
    def a_drain_ends(self):
        snapshot = self.bench.worker.snapshot()
        if self.draining and not snapshot.running + snapshot.abandoned:
            assert self.bench.stopped or self.bench.worker.deadline() is not None

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        bench = self.bench
        bench.drain()
        for job in self.running:
            bench.feed(Finished(job, [bench.requests[job].body]))
        bench.advance(1.0)
        assert bench.stopped
        assert bench.link is None
        assert bench.worker.deadline() is None
        snapshot = bench.worker.snapshot()
        assert snapshot.running + snapshot.abandoned == 0


class Mdp02Machine(WorkerMachine):
    version = "0.2"
    capacity = 1


class Mdp01Machine(WorkerMachine):
    version = "0.1"
    capacity = 1


TestWorker03 = WorkerMachine.TestCase
TestWorker02 = Mdp02Machine.TestCase
TestWorker01 = Mdp01Machine.TestCase
TestWorker03.settings = TestWorker02.settings = TestWorker01.settings = settings(
    max_examples=2 * settings.default.max_examples
)
