"""Engines of the Pirate patterns with virtual time; the test plays network, user and peers.

    bench = QueueBench(Pattern.PARANOID)
    bench.client("c")
    bench.worker("w")
    bench.say("c", [b"", b"hello"])
    assert bench.to("w")[-1][1:] == [b"", b"hello"]

The benches assert the invariants of all engines: a call ends once, an engine sends only on open
connections, and a handler is cancelled at most once.
"""

from __future__ import annotations

from math import inf
from typing import Any

from tests.support.engine_bench import ClockedEngine

from requite.chronicle import Chronicle
from requite.core.jobs import ClientJob
from requite.engine import (
    Cancel,
    CancelHandler,
    Cause,
    Connect,
    Deliver,
    Disconnect,
    Effect,
    Fail,
    Finished,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    ResumeReading,
    Send,
    StopReading,
    Submit,
)
from requite.errors import CallError
from requite.protocols.pirate.client import LazyPirate
from requite.protocols.pirate.policy import (
    BACK,
    FRONT,
    ClientPolicy,
    QueuePolicy,
    ServerPolicy,
    WorkerPolicy,
)
from requite.protocols.pirate.queue import PirateQueue
from requite.protocols.pirate.server import PirateServer
from requite.protocols.pirate.wire import Pattern
from requite.protocols.pirate.worker import PirateWorker
from requite.request import Reply, Request, Status

INSTANCE = b"a-worker"
ORIGIN = b"a-client"
READY = b"\x01"
HEARTBEAT = b"\x02"


class Bench(ClockedEngine):
    """An engine with named connections and a virtual clock, and a record of its effects. `dials`
    has the times at which the engine requested a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.peers: set[str] = set()
        self.unread: set[str] = set()
        self.sent: list[tuple[str, list[bytes]]] = []
        self.disconnected: dict[str, str] = {}
        self.causes: dict[str, Cause] = {}
        self.dials: list[float] = []

    def join(self, peer: str, place: Any = None) -> str:
        """Open a connection; return its name."""
        assert peer not in self.peers
        self.peers.add(peer)
        self.feed(PeerJoined(peer, b"", place))
        return peer

    def lose(self, peer: str, reason: str = "reset") -> None:
        """Report that a connection was lost."""
        self.peers.discard(peer)
        self.unread.discard(peer)
        self.feed(PeerLost(peer, reason))

    def block(self, peer: str) -> None:
        """Report back-pressure on a connection: its send buffer is full."""
        self.feed(PeerBlocked(peer))

    def unblock(self, peer: str) -> None:
        """Report the end of back-pressure on a connection."""
        self.feed(PeerWritable(peer))

    def say(self, peer: str, *messages: list[bytes]) -> None:
        """Send the engine messages from a peer, all in one read."""
        self.feed(Received(peer, [list(message) for message in messages]))

    def to(self, peer: str) -> list[list[bytes]]:
        """Return the messages that were sent to a peer."""
        return [message for name, message in self.sent if name == peer]

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(peer, message):
                assert peer in self.peers, f"sent to {peer}, which does not stand: {message}"
                self.sent.append((peer, list(message)))
            case Disconnect(peer, reason, cause):
                self.peers.remove(peer)
                self.unread.discard(peer)
                self.disconnected[peer] = reason
                self.causes[peer] = cause
            case Connect():
                self.dials.append(self.now)
            case StopReading(peer):
                self.unread.add(peer)
            case ResumeReading(peer):
                self.unread.remove(peer)
            case _:
                super()._perform(effect)


class ClientBench(Bench):
    """A Lazy Pirate client. The test opens the connections that it requests, with `join`."""

    def __init__(self, policy: ClientPolicy | None = None, *, journal: bool = False) -> None:
        super().__init__()
        self.chronicle = Chronicle() if journal else None
        self.client = self.engine = LazyPirate(policy, origin=ORIGIN, chronicle=self.chronicle)
        self.replies: dict[Any, Reply] = {}
        self.errors: dict[Any, CallError] = {}

    def submit(
        self, token: Any, *frames: bytes, timeout: float = inf, idempotent: bool = True
    ) -> None:
        """Submit a call; `timeout` in seconds."""
        self.feed(Submit(token, "", frames, self.now + timeout, idempotent))

    def cancel(self, token: Any) -> None:
        """Cancel a call."""
        self.feed(Cancel(token))

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Deliver(token, reply):
                assert token not in self.replies | self.errors, f"{token} ended twice"
                self.replies[token] = reply
            case Fail(token, error):
                assert token not in self.replies | self.errors, f"{token} ended twice"
                self.errors[token] = error
            case _:
                super()._perform(effect)


class _HandlerBench(Bench):
    """A server or worker under test; the test runs its handlers."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[ClientJob] = []
        self.requests: dict[ClientJob, Request] = {}
        self.abandoned: dict[ClientJob, str] = {}

    def finish(self, job: ClientJob, *frames: bytes, status: Status = Status.OK) -> None:
        """End a handler with this reply (b"" by default) and status."""
        self.feed(Finished(job, frames or (b"",), status))

    def bodies(self) -> list[bytes]:
        """Return the bodies of the requests delivered, in order."""
        return [self.requests[job].body for job in self.jobs]

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Deliver(job, request):
                self.jobs.append(job)
                self.requests[job] = request
            case CancelHandler(job, reason):
                assert job not in self.abandoned
                self.abandoned[job] = reason
            case _:
                super()._perform(effect)


