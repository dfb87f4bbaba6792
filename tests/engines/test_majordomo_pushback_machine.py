"""Random orders of events at a broker with low limits.

No request of a client of MDP 0.1 or 0.2 is lost while workers serve, and no such client stays
paused. The clients write any number of requests at any time. As in a socket, these wait until the
broker reads from the client; one read takes up to `READ_MAX` requests.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.broker import BrokerBench

from requite.engine import Received
from requite.protocols.majordomo.parties import Client
from requite.protocols.majordomo.wire import ClientRequest, WorkerHeartbeat

READ_MAX: Final = 5
SERVICES: Final = (b"a", b"b", b"c", b"d")
CLIENTS_MAX: Final = 4
VERSIONS: Final = st.sampled_from(["0.1", "0.2", "0.3"])
GRACE_S: Final = 20.0


class AnyLoad(RuleBasedStateMachine):
    """Random orders of events of clients and workers of all dialects at one broker."""

    @initialize(
        pending_max=st.sampled_from([1, 3, 100]),
        queue_max=st.sampled_from([1, 4, 100]),
        services_max=st.sampled_from([1, 2, 100]),
        client_bytes_max=st.sampled_from([1, 3000, 1 << 20]),
        bytes_max=st.sampled_from([1, 5000, 1 << 20]),
    )
    def start(
        self,
        pending_max: int,
        queue_max: int,
        services_max: int,
        client_bytes_max: int,
        bytes_max: int,
    ) -> None:
        self.bench = BrokerBench(
            client_pending_max=pending_max,
            queue_max=queue_max,
            services_max=services_max,
            client_pending_bytes_max=client_bytes_max,
            pending_bytes_max=bytes_max,
            service_grace_s=GRACE_S,
            service_ttl_s=5.0,
            attempts_max=255,
        )
        self.pending_max = pending_max
        self.serial = 0
        self.written: dict[str, deque[tuple[bytes, bytes]]] = {}  # unread: service and body
        self.asked: dict[str, list[bytes]] = {}  # bodies of requests read by the broker
        self.workers: dict[str, int] = {}  # number of requests that each worker has answered

    def _number(self) -> int:
        self.serial += 1
        return self.serial

    # --- clients ------------------------------------------------------------------------------
    @precondition(lambda self: len(self.written) < CLIENTS_MAX)
    @rule(version=st.sampled_from(["0.1", "0.2"]))
    def client_joins(self, version: str) -> None:
        client = f"old-{self._number()}"
        self.bench.client(client, version)
        self.written[client] = deque()
        self.asked[client] = []

    @precondition(lambda self: self.written)
    @rule(data=st.data(), service=st.sampled_from(SERVICES), count=st.integers(1, 12))
    def client_writes(self, data: Any, service: bytes, count: int) -> None:
        client = data.draw(st.sampled_from(sorted(self.written)))
        self.written[client] += ((service, b"%d" % self._number()) for _ in range(count))
        self._read(client)

    def _read(self, client: str) -> None:
        """Perform one read from a client, unless the broker has paused it."""
        line = self.written[client]
        if client in self.bench.unread or not line:
            return
        batch = [line.popleft() for _ in range(min(READ_MAX, len(line)))]
        encode = self.bench.dialect_of(client).encode
        messages = [encode(ClientRequest(service, [body])) for service, body in batch]
        accepted = len(self.bench.noted("accepted"))
        self.bench.feed(Received(client, messages))
        self.asked[client] += (body for _, body in batch)
        assert len(self.bench.noted("accepted")) == accepted + len(batch), "some were not accepted"

    @precondition(lambda self: self.written)
    @rule(data=st.data())
    def broker_reads(self, data: Any) -> None:
        self._read(data.draw(st.sampled_from(sorted(self.written))))

    @precondition(lambda self: self.written)
    @rule(data=st.data())
    def client_leaves(self, data: Any) -> None:
        client = data.draw(st.sampled_from(sorted(self.written)))
        del self.written[client], self.asked[client]
        self.bench.lose(client)

    @rule(service=st.sampled_from(SERVICES), timeout_ms=st.sampled_from([0, 500]))
    def newer_client_sends(self, service: bytes, timeout_ms: int) -> None:
        self.bench.request("new", self._number(), service=service, timeout_ms=timeout_ms)

    # --- workers ------------------------------------------------------------------------------
    @rule(service=st.sampled_from(SERVICES), version=VERSIONS, capacity=st.integers(1, 3))
    def worker_joins(self, service: bytes, version: str, capacity: int) -> None:
        worker = f"worker-{self._number()}"
        self.bench.worker(worker, service, version=version, capacity=capacity)
        if worker not in self.bench.disconnected:
            self.workers[worker] = 0

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def worker_replies(self, data: Any) -> None:
        self._reply(data.draw(st.sampled_from(sorted(self.workers))))

    def _reply(self, worker: str) -> bool:
        """Answer the oldest request of a worker; return whether it has one."""
        requests = self.bench.requests(worker)
        done = self.workers[worker]
        if done == len(requests):
            return False
        self.workers[worker] += 1
        self.bench.final(worker, requests[done].body[0], nth=done)
        return True

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def worker_is_lost(self, data: Any) -> None:
        worker = data.draw(st.sampled_from(sorted(self.workers)))
        del self.workers[worker]
        self.bench.lose(worker)

    # --- time ---------------------------------------------------------------------------------
    @rule(seconds=st.sampled_from([0.0, 0.002, 0.6, 1.5, GRACE_S]))
    def advance(self, seconds: float) -> None:
        end = self.bench.now + seconds
        while self.bench.now < end:
            self.bench.advance(min(1.0, end - self.bench.now))
            for worker in self.workers:
                self.bench.say(worker, WorkerHeartbeat, 1000)

    # --- invariants -------------------------------------------------------------------------------
    @invariant()
    def pending_requests_exceed_the_limit_by_one_read_at_most(self) -> None:
        for party in self.bench.broker.parties.values():
            if isinstance(party, Client):
                assert len(party.pending) <= self.pending_max + READ_MAX

    @invariant()
    def the_load_is_that_of_all_clients(self) -> None:
        load, sizes, count = self.bench.broker.load, 0, 0
        for party in self.bench.broker.parties.values():
            if isinstance(party, Client):
                assert party.size == sum(each.size for each in party.pending.values())
                sizes += party.size
                count += len(party.pending)
        assert (load.size, load.count) == (sizes, count)

    @invariant()
    def only_older_clients_are_paused(self) -> None:
        assert set(self.bench.unread) <= set(self.written)
        assert self.bench.broker.snapshot().unread == len(self.bench.unread)

    @invariant()
    def no_peer_is_disconnected(self) -> None:
        assert not set(self.bench.disconnected) & {"new", *self.written, *self.workers}

    def teardown(self) -> None:
        """Add workers for every service with requests, until all requests are served."""
        for _ in range(2_000):
            if not any(self.written.values()) and not self.bench.broker.snapshot().pending:
                break
            for service in self.bench.broker.snapshot().services:
                if service.queued and not service.workers:
                    self.worker_joins(service.service.encode(), "0.3", 1)
            is_busy = [self._reply(worker) for worker in [*self.workers]]
            if not any(is_busy):
                self.advance(0.002)
            for client in self.written:
                self._read(client)
        else:
            raise AssertionError("some requests are never served")
        self.advance(0.1)
        assert not self.bench.unread
        failed = Counter(
            note.facts["client"].decode()
            for note in self.bench.noted("answered")
            if note.facts["status"] != "OK"
        )
        for client, asked in self.asked.items():
            replies = [final.body[0] for final in self.bench.finals(client)]
            assert set(replies) <= set(asked)
            assert len(set(replies)) == len(replies) == len(asked) - failed[client]
        assert {
            note.facts["status"]
            for note in self.bench.noted("answered")
            if note.facts["client"] != b"new"
        } <= {"OK", "NO_SERVICE"}, "nothing but a service without workers ends a request"


TestAnyLoad = AnyLoad.TestCase
TestAnyLoad.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
