"""The engines of the Freelance pattern with virtual time; the test is network, user and peers.

    bench = ClientBench(AgentClient, servers=2)
    bench.join("a")
    bench.submit(1, b"hi")
    bench.answer("a", b"ho")                    # plays the server
    assert bench.replies[1].body == b"ho"

The benches check what must always hold: a call ends once, nothing is sent to a connection that does
not stand, no request to one that pushes back, and a handler is given up once at most.
"""

from __future__ import annotations

from math import inf
from typing import Any

from requite.chronicle import Chronicle
from requite.engine import (
    Abandon,
    Cancel,
    Deliver,
    Disconnect,
    Drain,
    Effect,
    Engine,
    Fail,
    Finished,
    Note,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    ResumeReading,
    Send,
    Stopped,
    StopReading,
    Submit,
    Wake,
    Warn,
)
from requite.errors import CallError
from requite.protocols.freelance.client_base import FreelanceClient
from requite.protocols.freelance.jobs import Job
from requite.protocols.freelance.policy import ClientPolicy, ServerPolicy
from requite.protocols.freelance.server import FreelanceServer
from requite.request import Reply, Request, Status

Frames = list[bytes]


class Bench:
    """What both have: connections with names, a clock, and what came of it."""

    engine: Engine

    def __init__(self) -> None:
        self.now = 100.0
        self.peers: dict[str, bool] = {}  # those that stand: whether they take anything
        self.unread: set[str] = set()
        self.sent: list[tuple[str, Frames]] = []
        self.sent_at: list[float] = []
        self.notes: list[Note] = []
        self.warnings: list[Warn] = []
        self.disconnected: dict[str, str] = {}
        self.stopped = False

    # --- the network --------------------------------------------------------------------------
    def join(self, peer: str, identity: bytes = b"", place: Any = None) -> None:
        """Let a connection stand; by default its place is named like it."""
        assert peer not in self.peers
        self.peers[peer] = True
        self.feed(PeerJoined(peer, identity, peer if place is None else place))

    def lose(self, peer: str, reason: str = "reset") -> None:
        """Cut a connection."""
        del self.peers[peer]
        self.unread.discard(peer)
        self.feed(PeerLost(peer, reason))

    def block(self, peer: str) -> None:
        """Let a connection push back."""
        self.peers[peer] = False
        self.feed(PeerBlocked(peer))

    def unblock(self, peer: str) -> None:
        """Let it take more again."""
        self.peers[peer] = True
        self.feed(PeerWritable(peer))

    def say(self, peer: str, *messages: Frames) -> None:
        """Let messages come, in one read."""
        self.feed(Received(peer, messages))

    # --- time ---------------------------------------------------------------------------------
    def advance(self, seconds: float) -> None:
        """Let time pass, with a wake-up at each instant the engine asks for."""
        end = self.now + seconds
        while (at := self.engine.deadline()) is not None and at <= end:
            self.now = max(self.now, at)
            self.feed(Wake())
        self.now = end

    def freeze(self, seconds: float) -> None:
        """Let time pass without any wake-up, then one."""
        self.now += seconds
        self.feed(Wake())

    def drain(self) -> None:
        """Ask the engine to finish."""
        self.feed(Drain())

    # --- what came of it ----------------------------------------------------------------------
    def feed(self, event: Any) -> None:
        """Feed the engine one input and note what it does."""
        for effect in self.engine.handle(event, self.now):
            self._perform(effect)

    def to(self, peer: str) -> list[Frames]:
        """Return what a peer was sent."""
        return [message for whom, message in self.sent if whom == peer]

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(peer, message):
                assert peer in self.peers, f"{message} was sent to {peer}, which does not stand"
                self.sent.append((str(peer), list(message)))
                self.sent_at.append(self.now)
            case StopReading(peer):
                assert peer in self.peers
                assert peer not in self.unread, "stopped twice"
                self.unread.add(str(peer))
            case ResumeReading(peer):
                self.unread.remove(str(peer))
            case Disconnect(peer, reason):
                del self.peers[str(peer)]
                self.disconnected[str(peer)] = reason
            case Note():
                self.notes.append(effect)
            case Warn():
                self.warnings.append(effect)
            case Stopped():
                assert not self.stopped
                self.stopped = True
            case _:
                raise AssertionError(f"no business with {effect}")


