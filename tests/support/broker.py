"""A broker engine with virtual time. Peers are identified by names.

    bench = BrokerBench()
    bench.worker("w1", capacity=2)
    bench.request("c1", 1, b"body")
    assert bench.sent("w1")[-1] == WorkerRequest(...)

The bench decodes every message that the broker sends; `sent(peer)` lists the commands.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from requite.chronicle import NO_CALL, NO_INSTANCE, Chronicle
from requite.engine import (
    Cause,
    Disconnect,
    Drain,
    Effect,
    Note,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    ReadFreely,
    ReadInTurn,
    Received,
    Refused,
    ResumeReading,
    Send,
    SendAll,
    Stopped,
    StopReading,
    Wake,
    Warn,
)
from requite.principal import ANYONE, Principal
from requite.protocols.majordomo.broker import MajordomoBroker
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.protocols.majordomo.wire import (
    FEATURES,
    ClientRequest,
    Dialect,
    Ready,
    WorkerFinal,
    WorkerHeartbeat,
)
from requite.request import Body

ORIGIN = b"a-broker"


class BrokerBench:
    """A broker under test, with notes enabled. `policy` overrides fields of `BrokerPolicy`."""

    def __init__(self, *, chronicle: Chronicle | None = None, **policy: Any) -> None:
        self.broker = MajordomoBroker(
            BrokerPolicy(**{"notes": True, **policy}), origin=ORIGIN, chronicle=chronicle
        )
        self.now = 100.0
        self.in_turn: dict[str, float] = {}  # how often each peer is reported alive
        self.refused: Counter[str] = Counter()
        self.commands: dict[str, list[Any]] = defaultdict(list)
        self.disconnected: dict[str, str] = {}
        self.causes: dict[str, Cause] = {}
        self.notes: list[Note] = []
        self.warnings: list[Warn] = []
        self.stopped = False
        self.unread: dict[str, None] = {}  # in the order in which the broker stopped reading
        self._peers: dict[str, tuple[str, Dialect]] = {}

    # --- inputs -------------------------------------------------------------------------------
    def join(
        self, peer: str, principal: Principal = ANYONE, features: Iterable[str] = FEATURES
    ) -> None:
        """Connect a peer."""
        joined = PeerJoined(peer, peer.encode(), None, principal, frozenset(features))
        self.feed(joined)

    def client(
        self,
        peer: str,
        version: str = "0.3",
        principal: Principal = ANYONE,
        features: Iterable[str] = FEATURES,
    ) -> Dialect:
        """Connect a client; return its dialect."""
        self._peers[peer] = ("client", by_version(version))
        self.join(peer, principal, features)
        return self._peers[peer][1]

    def worker(
        self,
        peer: str,
        service: bytes = b"echo",
        *,
        version: str = "0.3",
        capacity: int = 1,
        interval_ms: int = 1000,
        lease_ms: int = 0,
        instance: bytes = NO_INSTANCE,
        principal: Principal = ANYONE,
        features: Iterable[str] = FEATURES,
    ) -> None:
        """Connect a worker and send its READY."""
        self._peers[peer] = ("worker", by_version(version))
        self.join(peer, principal, features)
        self.say(peer, Ready, service, capacity, interval_ms, lease_ms, instance)

    def dialect_of(self, peer: str) -> Dialect:
        """Return the dialect of a peer."""
        return self._peers[peer][1]

    def say(self, peer: str, command: type, *fields: Any) -> None:
        """Send a command with these fields from a peer."""
        dialect = self._peers[peer][1]
        self.feed(Received(peer, [dialect.encode(command(*fields))]))

    def request(
        self,
        peer: str,
        request_id: int,
        body: bytes = b"x",
        *,
        service: bytes = b"echo",
        timeout_ms: int = 0,
        flags: int = 0,
        key: bytes = b"",
        call_id: bytes = NO_CALL,
    ) -> None:
        """Send a REQUEST from a client; connect it with MDP 0.3 on first use."""
        if peer not in self._peers:
            self.client(peer)
        self.say(peer, ClientRequest, service, [body], request_id, timeout_ms, flags, key, call_id)

    def final(
        self, peer: str, body: bytes = b"y", status: int = 0, nth: int = -1, more: Body = ()
    ) -> None:
        """Answer the `nth` request of a worker (-1: the last), with one frame or `more`."""
        request = self.requests(peer)[nth]
        self.say(peer, WorkerFinal, request.address, [body, *more], request.dispatch_id, status)

    def lose(self, peer: str) -> None:
        """Cut a peer's connection."""
        self.unread.pop(peer, None)
        self.feed(PeerLost(peer, "reset"))

    def block(self, peer: str) -> None:
        """Report that a peer does not read: the send buffer of its connection is full."""
        self.feed(PeerBlocked(peer))

    def unblock(self, peer: str) -> None:
        """Report that a peer reads again: the send buffer of its connection has space."""
        self.feed(PeerWritable(peer))

    def drain(self) -> None:
        """Ask the broker to drain."""
        self.feed(Drain())

    def advance(self, seconds: float) -> None:
        """Advance the clock, with a wake-up at each deadline of the broker."""
        end = self.now + seconds
        while (at := self.broker.deadline()) is not None and at <= end:
            self.now = max(self.now, at)
            self.feed(Wake())
        self.now = end

    def freeze(self, seconds: float) -> None:
        """Advance the clock with a single wake-up, at the end."""
        self.now += seconds
        self.feed(Wake())

    def keep_alive(self, seconds: float, *workers: str, every: float = 0.5) -> None:
        """Advance the clock while these workers send heartbeats."""
        end = self.now + seconds
        while self.now < end:
            self.advance(every)
            for worker in workers:
                self.say(worker, WorkerHeartbeat, 1000)

    # --- effects ------------------------------------------------------------------------------
    def assert_idle(self) -> None:
        """Assert that no table holds a request, and that only workers and services without workers
        have timers (I9)."""
        snapshot = self.broker.snapshot()
        assert snapshot.pending == 0
        assert all(s.queued == s.in_progress == 0 for s in snapshot.services)
        assert all(worker.holding == 0 for worker in snapshot.workers)
        empty = sum(not service.workers for service in snapshot.services)
        assert snapshot.timers == len(snapshot.workers) + empty

    def sent(self, peer: str, kind: type | None = None) -> list[Any]:
        """Return the commands that a peer received, all or of one type."""
        return [c for c in self.commands[peer] if kind is None or isinstance(c, kind)]

    def requests(self, peer: str) -> list[Any]:
        """Return the REQUESTs that a worker received."""
        return [c for c in self.commands[peer] if type(c).__name__ == "WorkerRequest"]

    def finals(self, peer: str) -> list[Any]:
        """Return the FINALs that a client received."""
        return [c for c in self.commands[peer] if type(c).__name__ == "ClientFinal"]

    def noted(self, kind: str) -> list[Note]:
        """Return the notes of one kind."""
        return [note for note in self.notes if note.kind == kind]

    def feed(self, event: Any) -> None:
        """Feed the broker one input and record its effects."""
        for effect in self.broker.handle([event], self.now):
            self.perform(effect)

    def perform(self, effect: Effect) -> None:
        """Record an effect; a broker must not pause a connection twice, or resume one that it has
        not paused."""
        match effect:
            case Send(peer, message):
                role, dialect = self._peers[str(peer)]
                decode = dialect.decode_to_client if role == "client" else dialect.decode_to_worker
                self.commands[str(peer)].append(decode(list(message)))
            case Disconnect(peer, reason, cause):
                self.disconnected[str(peer)] = reason
                self.causes[str(peer)] = cause
                self.unread.pop(str(peer), None)
            case StopReading(peer):
                assert peer not in self.unread, "stopped twice"
                self.unread[str(peer)] = None
            case ResumeReading(peer):
                del self.unread[str(peer)]
            case Note():
                self.notes.append(effect)
            case Warn():
                self.warnings.append(effect)
            case Stopped():
                self.stopped = True
            case ReadInTurn(peer, report_s):
                self.in_turn[str(peer)] = report_s
            case ReadFreely(peer):
                self.in_turn.pop(str(peer), None)
            case Refused(peer, count):
                self.refused[str(peer)] += count
            case SendAll(peer, messages):
                for message in messages:
                    self.perform(Send(peer, message))
            case _:
                raise AssertionError(f"a broker must not have the effect {effect}")
