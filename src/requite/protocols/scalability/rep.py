"""The worker over SP, a REP endpoint: answers requests from many channels.

    waiting ──► running ──► answered
       │           └──► failed, cancelled: no reply is ever sent
       └──► lost with its channel: never started

At most `capacity` handlers run at a time; further requests are queued per channel, and channels
take turns (`requite.core.turns`), so a client cannot starve others by sending more.

SP has no partial replies, negative replies or deadlines: a failed request gets no reply at all (the
draft's cancelling); its client resends it, or gives up.

Source: sp-request-reply-01, "REP endpoint" and "End-to-end functionality".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import ClassVar, Final

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.core.jobs import Jobs, reason_of
from requite.core.machine import Handlers, Machine, ignore_input
from requite.core.recording import job_observer
from requite.core.turns import Turns
from requite.engine import (
    Cause,
    Deliver,
    DeliverAll,
    Disconnect,
    Drain,
    Effect,
    Finished,
    Input,
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
from requite.protocols.scalability.jobs import Job, RepSnapshot, Why, unread_reply
from requite.protocols.scalability.policy import RepPolicy
from requite.protocols.scalability.raw import ReplyPipe, ReturnPaths
from requite.protocols.scalability.wire import is_too_deep, stack_size
from requite.request import Request, Status

_NO_REPLY: Final = frozenset({Status.FAILED, Status.CANCELLED})


class ScalabilityWorker(Machine):
    """A worker; `service` is the service name in its handlers' requests.

    `first_id` is the first channel id, random per start. `instance` identifies the worker in
    journals and should be random per start. `chronicle` journals its requests.
    """

    _kind: ClassVar = "a worker"

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
        self.jobs: Jobs[Job] = Jobs(
            service,
            job_observer(chronicle, instance, service, notes=policy.notes),
            kind=self._kind,
            reply_size_max=policy.reply_size_max,
        )
        super().__init__()
        self._hops = policy.hops
        self._capacity = policy.capacity
        self._paths = ReturnPaths(first_id, backlog_size_max=policy.backlog_size_max)
        self._turns: Turns[ReplyPipe] = Turns(policy.queue_max, policy.queue_size_max)
        # Collected during a batch of inputs, emitted together at its end.
        self._requests: list[tuple[Job, Request]] = []
        self._replies: dict[Peer, list[Sequence[bytes]]] = {}

    def _handlers(self) -> Handlers:
        return {
            Received: self._received,
            Finished: self._finished,
            Produced: self._produced,
            Progressed: ignore_input,  # there are no leases
            Started: self.jobs.started,
            Wake: self.jobs.woken,
            PeerJoined: self._joined,
            PeerLost: self._lost,
            PeerBlocked: self._blocked,
            PeerWritable: self._writable,
            Drain: self._drained,
        }

    # --- the engine's contract --------------------------------------------------------------------
    @property
    def is_answered(self) -> bool:
        """Whether a peer has accepted this worker; always True, SP has no registration."""
        return True

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        at = self.jobs.observer.flush_at
        return None if at == inf else at

    def snapshot(self) -> RepSnapshot:
        """Return the sizes of all tables."""
        pipes = list(self._turns)
        abandoned = self.jobs.abandoned
        return RepSnapshot(
            len(pipes),
            sum(not pipe.is_open for pipe in pipes),
            sum(not pipe.is_read for pipe in pipes),
            self._turns.waiting,
            len(self.jobs) - abandoned,
            abandoned,
            dict(self.jobs.dropped),
            self._draining,
            self._stopped,
        )

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`."""
        effects = super().handle(events, now)
        if not (self._requests or self._replies):
            return effects
        self._put_out()
        out, self._out = self._out, []
        return out if effects is out else [*effects, *out]

    # --- requests ---------------------------------------------------------------------------------
    def _received(self, event: Received, now: float) -> None:
        pipe = self._turns.by_peer.get(event.peer)
        if pipe is None or self._stopped:
            return
        jobs, capacity, hops, turns = self.jobs, self._capacity, self._hops, self._turns
        for (payload,) in event.messages:
            end = stack_size(payload, hops)
            if not end:
                self._refuse(payload, now)
            elif len(jobs) < capacity and pipe.is_open and not turns.line:
                self._deliver(pipe, payload[:end], payload[end:], now)
            elif turns.push(pipe, (payload[:end], payload[end:]), len(payload)):
                self._put_out()
                self._out.append(StopReading(pipe.peer))
        if turns.line:
            self._deliver_waiting(now)

    def _deliver(self, pipe: ReplyPipe, stack: bytes, body: bytes, now: float) -> None:
        job = Job()
        job.stack = stack
        job.pipe_tag = pipe.tag
        job.abandoned = ""
        job.joined = None
        jobs = self.jobs
        jobs[job] = None
        request = Request(self._service, (body,))
        request.principal = pipe.principal
        self._requests.append((job, request))
        observer = jobs.observer
        if observer.keeps_journal:
            job.call_id = b""
            observer.delivered(job, len(body), now)
        if observer.makes_notes:
            jobs.remark("delivered", job, self._out)

    def _deliver_waiting(self, now: float) -> None:
        """Deliver queued requests, channels in turn, up to `capacity`."""
        while len(self.jobs) < self._capacity:
            due = self._turns.pop()
            if due is None:
                return
            pipe, (stack, body) = due
            if not self._draining and self._turns.resumes(pipe):
                self._put_out()
                self._out.append(ResumeReading(pipe.peer))
            self._deliver(pipe, stack, body, now)

    def _refuse(self, payload: bytes, now: float) -> None:
        why = Why.HOPS if is_too_deep(payload, self._hops) else Why.MALFORMED
        self.jobs.drop(why, self._out, now)

    # --- from handlers ----------------------------------------------------------------------------
    def _produced(self, event: Produced, now: float) -> None:
        self._put_out()  # a handler must start before it can be abandoned
        if reason := self.jobs.join(event, self._out, now):
            self.jobs.abandon(event.token, reason, self._out, now)

    def _finished(self, event: Finished, now: float) -> None:
        job, frames, status = event.token, event.frames, event.status
        jobs = self.jobs
        if status and status not in _NO_REPLY:
            raise jobs.wrong_end(status)
        if jobs.pop(job, 0) is not None:  # members have the value None
            return
        if job.abandoned:
            status = Status.CANCELLED
        observer = jobs.observer
        if observer.keeps_journal:
            observer.finished(job, status, frames, now)
        if observer.makes_notes:  # the name alone costs 0.37 us
            jobs.remark("finished", job, self._out, status=Status(status).name)
        if not status:
            pipe = self._paths.by_tag.get(job.pipe_tag)
            if job.joined is None and pipe is not None and pipe.is_open:  # nearly always
                replies = self._replies.get(pipe.peer)
                if replies is None:
                    self._replies[pipe.peer] = [(job.stack, *frames)]
                else:
                    replies.append((job.stack, *frames))
            else:
                self._reply(pipe, job, frames, now)
        elif status == Status.FAILED:
            text = f"a request failed, so it gets no reply: {reason_of(frames)}"
            self._out.append(Warn("failed request", text))
        if self._turns.line:
            self._deliver_waiting(now)

    def _reply(self, pipe: ReplyPipe | None, job: Job, frames: Sequence[bytes], now: float) -> None:
        """Send a reply to the pipe of its request, or drop it if the pipe does not accept it."""
        if job.joined is not None:
            frames = (*job.joined, *frames)
        message = (job.stack, *frames)
        if pipe is None:
            self.jobs.drop(Why.STRAY, self._out, now)
        elif not (pipe.is_open or self._paths.takes(pipe, sum(map(len, message)))):
            self.jobs.drop(Why.PUSHBACK, self._out, now)
            self._out.append(unread_reply())
        else:
            self._replies.setdefault(pipe.peer, []).append(message)

    def _put_out(self) -> None:
        """Emit the collected requests and replies."""
        if self._requests:
            pairs, self._requests = self._requests, []
            if len(pairs) == 1:
                self._out.append(Deliver(*pairs[0]))
            else:
                self._out.append(DeliverAll(pairs))
        if self._replies:
            for peer, messages in self._replies.items():
                if len(messages) == 1:
                    self._out.append(Send(peer, messages[0]))
                else:
                    self._out.append(SendAll(peer, messages))
            self._replies.clear()

    # --- channels ---------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined, _now: float) -> None:
        if self._draining:
            self._out.append(Disconnect(event.peer, "the worker is shutting down", Cause.DONE))
        else:
            self._turns.join(self._paths.join(event.peer, event.principal.name))

    def _lost(self, event: PeerLost, now: float) -> None:
        pipe = self._turns.leave(event.peer)
        if pipe is None:
            return
        self._put_out()  # handlers must start before they can be abandoned
        self._paths.leave(pipe)
        self.jobs.drop(Why.LOST, self._out, now, pipe.queued)
        for job in self.jobs:
            if job.pipe_tag == pipe.tag and not job.abandoned:
                reason = event.reason or "its connection was closed"
                self.jobs.abandon(job, reason, self._out, now)

    def _blocked(self, event: PeerBlocked, _now: float) -> None:
        self._turns.block(event.peer)

    def _writable(self, event: PeerWritable, now: float) -> None:
        if pipe := self._turns.unblock(event.peer):
            pipe.backlog = 0
        self._deliver_waiting(now)

    # --- drain ------------------------------------------------------------------------------------
    def _drained(self, _event: Drain, _now: float) -> None:
        if self._draining:
            return
        self._draining = True
        for pipe in self._turns:
            if pipe.is_read:
                pipe.is_read = False
                self._out.append(StopReading(pipe.peer))

    def _maybe_stop(self, now: float) -> None:
        """Stop once no handler runs. Drop queued requests of channels with back-pressure."""
        if not (self._stopped or self.jobs):
            self._stopped = True
            self._put_out()
            self.jobs.drop(Why.LOST, self._out, now, self._turns.clear())
            self._out.append(Stopped())