class ClientBench(Bench):
    """A client of one of the models; keywords override fields of `ClientPolicy`."""

    def __init__(
        self, kind: type[FreelanceClient], *, chronicle: Chronicle | None = None, **policy: Any
    ) -> None:
        super().__init__()
        self.engine = self.client = kind(
            ClientPolicy(**{"notes": True, **policy}), origin=b"a-client", chronicle=chronicle
        )
        self.replies: dict[Any, Reply] = {}
        self.errors: dict[Any, CallError] = {}

    def submit(
        self, token: Any, *body: bytes, timeout: float = inf, idempotent: bool = True
    ) -> None:
        """Make a call; `timeout` in seconds."""
        self.feed(Submit(token, "", body or (b"x",), self.now + timeout, idempotent))

    def cancel(self, token: Any) -> None:
        """Give a call up."""
        self.feed(Cancel(token))

    def requests_to(self, peer: str) -> list[Frames]:
        """Return the requests that a server was sent: all but pings."""
        return [message for message in self.to(peer) if message != [b"PING"]]

    def answer(self, peer: str, *body: bytes) -> None:
        """Let a server answer the newest request that it was sent, in the words of its model."""
        request = self.requests_to(peer)[-1]
        envelope = {"AgentClient": 1, "ShotgunClient": 2, "FailoverClient": 0}
        self.say(peer, [*request[: envelope[type(self.client).__name__]], *(body or (b"y",))])

    def assert_empty(self) -> None:
        """Check that no table remembers a call (I9)."""
        snapshot = self.client.snapshot()
        assert (snapshot.held, snapshot.sent) == (0, 0)
        client = self.client
        assert (client._calls, client._pending, client._held) == ({}, {}, {})

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Deliver(token, Reply() as reply):
                self._assert_open(token)
                assert reply.status is Status.OK
                self.replies[token] = reply
            case Fail(token, error):
                self._assert_open(token)
                self.errors[token] = error
            case Send(peer, _):
                assert self.peers.get(str(peer)), f"something was sent to {peer}"
                super()._perform(effect)
            case _:
                super()._perform(effect)

    def _assert_open(self, token: Any) -> None:
        assert token not in self.replies, f"{token} has its reply already"
        assert token not in self.errors, f"{token} has failed already"


class ServerBench(Bench):
    """A server; the test runs its handlers. Keywords override fields of `ServerPolicy`."""

    def __init__(self, *, chronicle: Chronicle | None = None, **policy: Any) -> None:
        super().__init__()
        self.engine = self.server = FreelanceServer(
            ServerPolicy(**{"notes": True, **policy}),
            service="echo",
            instance=b"a-server",
            chronicle=chronicle,
        )
        self.requests: dict[Job, Request] = {}
        self.running: list[Job] = []  # those whose handler has not ended
        self.abandoned: dict[Job, str] = {}

    def request(self, peer: str, *message: bytes) -> Job:
        """Let a request come; return the job it has become."""
        before = len(self.requests)
        self.say(peer, list(message))
        assert len(self.requests) == before + 1, "the request was not delivered"
        return list(self.requests)[-1]

    def finish(self, job: Job, *frames: bytes, status: Status = Status.OK) -> None:
        """Let a handler end."""
        self.running.remove(job)
        self.feed(Finished(job, frames or (b"y",), status))

    def bodies(self) -> list[bytes]:
        """Return the bodies of the requests delivered, in order."""
        return [request.body for request in self.requests.values()]

    def assert_empty(self) -> None:
        """Check that no table remembers a request (I9)."""
        snapshot = self.server.snapshot()
        assert (snapshot.waiting, snapshot.running, snapshot.abandoned) == (0, 0, 0)
        assert not self.server._callers.turns

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Deliver(Job() as job, Request() as request):
                assert job not in self.requests
                self.requests[job] = request
                self.running.append(job)
            case Abandon(Job() as job, reason):
                assert job in self.running, "a handler that had ended was given up"
                assert job not in self.abandoned
                self.abandoned[job] = reason
            case _:
                super()._perform(effect)
