"""A Majordomo worker engine with virtual time; the test plays the broker and runs the handlers.

    bench = WorkerBench(capacity=2)
    bench.start()                       # connect and register
    job = bench.request(b"hi")          # the broker dispatches a request
    bench.finish(job, b"ho")            # the handler returns

The bench decodes each message that the engine sends. It asserts the invariants of a worker: it
sends only on open connections; READY is the first message of a connection and is not repeated; each
dispatch gets at most one FINAL; a handler is cancelled at most once.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from requite.chronicle import NO_CALL, Chronicle
from requite.core.liveness import HeartbeatPolicy
from requite.engine import (
    CancelHandler,
    Cause,
    Connect,
    Deliver,
    Disconnect,
    Drain,
    Effect,
    Finished,
    Note,
    PeerJoined,
    PeerLost,
    Produced,
    Progressed,
    Received,
    Send,
    Stopped,
    Wake,
    Warn,
)
from requite.protocols.majordomo import wire
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.jobs import Job, WorkerPolicy
from requite.protocols.majordomo.wire import WorkerCancel, WorkerHeartbeat, WorkerRequest
from requite.protocols.majordomo.worker import MajordomoWorker
from requite.request import Request, Status

INSTANCE = b"a-worker"


class WorkerBench:
    """One worker under test. Keywords override fields of `WorkerPolicy`."""

    def __init__(
        self,
        version: str = "0.3",
        *,
        interval_s: float = 1.0,
        chronicle: Chronicle | None = None,
        **policy: Any,
    ) -> None:
        self.dialect = by_version(version)
        self.policy = WorkerPolicy(
            heartbeat=HeartbeatPolicy(interval_s), **{"notes": True, **policy}
        )
        self.worker = MajordomoWorker(
            self.dialect,
            "echo",
            self.policy,
            rng=lambda: 0.5,
            instance=INSTANCE,
            chronicle=chronicle,
        )
        self.now = 100.0
        self.link: str | None = None
        self.dialling = 0
        self.sent: dict[str, list[Any]] = defaultdict(list)  # commands by connection
        self.requests: dict[Job, Request] = {}
        self.abandoned: dict[Job, str] = {}
        self.disconnected: dict[str, str] = {}
        self.causes: dict[str, Cause] = {}
        self.notes: list[Note] = []
        self.warnings: list[Warn] = []
        self.stopped = False
        self._joined = 0
        self._dispatch_id = 0

    # --- the network --------------------------------------------------------------------------
    def join(self) -> str:
        """Open the connection that the worker requested; return its name."""
        assert self.dialling, "no connection was asked for"
        self.dialling -= 1
        self._joined += 1
        self.link = f"link-{self._joined}"
        self.feed(PeerJoined(self.link))
        return f"link-{self._joined}"

    def start(self) -> None:
        """Connect and register the worker, and send it a heartbeat of the broker."""
        self.advance(0)
        self.join()
        self.heartbeat()

    def lose(self) -> None:
        """Report that the connection was lost."""
        link, self.link = self.link, None
        self.feed(PeerLost(link, "reset"))

    # --- the broker ---------------------------------------------------------------------------
    def say(self, *messages: list[bytes], link: str | None = None) -> None:
        """Send the worker messages from the broker, all in one read."""
        self.feed(Received(link or self.link, list(messages)))

    def heartbeat(self, interval_ms: int = 1000) -> None:
        """Send the worker a HEARTBEAT."""
        self.say(self.dialect.encode(WorkerHeartbeat(interval_ms)))

    def request(self, body: bytes = b"x", **fields: Any) -> Job:
        """Send the worker a REQUEST; return its job."""
        before = len(self.requests)
        self.say(self.encode_request(body, **fields))
        assert len(self.requests) == before + 1, "the request was not delivered"
        return list(self.requests)[-1]

    def encode_request(
        self,
        body: bytes = b"x",
        *,
        timeout_ms: int = 0,
        attempt: int = 1,
        key: bytes = b"",
        call_id: bytes = NO_CALL,
    ) -> list[bytes]:
        """Return an encoded REQUEST with a new dispatch id."""
        self._dispatch_id += 1
        return self.dialect.encode(
            WorkerRequest(b"client", [body], self._dispatch_id, timeout_ms, attempt, key, call_id)
        )

    def cancel(self, job: Job) -> None:
        """Send the worker a CANCEL of a request."""
        self.say(self.dialect.encode(WorkerCancel(job.dispatch_id)))

    # --- handlers -----------------------------------------------------------------------------
    def produce(self, job: Job, body: bytes) -> None:
        """Yield a partial reply from a handler."""
        self.feed(Produced(job, [body]))

    def finish(self, job: Job, body: bytes = b"y", status: Status = Status.OK) -> None:
        """End a handler with this reply and status."""
        self.feed(Finished(job, [body], status))

    def progress(self, job: Job, extend_s: float = 0.0) -> None:
        """Report progress of a handler, which extends its lease by `extend_s` seconds."""
        self.feed(Progressed(job, extend_s))

    def drain(self) -> None:
        """Ask the worker to drain."""
        self.feed(Drain())

    # --- time ---------------------------------------------------------------------------------
    def advance(self, seconds: float) -> None:
        """Advance the clock, with a wake-up at each deadline of the worker."""
        end = self.now + seconds
        while (at := self.worker.deadline()) is not None and at <= end:
            self.now = max(self.now, at)
            self.feed(Wake())
        self.now = end

    def advance_alive(self, seconds: float, every: float = 0.5) -> None:
        """Advance the clock while the broker sends a heartbeat every `every` seconds."""
        end = self.now + seconds
        while self.now < end:
            self.advance(min(every, end - self.now))
            if self.link is not None:
                self.heartbeat()

    def freeze(self, seconds: float) -> None:
        """Advance the clock with a single wake-up, at the end."""
        self.now += seconds
        self.feed(Wake())

    # --- effects ------------------------------------------------------------------------------
    def said(self, kind: type | None = None, link: str | None = None) -> list[Any]:
        """Return the commands that the worker sent on a connection (by default the newest), all or
        of one type."""
        commands = self.sent[link or f"link-{self._joined}"]
        return [c for c in commands if kind is None or isinstance(c, kind)]

    def finals(self) -> list[tuple[bytes, int]]:
        """Return body and status of each FINAL sent on the newest connection."""
        return [(b"".join(c.body), c.status) for c in self.said(wire.WorkerFinal)]

    def feed(self, event: Any) -> None:
        """Feed the worker one input and record its effects."""
        for effect in self.worker.handle([event], self.now):
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(peer, message):
                assert peer == self.link, f"{message} was sent to {peer}, which does not stand"
                self._note_sent(str(peer), self.dialect.decode_from_worker(list(message)))
            case Deliver(token, Request() as request):
                self.requests[token] = request
            case CancelHandler(token, reason):
                assert token not in self.abandoned, f"{token} was abandoned already"
                self.abandoned[token] = reason
            case Connect():
                self.dialling += 1
            case Disconnect(peer, reason, cause):
                if peer == self.link:
                    self.link = None
                self.disconnected[str(peer)] = reason
                self.causes[str(peer)] = cause
            case Note():
                self.notes.append(effect)
            case Warn():
                self.warnings.append(effect)
            case Stopped():
                assert not self.stopped
                self.stopped = True
            case _:
                raise AssertionError(f"a worker has no business with {effect}")

    def _note_sent(self, link: str, command: Any) -> None:
        commands = self.sent[link]
        assert isinstance(command, wire.Ready) is (not commands), "READY is first, and only that"
        assert not commands or not isinstance(commands[-1], wire.Disconnect), "after DISCONNECT"
        if isinstance(command, wire.WorkerFinal) and self.dialect.has_ids:
            ids = [c.dispatch_id for c in commands if isinstance(c, wire.WorkerFinal)]
            assert command.dispatch_id not in ids, "a second FINAL"
        commands.append(command)


def started(version: str = "0.3", **settings: object) -> WorkerBench:
    """Return a registered worker."""
    bench = WorkerBench(version, **settings)  # type: ignore[arg-type]
    bench.start()
    return bench
