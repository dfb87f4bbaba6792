"""The worker at a queue of the Pirates: says that it is ready, and answers what it is given.

    without a connection ──joined: READY──► idle ⇄ busy
             ▲                                │
             └── lost, silent, or a request failed: start a new conversation

It has one request in hand at a time, as a REQ worker has. One engine is both the Simple Pirate's
worker, which has no heartbeats and learns of a queue's end from its connection alone, and the
Paranoid Pirate's. Queues like the Guide's take a heartbeat for "ready" and may hand out another
request before the first is answered: such wait here, in order.

While it is busy the silence of the queue means nothing: queues like the Guide's speak only to
workers that are idle. There are no negative replies: after a request that failed the worker leaves,
as one that crashed would, and comes back at once; the client will ask again or give up.

The first `Wake` starts it; until then `deadline()` is 0, so a shell that honours deadlines does it
by itself.

Sources: Guide, "Basic Reliable Queuing (Simple Pirate Pattern)", "Robust Reliable Queuing (Paranoid
Pirate Pattern)" and "Heartbeating"; 6/PPP.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.engine import (
    Abandon,
    Connect,
    Deliver,
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
    Send,
    Started,
    Stopped,
    Wake,
    Warn,
)
from requite.errors import LocalViolation, RemoteViolation
from requite.heartbeat import Heartbeat
from requite.protocols.pirate import wire
from requite.protocols.pirate.jobs import Job, WorkerSnapshot, reason_of
from requite.protocols.pirate.policy import WorkerPolicy
from requite.protocols.pirate.recorders import WorkerRecorder
from requite.protocols.pirate.wire import Envelope, Pattern
from requite.request import Request, Status


class PirateWorker:
    """A worker for one queue; `service` is what its handler's requests are called.

    `instance` should be random per start: journals know the worker by it. `first_number` parts the
    ids of several engines of one instance. `chronicle` takes down what happens to the requests.
    """

    def __init__(
        self,
        pattern: Pattern,
        policy: WorkerPolicy | None = None,
        *,
        service: str = "",
        instance: bytes = NO_INSTANCE,
        first_number: int = 0,
        chronicle: Chronicle | None = None,
    ) -> None:
        self._pattern = pattern
        self._words = wire.words_of(pattern)
        self._policy = policy = policy or WorkerPolicy()
        self._service = service
        self._recorder = (
            None
            if chronicle is None
            else WorkerRecorder(chronicle, instance, service, first_number)
        )
        self._peer: Peer | None = None
        self._heart = Heartbeat(policy.heartbeat, 0.0)
        self._beat_at = inf
        self._pause_s = policy.pause_first_s
        self._was_heard = False  # in this conversation
        self._joined_at = 0.0
        self._dialling = False
        self._dial_at = 0.0
        self._job: Job | None = None  # of this conversation, with a handler
        self._abandoned: set[Job] = set()  # whose handlers have not ended yet
        self._waiting: deque[Envelope] = deque()
        self._draining = self._stopped = False
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
            # A queue that does not read gets no more than the replies to what it handed out.
            PeerBlocked: _go_on,
            PeerWritable: _go_on,
            Drain: self._drained,
        }

    # --- the engine's contract --------------------------------------------------------------------
    def handle(self, event: Input, now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`.

        For each `Deliver` of a `Request` there is to be one `Finished`, also after an `Abandon`. A
        `Finished` has the status OK, FAILED (with the reason) or CANCELLED; only OK brings about a
        reply.
        """
        handler = self._inputs.get(event.__class__)
        if handler is None:
            raise LocalViolation(f"a worker has no use for {event!r}")
        handler(event, now)
        if self._draining:
            self._maybe_stop()
        out = self._out
        if out:
            self._out = []
        return out

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        at = self._beat_at if self._abandoned else min(self._beat_at, self._dial_at)
        if self._recorder is not None:
            at = min(at, self._recorder.look_at)
        return None if at == inf else at

    def snapshot(self) -> WorkerSnapshot:
        """Return what it holds and where it stands."""
        return WorkerSnapshot(
            self._peer is not None,
            self._dialling,
            len(self._waiting),
            int(self._job is not None),
            len(self._abandoned),
            self._draining,
            self._stopped,
        )

    def tell_beginnings(self, now: float) -> None:
        """Let the journal, if one is kept, have the beginnings of what is under way."""
        if self._recorder is not None:
            self._recorder.look([self._job] if self._job else [], now)

    # --- from the queue ---------------------------------------------------------------------------
    def _received(self, event: Received, now: float) -> None:
        peer, messages = event
        if peer is not self._peer:
            return  # the rest of a conversation that is over
        self._heart.heard_at = now
        try:
            for message in messages:
                said = wire.decode_to_worker(self._pattern, message)
                if isinstance(said, Envelope):
                    self._take(said, now)
                self._was_heard = True
                self._pause_s = self._policy.pause_first_s
        except RemoteViolation as violation:
            reason = f"the queue broke the protocol: {violation}"
            self._out.append(Warn("malformed", reason))
            self._hang_up(reason, now)

    def _take(self, request: Envelope, now: float) -> None:
        if self._job is None:
            self._deliver(request, now)
        elif len(self._waiting) < self._policy.backlog_max:
            self._waiting.append(request)
        else:
            text = f"a request is dropped: {len(self._waiting)} wait already, and one is in hand"
            self._out.append(Warn("backlog", text))

    def _deliver(self, request: Envelope, now: float) -> None:
        assert self._peer is not None
        self._job = job = Job(self._peer, request.envelope, now)
        self._out.append(Deliver(job, Request(self._service, request.body)))
        if self._recorder is not None:
            self._recorder.delivered(job, sum(map(len, request.body)), now)
        self._note("delivered", job=job)

    # --- from handlers ----------------------------------------------------------------------------
    def _began(self, event: Started, now: float) -> None:
        job: Job = event.token
        if self._recorder is not None and job is self._job:
            self._recorder.started(job, now)

    def _produced(self, event: Produced, now: float) -> None:
        job: Job = event.token
        if job is not self._job:
            return
        job.join(event.frames)
        if self._recorder is not None:
            self._recorder.partial(job, event.frames, now)
        if job.joined_size > self._policy.reply_size_max:
            text = f"its partial replies came to more than {self._policy.reply_size_max} bytes"
            self._out.append(Warn("reply too large", f"no reply: {text}"))
            self._hang_up(text, now)

    def _finished(self, event: Finished, now: float) -> None:
        job: Job = event.token
        frames, status = event.frames, event.status
        if job in self._abandoned:
            self._abandoned.discard(job)
            self._tell_finished(job, Status.CANCELLED, frames, now)
            self._maybe_dial(now)
            return
        if self._job is not job:
            return
        self._tell_finished(job, status, frames, now)
        self._job = None
        if status is Status.OK:
            self._heart.heard_at = now  # it was not to be heard while we were busy
            self._say([*job.envelope, *job.reply(frames)], now)
            if self._waiting:
                self._deliver(self._waiting.popleft(), now)
            return
        text = f"a request failed, which a worker of the Pirates cannot say: {reason_of(frames)}"
        self._out.append(Warn("failed request", text))
        self._hang_up(text, now)

    def _tell_finished(self, job: Job, status: Status, frames: Sequence[bytes], now: float) -> None:
        if self._recorder is not None:
            self._recorder.finished(job, status, frames, now)
        self._note("finished", job=job, status=Status(status).name)

    # --- the conversation -------------------------------------------------------------------------
    def _say(self, message: Sequence[bytes], now: float) -> None:
        self._heart.spoke_at = now
        self._out.append(Send(self._peer, message))

    def _joined(self, event: PeerJoined, now: float) -> None:
        if self._draining or self._peer is not None:
            self._out.append(Disconnect(event.peer, "this connection is not needed"))
            return
        self._dialling = False
        self._peer = event.peer
        self._was_heard = False
        self._joined_at = now
        self._heart = Heartbeat(self._policy.heartbeat, now)
        if self._pattern.beats:
            self._beat_at = self._heart.next_at()
        self._say([self._words.ready], now)
        self._note("ready")

    def _lost(self, event: PeerLost, now: float) -> None:
        if event.peer is self._peer and not self._stopped:
            self._go_without(event.reason or "the connection was closed", now)

    def _hang_up(self, reason: str, now: float) -> None:
        self._out.append(Disconnect(self._peer, reason))
        self._go_without(reason, now)

    def _go_without(self, reason: str, now: float, *, silent: bool = False) -> None:
        """Be without a queue: nobody waits for what is in hand; start a new conversation.

        One that worked, and was lost with its connection, is replaced at once: its queue may just
        have restarted. Otherwise the pauses grow (Guide: "it does an exponential back-off, and it
        never abandons").
        """
        self._peer = None
        self._beat_at = inf
        self._waiting.clear()
        if self._job is not None:
            self._abandon(self._job, reason, now)
        if self._draining:
            return
        has_worked = self._was_heard or now - self._joined_at >= self._policy.pause_first_s
        self._dial_at = now
        if silent or not has_worked:
            self._dial_at += self._pause_s
            self._pause_s = min(2 * self._pause_s, self._policy.pause_max_s)
        self._maybe_dial(now)

    def _abandon(self, job: Job, reason: str, now: float) -> None:
        self._job = None
        self._abandoned.add(job)
        self._out.append(Abandon(job, reason))
        if self._recorder is not None:
            self._recorder.abandoned(job, reason, now)
        self._note("abandoned", job=job, reason=reason)

    def _maybe_dial(self, now: float) -> None:
        """Connect, if it is time to. While a handler runs that could not be interrupted we are
        not ready: whatever we were handed would wait for it."""
        if now < self._dial_at or self._abandoned:
            return
        if not self._dialling and self._peer is None:
            self._dial_at = inf
            self._dialling = True
            self._out.append(Connect())

    # --- time -------------------------------------------------------------------------------------
    def _woken(self, _event: Wake, now: float) -> None:
        if self._recorder is not None and now >= self._recorder.look_at:
            self.tell_beginnings(now)
        if now >= self._beat_at:
            self._beat(now)
        self._maybe_dial(now)

    def _beat(self, now: float) -> None:
        """Notice that the queue is gone; speak to it if nothing else was said."""
        heart = self._heart
        late_s = now - self._beat_at
        if late_s > heart.interval_s:  # we were away ourselves: what came meanwhile is unread
            heart.heard_at = min(now, heart.heard_at + late_s)
        is_busy = self._job is not None
        if now >= heart.gone_at() and not is_busy:
            reason = f"nothing came from the queue for {now - heart.heard_at:.2f} s"
            self._note("silent", reason=reason)
            self._out.append(Disconnect(self._peer, reason))
            self._go_without(reason, now, silent=True)
            return
        if now >= heart.speak_at():
            self._say([self._words.heartbeat], now)
        self._beat_at = heart.speak_at() if is_busy else heart.next_at()

    # --- the end ----------------------------------------------------------------------------------
    def _drained(self, _event: Drain, _now: float) -> None:
        self._draining = True
        self._dial_at = inf
        self._waiting.clear()

    def _maybe_stop(self) -> None:
        """Leave once nothing is in hand; there are no words for it."""
        if self._stopped or self._job is not None or self._abandoned:
            return
        self._stopped = True
        self._beat_at = inf
        if self._peer is not None:
            self._out.append(Disconnect(self._peer, "the worker has drained"))
            self._peer = None
        self._out.append(Stopped())

    def _note(self, kind: str, **facts: Any) -> None:
        if self._policy.notes:
            self._out.append(Note(kind, {"service": self._service} | facts))


def _go_on(_event: Any, _now: float) -> None:
    """Take no notice."""