class ServerBench(_HandlerBench):
    """A server for Lazy Pirate clients."""

    def __init__(self, policy: ServerPolicy | None = None, *, journal: bool = False) -> None:
        super().__init__()
        self.chronicle = Chronicle() if journal else None
        self.server = self.engine = PirateServer(
            policy, service="echo", instance=INSTANCE, chronicle=self.chronicle
        )


class WorkerBench(_HandlerBench):
    """A worker of a queue."""

    def __init__(
        self, pattern: Pattern, policy: WorkerPolicy | None = None, *, journal: bool = False
    ) -> None:
        super().__init__()
        self.pattern = pattern
        self.chronicle = Chronicle() if journal else None
        self.worker = self.engine = PirateWorker(
            pattern, policy, service="echo", instance=INSTANCE, chronicle=self.chronicle
        )


class QueueBench(Bench):
    """A queue. Workers of the Simple Pirate send like REQ sockets: the bench writes the empty
    delimiter frame."""

    def __init__(
        self, pattern: Pattern, policy: QueuePolicy | None = None, *, journal: bool = False
    ) -> None:
        super().__init__()
        self.pattern = pattern
        self.chronicle = Chronicle() if journal else None
        self.queue = self.engine = PirateQueue(
            pattern, policy, first_address=7, instance=INSTANCE, chronicle=self.chronicle
        )

    def client(self, peer: str) -> str:
        """Connect a client; return its name."""
        return self.join(peer, FRONT)

    def newcomer(self, peer: str) -> str:
        """Connect a worker, without READY; return its name."""
        return self.join(peer, BACK)

    def worker(self, peer: str) -> str:
        """Connect a worker and send its READY; return its name."""
        self.newcomer(peer)
        self.ready(peer)
        return peer

    def ready(self, peer: str) -> None:
        """Send READY from a worker."""
        self.say(peer, [READY] if self.pattern is Pattern.PARANOID else [b"", b"READY"])

    def ask(self, peer: str, body: bytes) -> None:
        """Send a request from a client."""
        self.say(peer, [b"", body])

    def answer(self, worker: str, body: bytes) -> None:
        """Send a worker's reply to its last request."""
        request = [each for each in self.to(worker) if len(each) > 1][-1]
        self.say(worker, [*request[:-1], body])

    def requests(self, worker: str) -> list[bytes]:
        """Return the bodies of the requests that a worker received."""
        return [message[-1] for message in self.to(worker) if len(message) > 1]

    def beats(self, worker: str) -> int:
        """Return the number of heartbeats that a worker received."""
        return sum(len(message) == 1 for message in self.to(worker))
