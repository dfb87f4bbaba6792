"""Base classes of the protocols' engine benches: virtual time, and a test that plays the network,
the user and the peers.

The benches assert the invariants of all engines: a call ends once; an engine sends only on open
connections, and requests only on those without back-pressure; a running handler is cancelled at
most once.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from requite.engine import (
    Cancel,
    CancelHandler,
    Cause,
    Deliver,
    Disconnect,
    Drain,
    Effect,
    Engine,
    Fail,
    Finished,
    Message,
    Note,
    PeerBlocked,
    PeerLost,
    PeerWritable,
    Received,
    ResumeReading,
    Send,
    Stopped,
    StopReading,
    Wake,
    Warn,
)
from requite.errors import CallError
from requite.request import Reply, Request, RetryPolicy, Status
from requite.sim.scalability.parties import one_by_one


def with_retry(given: dict[str, Any], usual: RetryPolicy | None = None) -> dict[str, Any]:
    """Return the keywords of a policy, with those that are fields of `RetryPolicy` moved into one.

    The result has it as `retry`; its other fields are those of `usual`.
    """
    names = {field.name for field in fields(RetryPolicy)} & given.keys()
    if not names:
        return given
    rest = {name: value for name, value in given.items() if name not in names}
    return {
        **rest,
        "retry": replace(usual or RetryPolicy(), **{name: given[name] for name in names}),
    }


class ClockedEngine:
    """An engine with a virtual clock; `now` is in seconds. Records notes and warnings."""

    engine: Engine

    def __init__(self) -> None:
        self.now = 100.0
        self.notes: list[Note] = []
        self.warnings: list[Warn] = []
        self.stopped = False

    def feed(self, event: Any) -> None:
        """Feed the engine one input and record its effects."""
        for effect in self.engine.handle([event], self.now):
            for single in one_by_one(effect):
                self._perform(single)

    def advance(self, seconds: float) -> None:
        """Advance the clock, with a wake-up at each deadline of the engine."""
        end = self.now + seconds
        while (at := self.engine.deadline()) is not None and at <= end:
            self.now = max(self.now, at)
            self.feed(Wake())
        self.now = end

    def freeze(self, seconds: float) -> None:
        """Advance the clock with a single wake-up at the end, as after a pause of the process."""
        self.now += seconds
        self.feed(Wake())

    def drain(self) -> None:
        """Ask the engine to drain."""
        self.feed(Drain())

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Note():
                self.notes.append(effect)
            case Warn():
                self.warnings.append(effect)
            case Stopped():
                assert not self.stopped
                self.stopped = True
            case _:
                raise AssertionError(f"no business with {effect}")


class Bench(ClockedEngine):
    """An engine with named connections, and a record of what it sent."""

    def __init__(self) -> None:
        super().__init__()
        self.peers: dict[str, bool] = {}  # open connections; False: under back-pressure
        self.unread: set[str] = set()  # connections that the engine has paused
        self.sent: list[Any] = []  # pairs of peer and message
        self.sent_at: list[float] = []
        self.disconnected: dict[str, str] = {}
        self.causes: dict[str, Cause] = {}

    # --- the network --------------------------------------------------------------------------
    def lose(self, peer: str, reason: str = "reset") -> None:
        """Report that a connection was lost."""
        del self.peers[peer]
        self.unread.discard(peer)
        self.feed(PeerLost(peer, reason))

    def block(self, peer: str) -> None:
        """Report back-pressure on a connection: its send buffer is full."""
        self.peers[peer] = False
        self.feed(PeerBlocked(peer))

    def unblock(self, peer: str) -> None:
        """Report the end of back-pressure on a connection."""
        self.peers[peer] = True
        self.feed(PeerWritable(peer))

    def say(self, peer: str, *messages: Message) -> None:
        """Send the engine messages from a peer, all in one read."""
        self.feed(Received(peer, list(messages)))

    # --- effects ------------------------------------------------------------------------------
    def to(self, peer: str) -> list[Any]:
        """Return the messages that were sent to a peer."""
        return [what for whom, what in self.sent if whom == peer]

    def note_sent(self, peer: str, message: Message) -> None:
        """Record a sent message."""
        self.sent.append((peer, list(message)))

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(peer, message):
                assert peer in self.peers, f"{message} was sent to {peer}, which does not stand"
                self.note_sent(str(peer), message)
                self.sent_at.append(self.now)
            case StopReading(peer):
                assert peer in self.peers
                assert peer not in self.unread, "stopped twice"
                self.unread.add(str(peer))
            case ResumeReading(peer):
                self.unread.remove(str(peer))
            case Disconnect(peer, reason, cause):
                del self.peers[str(peer)]
                self.disconnected[str(peer)] = reason
                self.causes[str(peer)] = cause
            case _:
                super()._perform(effect)


class CallBench(Bench):
    """A client under test, and the outcomes of its calls by token."""

    def __init__(self) -> None:
        super().__init__()
        self.replies: dict[Any, Reply] = {}
        self.errors: dict[Any, CallError] = {}

    def cancel(self, token: Any) -> None:
        """Cancel a call."""
        self.feed(Cancel(token))

    def assert_empty(self) -> None:
        """Assert that no table holds a call (I9)."""
        client: Any = self.engine
        snapshot = client.snapshot()
        assert (snapshot.held, snapshot.sent) == (0, 0)
        assert (client.calls, client._pending, client._held) == ({}, {}, {})

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


class JobBench(Bench):
    """A server or worker under test; the test runs its handlers."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[Any, Request] = {}
        self.running: list[Any] = []  # jobs whose handler has not ended
        self.abandoned: dict[Any, str] = {}

    def finish(self, job: Any, *frames: bytes, status: Status = Status.OK) -> None:
        """End a handler with this reply (b"y" by default) and status."""
        self.running.remove(job)
        self.feed(Finished(job, frames or (b"y",), status))

    def bodies(self) -> list[bytes]:
        """Return the bodies of the requests delivered, in order."""
        return [request.body for request in self.requests.values()]

    def assert_empty(self) -> None:
        """Assert that no table holds a request (I9)."""
        engine: Any = self.engine
        snapshot = engine.snapshot()
        assert (snapshot.waiting, snapshot.running, snapshot.abandoned) == (0, 0, 0)
        assert not engine._turns.line

    def job_since(self, before: int) -> Any:
        """Return the job of the only request since `before` requests were delivered."""
        assert len(self.requests) == before + 1, "the request was not delivered"
        return list(self.requests)[-1]

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Deliver(job, Request() as request):
                assert job not in self.requests
                self.requests[job] = request
                self.running.append(job)
            case CancelHandler(job, reason):
                assert job in self.running, "a handler that had ended was given up"
                assert job not in self.abandoned
                self.abandoned[job] = reason
            case _:
                super()._perform(effect)
