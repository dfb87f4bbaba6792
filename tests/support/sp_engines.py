"""Engines of the scalability protocols with virtual time; the test plays network, user and peers.

bench = ReqBench()
bench.join("a")
bench.submit(1, b"hi")
bench.answer(bench.sent[-1], b"ho")         # plays the worker
assert bench.replies[1].body == b"ho"
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

from tests.support.engine_bench import Bench, CallBench, JobBench, with_retry

from requite.chronicle import Chronicle
from requite.engine import Effect, Message, PeerJoined, Produced, Send, Submit
from requite.protocols.scalability.calls import Ask
from requite.protocols.scalability.device import ScalabilityDevice
from requite.protocols.scalability.jobs import Job
from requite.protocols.scalability.policy import (
    BACK,
    FRONT,
    RETRY_DEFAULT,
    DevicePolicy,
    PipeOptions,
    RepPolicy,
    ReqPolicy,
)
from requite.protocols.scalability.rep import ScalabilityWorker
from requite.protocols.scalability.req import ScalabilityClient

ORIGIN = b"a-client"
INSTANCE = b"a-worker"
ID = 0x8000_0000


def tag(request_id: int) -> bytes:
    """Encode a request id as the last tag of a stack: with bit 31 set (request-reply draft)."""
    return (ID | request_id).to_bytes(4, "big")


def way(*channel_ids: int) -> bytes:
    """Encode channel ids as the tags in front of a request's own (request-reply draft)."""
    return b"".join(channel_id.to_bytes(4, "big") for channel_id in channel_ids)


class Sent(NamedTuple):
    """A sent message: the peer, and the payload on the wire."""

    peer: str
    payload: bytes

    @property
    def tag(self) -> bytes:
        """The first tag: four bytes."""
        return self.payload[:4]

    @property
    def body(self) -> bytes:
        """The bytes after the first tag."""
        return self.payload[4:]


class _SpBench(Bench):
    """Base of the SP benches: a message is one frame, and a connection's place is a `PipeOptions`
    or None."""

    def _join(self, peer: str, place: PipeOptions | None) -> str:
        assert peer not in self.peers
        self.peers[peer] = True
        self.feed(PeerJoined(peer, b"", place))
        return peer

    def say(self, peer: str, *payloads: bytes) -> None:
        """Send the engine messages from a peer, all in one read."""
        super().say(peer, *([payload] for payload in payloads))

    def note_sent(self, peer: str, message: Message) -> None:
        """Record a sent message."""
        self.sent.append(Sent(peer, b"".join(message)))


class ReqBench(CallBench, _SpBench):
    """A client under test. Keywords override fields of `ReqPolicy` and of its `retry`."""

    def __init__(
        self, *, first_id: int = 5, chronicle: Chronicle | None = None, **policy: Any
    ) -> None:
        super().__init__()
        self.engine = self.client = ScalabilityClient(
            ReqPolicy(**{"notes": True, **with_retry(policy, RETRY_DEFAULT)}),
            first_id=first_id,
            origin=ORIGIN,
            chronicle=chronicle,
        )

    def join(self, peer: str = "a", priority: int = 1, weight: int = 1) -> str:
        """Open a connection to a worker; return its name."""
        return self._join(peer, PipeOptions("", priority, weight))

    def submit(
        self, token: Any, body: bytes = b"x", *, timeout: float = inf, idempotent: bool = True
    ) -> None:
        """Submit a call; `timeout` in seconds."""
        self.feed(Submit(token, "echo", (body,), self.now + timeout, idempotent))

    def ask(self, token: Any, body: bytes = b"x", *, timeout: float = inf, **fields: Any) -> None:
        """Submit a call with fields of `Ask`, which override the client's settings."""
        self.feed(Ask(token, body, self.now + timeout, **fields))

    def answer(self, sent: Sent, body: bytes = b"y") -> None:
        """Send the client the reply to a request, from the peer that received the request."""
        self.say(sent.peer, sent.tag + body)


class RepBench(JobBench, _SpBench):
    """A worker whose handlers the test runs. Keywords override fields of `RepPolicy`."""

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

    def join(self, peer: str = "c") -> str:
        """Open a connection from a client; return its name."""
        return self._join(peer, None)

    def request(self, peer: str = "c", stack: bytes = tag(1), body: bytes = b"x") -> Job:
        """Send the worker a request; return its job."""
        before = len(self.requests)
        self.say(peer, stack + body)
        return self.job_since(before)

    def produce(self, job: Job, *frames: bytes) -> None:
        """Yield a partial reply from a handler."""
        self.feed(Produced(job, frames))


class DeviceBench(_SpBench):
    """A device under test. Keywords override fields of `DevicePolicy`."""

    def __init__(
        self, *, first_id: int = 446, chronicle: Chronicle | None = None, **policy: Any
    ) -> None:
        super().__init__()
        self.engine = self.device = ScalabilityDevice(
            DevicePolicy(**{"notes": True, **policy}), first_id=first_id, chronicle=chronicle
        )
        self.backs: set[str] = set()

    def front(self, *peers: str) -> None:
        """Open connections on the front side, to clients."""
        for peer in peers:
            self._join(peer, PipeOptions(FRONT))

    def back(self, *peers: str, priority: int = 1, weight: int = 1) -> None:
        """Open connections on the back side, to workers."""
        for peer in peers:
            self.backs.add(peer)
            self._join(peer, PipeOptions(BACK, priority, weight))

    def assert_empty(self) -> None:
        """Assert that the device holds no message (I9)."""
        assert self.device.snapshot().held == 0
        assert not self.device._turns.line

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Send) and effect.peer in self.backs:
            assert self.peers.get(str(effect.peer)), f"a request was sent to {effect.peer}"
        super()._perform(effect)
