"""The engines of the scalability protocols with virtual time; the test is network, user and peers.

    bench = ReqBench()
    bench.join("a")
    bench.submit(1, b"hi")
    bench.answer(bench.sent[-1], b"ho")         # plays the worker
    assert bench.replies[1].body == b"ho"

The benches check what must always hold: a call ends once, nothing is sent to a connection that does
not stand, no request to one that pushes back, and a handler is given up once at most.
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

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
    Produced,
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
from requite.protocols.scalability.calls import Ask
from requite.protocols.scalability.device import ScalabilityDevice
from requite.protocols.scalability.jobs import Job
from requite.protocols.scalability.policy import (
    BACK,
    FRONT,
    DevicePolicy,
    Place,
    RepPolicy,
    ReqPolicy,
)
from requite.protocols.scalability.rep import ScalabilityWorker
from requite.protocols.scalability.req import ScalabilityClient
from requite.request import Reply, Request, Status

ORIGIN = b"a-client"
INSTANCE = b"a-worker"
ID = 0x8000_0000


def tag(request_id: int) -> bytes:
    """Return the tag of a request id, by the document."""
    return (ID | request_id).to_bytes(4, "big")


def way(*channel_ids: int) -> bytes:
    """Return the tags of channel ids, by the document."""
    return b"".join(channel_id.to_bytes(4, "big") for channel_id in channel_ids)


class Sent(NamedTuple):
    """A message that was sent: to whom, and what is on the wire."""

    peer: str
    payload: bytes

    @property
    def tag(self) -> bytes:
        """The first four bytes."""
        return self.payload[:4]

    @property
    def body(self) -> bytes:
        """What follows the first tag."""
        return self.payload[4:]


class Bench:
    """What all three have: connections with names, a clock, and what came of it."""

    engine: Engine

    def __init__(self) -> None:
        self.now = 100.0
        self.peers: dict[str, bool] = {}  # those that stand: whether they take anything
        self.unread: set[str] = set()
        self.sent: list[Sent] = []
        self.sent_at: list[float] = []
        self.notes: list[Note] = []
        self.warnings: list[Warn] = []
        self.disconnected: dict[str, str] = {}
        self.stopped = False

    # --- the network --------------------------------------------------------------------------
    def _join(self, peer: str, place: Place | None) -> str:
        assert peer not in self.peers
        self.peers[peer] = True
        self.feed(PeerJoined(peer, b"", place))
        return peer

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

    def say(self, peer: str, *payloads: bytes) -> None:
        """Let messages come, in one read."""
        self.feed(Received(peer, [[payload] for payload in payloads]))

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

    def to(self, peer: str) -> list[bytes]:
        """Return what a peer was sent."""
        return [sent.payload for sent in self.sent if sent.peer == peer]

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(peer, message):
                assert peer in self.peers, f"{message} was sent to {peer}, which does not stand"
                self.sent.append(Sent(str(peer), b"".join(message)))
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


class ReqBench(Bench):
    """A client; keywords override fields of `ReqPolicy`."""

    def __init__(
        self, *, first_id: int = 5, chronicle: Chronicle | None = None, **policy: Any
    ) -> None:
        super().__init__()
        self.engine = self.client = ScalabilityClient(
            ReqPolicy(**{"notes": True, **policy}),
            first_id=first_id,
            origin=ORIGIN,
            chronicle=chronicle,
        )
        self.replies: dict[Any, Reply] = {}
        self.errors: dict[Any, CallError] = {}

    def join(self, peer: str = "a", priority: int = 1, weight: int = 1) -> str:
        """Let a connection stand."""
        return self._join(peer, Place("", priority, weight))

    def submit(
        self, token: Any, body: bytes = b"x", *, timeout: float = inf, idempotent: bool = True
    ) -> None:
        """Make a call; `timeout` in seconds."""
        self.feed(Submit(token, "echo", (body,), self.now + timeout, idempotent))

    def ask(self, token: Any, body: bytes = b"x", *, timeout: float = inf, **fields: Any) -> None:
        """Make a call with settings of its own."""
        self.feed(Ask(token, body, self.now + timeout, **fields))

    def cancel(self, token: Any) -> None:
        """Give a call up."""
        self.feed(Cancel(token))

    def answer(self, sent: Sent, body: bytes = b"y") -> None:
        """Let whoever got a request answer it."""
        self.say(sent.peer, sent.tag + body)

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
                assert self.peers.get(str(peer)), f"a request was sent to {peer}"
                super()._perform(effect)
            case _:
                super()._perform(effect)

    def _assert_open(self, token: Any) -> None:
        assert token not in self.replies, f"{token} has its reply already"
        assert token not in self.errors, f"{token} has failed already"


class RepBench(Bench):
    """A worker; the test runs its handlers. Keywords override fields of `RepPolicy`."""

    def __init__(
        self, *, first_id: int = 700, chronicle: Chronicle | None = None, **policy: Any
    ) -> None:
        super().__init__()
        self.engine = self.worker = ScalabilityWorker(
            RepPolicy(**{"notes": True, **policy}),
            service="echo",
            first_id=first_id,
            instance=INSTANCE,
            chronicle=chronicle,
        )
        self.requests: dict[Job, Request] = {}
        self.running: list[Job] = []  # those whose handler has not ended
        self.abandoned: dict[Job, str] = {}

    def join(self, peer: str = "c") -> str:
        """Let a connection stand."""
        return self._join(peer, None)

    def request(self, peer: str = "c", stack: bytes = tag(1), body: bytes = b"x") -> Job:
        """Let a request come; return the job it has become."""
        before = len(self.requests)
        self.say(peer, stack + body)
        assert len(self.requests) == before + 1, "the request was not delivered"
        return list(self.requests)[-1]

    def finish(self, job: Job, *frames: bytes, status: Status = Status.OK) -> None:
        """Let a handler end."""
        self.running.remove(job)
        self.feed(Finished(job, frames or (b"y",), status))

    def produce(self, job: Job, *frames: bytes) -> None:
        """Let a handler yield a partial reply."""
        self.feed(Produced(job, frames))

    def bodies(self) -> list[bytes]:
        """Return the bodies of the requests delivered, in order."""
        return [request.body for request in self.requests.values()]

    def assert_empty(self) -> None:
        """Check that no table remembers a request (I9)."""
        snapshot = self.worker.snapshot()
        assert (snapshot.waiting, snapshot.running, snapshot.abandoned) == (0, 0, 0)
        assert not self.worker._callers.turns

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


class DeviceBench(Bench):
    """A device; keywords override fields of `DevicePolicy`."""

    def __init__(
        self, *, first_id: int = 446, chronicle: Chronicle | None = None, **policy: Any
    ) -> None:
        super().__init__()
        self.engine = self.device = ScalabilityDevice(
            DevicePolicy(**{"notes": True, **policy}), first_id=first_id, chronicle=chronicle
        )
        self.backs: set[str] = set()

    def front(self, *peers: str) -> None:
        """Let connections to the front stand."""
        for peer in peers:
            self._join(peer, Place(FRONT))

    def back(self, *peers: str, priority: int = 1, weight: int = 1) -> None:
        """Let connections to the back stand."""
        for peer in peers:
            self.backs.add(peer)
            self._join(peer, Place(BACK, priority, weight))

    def assert_empty(self) -> None:
        """Check that nothing waits (I9)."""
        assert self.device.snapshot().held == 0
        assert not self.device._callers.turns

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Send) and effect.peer in self.backs:
            assert self.peers.get(str(effect.peer)), f"a request was sent to {effect.peer}"
        super()._perform(effect)
