"""The worker over SP, a REP endpoint: takes requests from many channels, and answers them.

    waiting ──► running ──► answered
       │           └──► failed, cancelled: no reply is ever sent
       └──► lost with its channel: never started

The engine does not run handlers: it delivers each request under a token, a `Job`, and whoever runs
the handler answers with `Produced` and `Finished`. At most `capacity` handlers run at a time; what
comes beyond that waits per channel, and channels take turns (`raw.py`). So nobody can keep others
from being served by asking more.

SP has neither partial nor negative replies, nor deadlines: partial replies are joined to one, and a
failed request gets no reply at all (the draft's cancelling); its client will ask again, or give up.

Source: sp-request-reply-01, "REP endpoint" and "End-to-end functionality".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.engine import (
    Abandon,
    Deliver,
    DeliverAll,
    Disconnect,
    Drain,
    Effect,
    Finished,
    Input,
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
    SendAll,
    Started,
    Stopped,
    StopReading,
    Wake,
    Warn,
)
from requite.errors import LocalViolation
from requite.protocols.scalability.jobs import Job, RepSnapshot, Why, unread_reply
from requite.protocols.scalability.policy import RepPolicy
from requite.protocols.scalability.raw import Caller, Callers
from requite.protocols.scalability.recorders import WorkerRecorder
from requite.protocols.scalability.wire import is_too_deep, stack_size
from requite.request import Request, Status

_NO_REPLY: Final = frozenset({Status.FAILED, Status.CANCELLED})
_new: Final = tuple.__new__  # half the price of calling a NamedTuple's class


class ScalabilityWorker:
    """A worker for whoever is connected; `service` is what its handlers' requests are called.

    `first_id` is the first channel id, random per start. `instance` should be, too: journals know
    the worker by it. `chronicle` takes down what happens to the requests that it is given.
    """

    def __init__(
        self,
        policy: RepPolicy | None = None,
        *,
        service: str = "",
        first_id: int,
        instance: bytes = NO_INSTANCE,
        chronicle: Chronicle | None = None,
    ) -> None:
        self._policy = policy = policy or RepPolicy()
        self._service = service
        self._hops = policy.hops
        self._capacity = policy.capacity
        self._notes = policy.notes
        self._recorder = None if chronicle is None else WorkerRecorder(chronicle, instance, service)
        self._callers = Callers(
            first_id,
            queue_max=policy.queue_max,
            queue_size_max=policy.queue_size_max,
            backlog_size_max=policy.backlog_size_max,
        )
        self._jobs: dict[Job, None] = {}  # a set that keeps its order
        self._dropped: Counter[str] = Counter()
        self._draining = False
        self._stopped = False
        self._out: list[Effect] = []
        self._bulk: _Bulk | None = None  # in `handle_all`
        self._inputs: dict[type, Callable[[Any, float], None]] = {
            Received: self._received,
            Finished: self._finished,
            Produced: self._produced,
            Progressed: _go_on,  # nobody keeps a lease
            Started: self._began,
            Wake: self._woken,
            PeerJoined: self._joined,
            PeerLost: self._lost,
            PeerBlocked: self._blocked,
            PeerWritable: self._writable,
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
            raise LocalViolation(f"a worker has no use for {event!r}")
        handler(event, now)
        return self._said(now)

    def handle_all(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.BulkEngine.handle_all`."""
        self._bulk = bulk = _Bulk()
        try:
            for event in events:
                self._inputs[event.__class__](event, now)
        finally:
            self._bulk = None
            if bulk.requests:
                self._out.append(DeliverAll(bulk.requests))
            self._out += [SendAll(*each) for each in bulk.replies.items()]
        return self._said(now)

    def _said(self, now: float) -> Iterable[Effect]:
        if self._draining:
            self._maybe_stop(now)
        out = self._out
        if out:
            self._out = []
        return out

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        return None if self._recorder is None else self._recorder.next_at()

    def snapshot(self) -> RepSnapshot:
        """Return the sizes of all tables."""
        callers = list(self._callers)
        abandoned = sum(job.abandoned != "" for job in self._jobs)
        return RepSnapshot(
            len(callers),
            sum(not caller.is_open for caller in callers),
            sum(not caller.is_read for caller in callers),
            self._callers.waiting,
            len(self._jobs) - abandoned,
            abandoned,
            dict(self._dropped),
            self._draining,
            self._stopped,
        )

    # --- requests ---------------------------------------------------------------------------------
    def _received(self, event: Received, now: float) -> None:
        caller = self._callers.by_peer.get(event.peer)
        if caller is None or self._stopped:
            return
        jobs, capacity, hops, callers = self._jobs, self._capacity, self._hops, self._callers
        for (payload,) in event.messages:
            end = stack_size(payload, hops)
            if not end:
                self._refuse(payload, now)
            elif len(jobs) < capacity and caller.is_open and not callers.turns:
                self._deliver(caller, payload[:end], payload[end:], now)
            elif callers.push(caller, (payload[:end], payload[end:]), len(payload)):
                self._out.append(StopReading(caller.peer))
        if callers.turns:
            self._deliver_waiting(now)

    def _deliver(self, caller: Caller, stack: bytes, body: bytes, now: float) -> None:
        job = Job()
        job.stack = stack
        job.way = caller.tag
        job.abandoned = ""
        job.joined = None
        self._jobs[job] = None
        request = Request(self._service, (body,))
        if self._bulk is None:
            self._out.append(_new(Deliver, (job, request)))
        else:
            self._bulk.requests.append((job, request))
        if self._recorder is not None:
            self._recorder.delivered(job, len(body), now)
        if self._notes:
            self._note("delivered", job)

    def _deliver_waiting(self, now: float) -> None:
        """Deliver what waits, in turn, while there is room."""
        while len(self._jobs) < self._capacity:
            due = self._callers.pop()
            if due is None:
                return
            caller, (stack, body) = due
            if not self._draining and self._callers.resumes(caller):
                self._out.append(ResumeReading(caller.peer))
            self._deliver(caller, stack, body, now)

    def _refuse(self, payload: bytes, now: float) -> None:
        self._drop(Why.HOPS if is_too_deep(payload, self._hops) else Why.MALFORMED, now)

    def _drop(self, why: str, now: float, count: int = 1) -> None:
        """Count messages that nothing becomes of."""
        if not count:
            return
        self._dropped[why] += count
        if self._recorder is not None:
            self._recorder.dropped(why, now, count)
        if self._notes:
            self._out.append(Note("dropped", {"why": why, "count": count}))

    # --- from handlers ----------------------------------------------------------------------------
    def _began(self, event: Started, now: float) -> None:
        if self._recorder is not None and event.token in self._jobs:
            self._recorder.started(event.token, now)

    def _produced(self, event: Produced, now: float) -> None:
        job: Job = event.token
        if job not in self._jobs or job.abandoned:
            return
        if job.joined is None:
            job.joined = []
            job.joined_size = 0
        job.joined += event.frames
        job.joined_size += sum(map(len, event.frames))
        if self._recorder is not None:
            self._recorder.partial(job, event.frames, now)
        if job.joined_size > self._policy.reply_size_max:
            self._out.append(Warn("reply too large", f"no reply: {self._too_large()}"))
            self._abandon(job, self._too_large(), now)

    def _too_large(self) -> str:
        return f"its partial replies came to more than {self._policy.reply_size_max} bytes"

    def _finished(self, event: Finished, now: float) -> None:
        job, frames, status = event
        if status and status not in _NO_REPLY:
            raise LocalViolation(f"a worker cannot end a request with {status!r}")
        if self._jobs.pop(job, 0) is not None:  # it is a set: those in it have None
            return
        if job.abandoned:
            status = Status.CANCELLED
        if self._recorder is not None:
            self._recorder.finished(job, status, frames, now)
        if self._notes:
            self._note("finished", job, status=Status(status).name)
        if not status:
            caller = self._callers.by_tag.get(job.way)
            if self._bulk is not None and job.joined is None and caller and caller.is_open:
                self._bulk.replies[caller.peer].append((job.stack, *frames))  # nearly always
            else:
                self._reply(caller, job, frames, now)
        elif status == Status.FAILED:
            text = b" ".join(frames).decode("utf-8", "replace")
            self._out.append(Warn("failed request", f"no reply, since a request failed: {text}"))
        if self._callers.turns:
            self._deliver_waiting(now)

    def _reply(self, caller: Caller | None, job: Job, frames: Sequence[bytes], now: float) -> None:
        """Send a reply the way its request came; where it takes none, drop it."""
        if job.joined is not None:
            frames = (*job.joined, *frames)
        message = (job.stack, *frames)
        if caller is None:
            self._drop(Why.STRAY, now)
        elif not (caller.is_open or self._callers.takes(caller, sum(map(len, message)))):
            self._drop(Why.PUSHBACK, now)
            self._out.append(unread_reply())
        elif self._bulk is None:
            self._out.append(_new(Send, (caller.peer, message)))
        else:
            self._bulk.replies[caller.peer].append(message)

    def _abandon(self, job: Job, reason: str, now: float) -> None:
        job.abandoned = reason
        job.joined = None
        self._out.append(Abandon(job, reason))
        if self._recorder is not None:
            self._recorder.abandoned(job, reason, now)
        if self._notes:
            self._note("abandoned", job, reason=reason)

    # --- channels ---------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined, _now: float) -> None:
        if self._draining:
            self._out.append(Disconnect(event.peer, "the worker is shutting down"))
        else:
            self._callers.join(event.peer)

    def _lost(self, event: PeerLost, now: float) -> None:
        caller = self._callers.leave(event.peer)
        if caller is None:
            return
        self._drop(Why.LOST, now, len(caller.waiting))
        for job in self._jobs:
            if job.way == caller.tag and not job.abandoned:
                self._abandon(job, event.reason or "its connection was closed", now)

    def _blocked(self, event: PeerBlocked, _now: float) -> None:
        self._callers.block(event.peer)

    def _writable(self, event: PeerWritable, now: float) -> None:
        self._callers.unblock(event.peer)
        self._deliver_waiting(now)

    # --- time, and the end ------------------------------------------------------------------------
    def _woken(self, _event: Wake, now: float) -> None:
        if self._recorder is not None and now >= self._recorder.look_at:
            self._recorder.look(self._jobs, now)

    def tell_beginnings(self, now: float) -> None:
        """Let the journal, if one is kept, have the beginnings of what is under way."""
        if self._recorder is not None:
            self._recorder.look(self._jobs, now)

    def _drained(self, _event: Drain, _now: float) -> None:
        if self._draining:
            return
        self._draining = True
        for caller in self._callers:
            if caller.is_read:
                caller.is_read = False
                self._out.append(StopReading(caller.peer))

    def _maybe_stop(self, now: float) -> None:
        """Stop once nothing is in hand. What waits at channels that push back is left undone."""
        if not (self._stopped or self._jobs):
            self._stopped = True
            self._drop(Why.LOST, now, self._callers.clear())
            self._out.append(Stopped())

    def _note(self, kind: str, job: Job, **facts: Any) -> None:
        self._out.append(Note(kind, {"service": self._service, "job": job} | facts))


class _Bulk:
    """What goes to handlers, and to peers, when many inputs have been handled."""

    __slots__ = ("replies", "requests")

    def __init__(self) -> None:
        self.requests: list[tuple[Job, Request]] = []
        self.replies: defaultdict[Peer, list[Sequence[bytes]]] = defaultdict(list)


def _go_on(_event: Progressed, _now: float) -> None:
    """Take no notice."""
