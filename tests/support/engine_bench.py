"""Engines with virtual time, in which the test is network, user and peers: what the benches of the
protocols have in common.

They check what must always hold: a call ends once, nothing is sent to a connection that does not
stand, no request to one that pushes back, and a handler is given up once at most.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from requite.engine import (
    Cancel,
    CancelHandler,
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
from requite.sim.scalability.watch import one_by_one


def with_retry(given: dict[str, Any], usual: RetryPolicy | None = None) -> dict[str, Any]:
    """Put those keywords that are fields of a `RetryPolicy` into one, as `retry`."""
    names = {field.name for field in fields(RetryPolicy)} & given.keys()
    if not names:
        return given
    rest = {name: value for name, value in given.items() if name not in names}
    return {
        **rest,
        "retry": replace(usual or RetryPolicy(), **{name: given[name] for name in names}),
    }


class Clocked:
    """An engine, and the clock that it goes by."""

    engine: Engine

    def __init__(self) -> None:
        self.now = 100.0
        self.notes: list[Note] = []
        self.warnings: list[Warn] = []
        self.stopped = False

    def feed(self, event: Any) -> None:
        """Feed the engine one input and note what it does."""
        for effect in self.engine.handle([event], self.now):
            for single in one_by_one(effect):
                self._perform(single)

    def advance(self, seconds: float) -> None:
        """Let time pass, with a wake-up at each instant the engine asks for."""
        end = self.now + seconds
        while (at := self.engine.deadline()) is not None and at <= end:
            self.now = max(self.now, at)
            self.feed(Wake())
        self.now = end

    def freeze(self, seconds: float) -> None:
        """Let time pass without any wake-up, as where the process is stopped; then wake it."""
        self.now += seconds
        self.feed(Wake())

    def drain(self) -> None:
        """Ask the engine to finish."""
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


class Bench(Clocked):
    """An engine with connections that have names, and what came of it."""

    def __init__(self) -> None:
        super().__init__()
        self.peers: dict[str, bool] = {}  # those that stand: whether they take anything
        self.unread: set[str] = set()
        self.sent: list[Any] = []  # pairs: to whom, and what
        self.sent_at: list[float] = []
        self.disconnected: dict[str, str] = {}

    # --- the network --------------------------------------------------------------------------
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

    def say(self, peer: str, *messages: Message) -> None:
        """Let messages come, in one read."""
        self.feed(Received(peer, list(messages)))

    # --- what came of it ----------------------------------------------------------------------
    def to(self, peer: str) -> list[Any]:
        """Return what a peer was sent."""
        return [what for whom, what in self.sent if whom == peer]

    def note_sent(self, peer: str, message: Message) -> None:
        """Remember a message."""
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
            case Disconnect(peer, reason):
                del self.peers[str(peer)]
                self.disconnected[str(peer)] = reason
            case _:
                super()._perform(effect)


class CallBench(Bench):
    """A client, and what became of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.replies: dict[Any, Reply] = {}
        self.errors: dict[Any, CallError] = {}

    def cancel(self, token: Any) -> None:
        """Give a call up."""
        self.feed(Cancel(token))

    def assert_empty(self) -> None:
        """Check that no table remembers a call (I9)."""
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
    """Whoever runs handlers; the test does it in their place."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[Any, Request] = {}
        self.running: list[Any] = []  # jobs whose handler has not ended
        self.abandoned: dict[Any, str] = {}

    def finish(self, job: Any, *frames: bytes, status: Status = Status.OK) -> None:
        """Let a handler end."""
        self.running.remove(job)
        self.feed(Finished(job, frames or (b"y",), status))

    def bodies(self) -> list[bytes]:
        """Return the bodies of the requests delivered, in order."""
        return [request.body for request in self.requests.values()]

    def assert_empty(self) -> None:
        """Check that no table remembers a request (I9)."""
        engine: Any = self.engine
        snapshot = engine.snapshot()
        assert (snapshot.waiting, snapshot.running, snapshot.abandoned) == (0, 0, 0)
        assert not engine._turns.line

    def came(self, before: int) -> Any:
        """Return the job of the one request that has been delivered since there were so many."""
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
