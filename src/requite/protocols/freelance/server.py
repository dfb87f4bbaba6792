"""A Freelance server: takes requests from many clients, and answers them; it never speaks first.

    waiting ──► running ──► answered
       │           └──► failed, cancelled: no reply is ever sent
       └──► lost with its client: never started

The engine does not run handlers: it delivers each request under a token, a `Job`, and whoever runs
the handler answers with `Produced` and `Finished`. At most `capacity` handlers run at a time; what
comes beyond that waits per client, and clients take turns (`turns.py`). Pings are answered at once,
however much waits: they ask whether the server lives, not whether it is free.

There are neither partial nor negative replies on the wire: partial replies are joined to one, and a
failed request gets none; its client will ask another server, or give up.

Sources: 10/FLP, "Overall Operation"; Guide, "Model One" to "Model Three".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Final

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.engine import (
    Abandon,
    Deliver,
    Disconnect,
    Drain,
    Effect,
    Finished,
    Input,
    Message,
    Note,
    Peer,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Produced,
    Progressed,
    Received,
    ResumeReading,
    Send,
    Started,
    Stopped,
    StopReading,
    Wake,
    Warn,
)
from requite.errors import LocalViolation, RemoteViolation
from requite.protocols.freelance import wire
from requite.protocols.freelance.jobs import Job, ServerSnapshot, Why
from requite.protocols.freelance.policy import ServerPolicy
from requite.protocols.freelance.recorders import ServerRecorder
from requite.protocols.freelance.turns import Caller, Callers
from requite.request import Request, Status

_NO_REPLY: Final = frozenset({Status.FAILED, Status.CANCELLED})
_PONG: Final = (wire.PONG,)


class FreelanceServer:
    """A server for whoever connects; `service` is what its handlers' requests are called.

    `instance` should be random per start: journals know the server by it. `chronicle` takes down
    what happens to the requests that it is given.
    """

    def __init__(
        self,
        policy: ServerPolicy | None = None,
        *,
        service: str = "",
        instance: bytes = NO_INSTANCE,
        chronicle: Chronicle | None = None,
    ) -> None:
        self._policy = policy = policy or ServerPolicy()
        self._service = service
        self._recorder = None if chronicle is None else ServerRecorder(chronicle, instance, service)
        self._callers = Callers(policy.queue_max, policy.queue_size_max)
        self._jobs: dict[Job, None] = {}  # a set that keeps its order
        self._dropped: Counter[str] = Counter()
        self._pings = 0
        self._draining = False
        self._stopped = False
        self._out: list[Effect] = []
        self._inputs: dict[type, Callable[[Any, float], None]] = {
            Received: self._received,
            Finished: self._finished,
            Produced: self._produced,
            Progressed: _go_on,  # nobody keeps a lease
            Started: self._began,
            Wake: self._woken,
            PeerJoined: self._joined,
            PeerLost: self._lost,
            PeerBlocked: _go_on,  # what its client does not read is bounded by the host
            PeerWritable: _go_on,
            Drain: self._drained,
        }

    # --- the engine's contract --------------------------------------------------------------------
    def handle(self, event: Input, now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`.

        For each `Deliver` of a `Request` there is to be one `Finished`, also after an `Abandon`: it
        gives the place back. A `Finished` has the status OK, FAILED (with the reason) or CANCELLED;
        only OK brings about a reply.
        """
        handler = self._inputs.get(event.__class__)
        if handler is None:
            raise LocalViolation(f"a server has no use for {event!r}")
        handler(event, now)
        if self._draining:
            self._maybe_stop()
        out = self._out
        if out:
            self._out = []
        return out

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        if self._recorder is None or self._recorder.look_at == inf:
            return None
        return self._recorder.look_at

    def snapshot(self) -> ServerSnapshot:
        """Return the sizes of all tables."""
        callers = list(self._callers)
        abandoned = sum(job.abandoned != "" for job in self._jobs)
        return ServerSnapshot(
            len(callers),
            sum(not caller.is_read for caller in callers),
            self._callers.waiting,
            len(self._jobs) - abandoned,
            abandoned,
            self._pings,
            dict(self._dropped),
            self._draining,
            self._stopped,
        )

    # --- requests ---------------------------------------------------------------------------------
    def _received(self, event: Received, now: float) -> None:
        caller = self._callers.by_peer.get(event.peer)
        if caller is None or self._stopped:
            return
        for message in event.messages:
            try:
                self._take(caller, message, now)
            except RemoteViolation as violation:
                self._drop(Why.MALFORMED, now)
                self._out.append(Warn("malformed", f"a message is dropped: {violation}"))

    def _take(self, caller: Caller, message: Message, now: float) -> None:
        """Answer a ping; deliver a request, or let it wait."""
        command = wire.decode_request(message, self._policy.model)
        if isinstance(command, wire.Ping):
            self._pings += 1
            self._out.append(Send(caller.peer, _PONG))
        elif len(self._jobs) < self._policy.capacity and not self._callers.turns:
            self._deliver(caller, command, now)
        elif self._callers.push(caller, command, sum(map(len, message))):
            self._out.append(StopReading(caller.peer))

    def _deliver(self, caller: Caller, request: wire.Request, now: float) -> None:
        job = Job(caller.peer, request.control)
        self._jobs[job] = None
        self._out.append(Deliver(job, Request(self._service, request.body)))
        if self._recorder is not None:
            self._recorder.delivered(job, sum(map(len, request.body)), now)
        if self._policy.notes:
            self._note("delivered", job)

    def _deliver_waiting(self, now: float) -> None:
        """Deliver what waits, in turn, while there is room."""
        while len(self._jobs) < self._policy.capacity:
            due = self._callers.pop()
            if due is None:
                return
            caller, request = due
            if not self._draining and self._callers.resumes(caller):
                self._out.append(ResumeReading(caller.peer))
            self._deliver(caller, request, now)

    def _drop(self, why: str, now: float, count: int = 1) -> None:
        """Count messages that nothing becomes of."""
        if not count:
            return
        self._dropped[why] += count
        if self._recorder is not None:
            self._recorder.dropped(why, now, count)
        if self._policy.notes:
            self._out.append(Note("dropped", {"why": why, "count": count}))

    # --- from handlers ----------------------------------------------------------------------------
    def _began(self, event: Started, now: float) -> None:
        if self._recorder is not None and event.token in self._jobs:
            self._recorder.started(event.token, now)

    def _produced(self, event: Produced, now: float) -> None:
        job: Job = event.token
        if job not in self._jobs or job.abandoned:
            return
        job.joined = [*(job.joined or ()), *event.frames]
        job.joined_size += sum(map(len, event.frames))
        if self._recorder is not None:
            self._recorder.partial(job, event.frames, now)
        if job.joined_size > self._policy.reply_size_max:
            text = f"its partial replies came to more than {self._policy.reply_size_max} bytes"
            self._out.append(Warn("reply too large", f"no reply: {text}"))
            self._abandon(job, text, now)

    def _finished(self, event: Finished, now: float) -> None:
        job, frames, status = event
        if status and status not in _NO_REPLY:
            raise LocalViolation(f"a server cannot end a request with {status!r}")
        if self._jobs.pop(job, 0) is not None:  # it is a set: those in it have None
            return
        if job.abandoned:
            status = Status.CANCELLED
        if self._recorder is not None:
            self._recorder.finished(job, status, frames, now)
        if self._policy.notes:
            self._note("finished", job, status=Status(status).name)
        self._answer(job, frames, status)
        self._deliver_waiting(now)
        if self._draining:
            self._maybe_see_off(job.peer)

    def _answer(self, job: Job, frames: Sequence[bytes], status: Status) -> None:
        """Send the reply, if there is one, behind the frames that the request began with."""
        if status is Status.FAILED:
            text = b" ".join(frames).decode("utf-8", "replace")
            self._out.append(Warn("failed request", f"no reply, since a request failed: {text}"))
        elif not status and job.peer in self._callers.by_peer:
            body = frames or (b"",)
            self._out.append(Send(job.peer, (*job.control, *(job.joined or ()), *body)))

    def _abandon(self, job: Job, reason: str, now: float) -> None:
        job.abandoned = reason
        job.joined = None
        self._out.append(Abandon(job, reason))
        if self._recorder is not None:
            self._recorder.abandoned(job, reason, now)
        if self._policy.notes:
            self._note("abandoned", job, reason=reason)

    # --- clients ----------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined, _now: float) -> None:
        if self._draining:
            self._out.append(Disconnect(event.peer, "the server is shutting down"))
        else:
            self._callers.join(event.peer)

    def _lost(self, event: PeerLost, now: float) -> None:
        self._drop(Why.LOST, now, self._callers.leave(event.peer))
        for job in self._jobs:
            if job.peer is event.peer and not job.abandoned:
                self._abandon(job, event.reason or "its connection was closed", now)

    # --- time, and the end ------------------------------------------------------------------------
    def _woken(self, _event: Wake, now: float) -> None:
        if self._recorder is not None and now >= self._recorder.look_at:
            self._recorder.look(self._jobs, now)

    def tell_beginnings(self, now: float) -> None:
        """Let the journal, if one is kept, have the beginnings of what is under way."""
        if self._recorder is not None:
            self._recorder.look(self._jobs, now)

    def _drained(self, _event: Drain, _now: float) -> None:
        """Read no more, and send away whoever waits for nothing: that is how clients come to ask
        another server at once. The others go with their last reply."""
        if self._draining:
            return
        self._draining = True
        for peer in list(self._callers.by_peer):
            self._maybe_see_off(peer)
        for caller in self._callers:
            if caller.is_read:
                caller.is_read = False
                self._out.append(StopReading(caller.peer))

    def _maybe_see_off(self, peer: Peer) -> None:
        """Send a client away for which there is nothing left to do."""
        caller = self._callers.by_peer.get(peer)
        if caller is None or caller.waiting or any(job.peer is peer for job in self._jobs):
            return
        self._callers.leave(peer)
        self._out.append(Disconnect(peer, "the server is shutting down"))

    def _maybe_stop(self) -> None:
        """Stop once everything that had been read is answered."""
        if not (self._stopped or self._jobs or self._callers.turns):
            self._stopped = True
            self._out.append(Stopped())

    def _note(self, kind: str, job: Job, **facts: Any) -> None:
        self._out.append(Note(kind, {"service": self._service, "job": job} | facts))


def _go_on(_event: object, _now: float) -> None:
    """Take no notice."""
