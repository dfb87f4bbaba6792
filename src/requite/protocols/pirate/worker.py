"""The worker at a queue of the Pirates: sends READY, and answers requests.

    disconnected ──joined: READY──► idle ⇄ busy
         ▲                            │
         └── lost, silent, or a request failed: reconnect

It runs one request at a time, as a REQ worker does. One engine implements the Simple Pirate's
worker, which has no heartbeats and notices a lost queue only by its connection, and the Paranoid
Pirate's. Queues like the Guide's take a heartbeat for READY and may send another request before the
first is answered; those are queued here, in order.

While the worker is busy, it does not judge the queue's silence: queues like the Guide's send
heartbeats only to idle workers. There are no negative replies: after a failed request the worker
disconnects, as if it had crashed, and reconnects at once; the client retries or gives up.

The first `Wake` starts it; until then `deadline()` is 0.

Sources: Guide, "Basic Reliable Queuing (Simple Pirate Pattern)", "Robust Reliable Queuing (Paranoid
Pirate Pattern)" and "Heartbeating"; 6/PPP.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import inf
from types import SimpleNamespace
from typing import Any, ClassVar

from requite.backoff import pause_s
from requite.chronicle import NO_INSTANCE, Chronicle
from requite.core.jobs import ClientJob, Jobs, reason_of
from requite.core.liveness import Liveness, absence_s
from requite.core.machine import Handlers, Machine, ignore_input
from requite.core.recording import job_observer
from requite.engine import (
    Cause,
    Connect,
    Disconnect,
    Drain,
    Finished,
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
from requite.errors import RemoteViolation
from requite.protocols.pirate import wire
from requite.protocols.pirate.policy import WorkerPolicy
from requite.protocols.pirate.wire import Envelope, Pattern
from requite.request import Request, Status


class PirateWorker(Machine):
    """A worker for one queue; `service` is the service name in its handler's requests.

    `instance` identifies the worker in journals and should be random per start. `first_number`
    separates the ids of several engines of one instance. `chronicle` journals requests.
    """

    _kind: ClassVar = "a worker"

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
        self.jobs: Jobs[ClientJob] = Jobs(
            service,
            job_observer(chronicle, instance, service, first_number, notes=policy.notes),
            kind=self._kind,
            reply_size_max=policy.reply_size_max,
        )
        super().__init__()
        self._peer: Peer | None = None
        self._liveness = Liveness(policy.heartbeat, 0.0)
        self._beat_at = inf
        self._fruitless = 0  # consecutive connections that did not work
        self._was_heard = False  # the queue, on this connection
        self._joined_at = 0.0
        self._dialling = False
        self._dial_at = 0.0
        self._job: ClientJob | None = None  # of this connection; others are abandoned
        self._waiting: deque[Envelope] = deque()

    def _handlers(self) -> Handlers:
        return {
            Received: self._received,
            Finished: self._finished,
            Produced: self._produced,
            Progressed: ignore_input,  # there are no leases
            Started: self.jobs.started,
            Wake: self._woken,
            PeerJoined: self._joined,
            PeerLost: self._lost,
            PeerBlocked: ignore_input,
            PeerWritable: ignore_input,
            Drain: self._drained,
        }

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        at = self._beat_at if self.jobs.abandoned else min(self._beat_at, self._dial_at)
        at = min(at, self.jobs.observer.flush_at)
        return None if at == inf else at

    @property
    def is_answered(self) -> bool:
        """Whether the queue has answered READY; a Simple Pirate's queue never does."""
        return self._peer is not None and (self._was_heard or not self._pattern.beats)

    def snapshot(self) -> SimpleNamespace:
        """Return the worker's state; `waiting` counts queued requests."""
        return SimpleNamespace(
            connected=self._peer is not None,
            dialling=self._dialling,
            waiting=len(self._waiting),
            running=int(self._job is not None),
            abandoned=self.jobs.abandoned,
            draining=self._draining,
            stopped=self._stopped,
        )

    # --- from the queue ---------------------------------------------------------------------------
    def _received(self, event: Received, now: float) -> None:
        peer, messages = event.peer, event.messages
        if peer is not self._peer:
            return  # of an earlier connection
        self._liveness.heard_at = now
        try:
            for message in messages:
                said = wire.decode_to_worker(self._pattern, message)
                if isinstance(said, Envelope):
                    self._take(said, now)
                self._was_heard = True
                self._fruitless = 0
        except RemoteViolation as violation:
            reason = f"the queue broke the protocol: {violation}"
            self._out.append(Warn("malformed", reason))
            self._drop_connection(reason, Cause.FAULTY, now)

    def _take(self, request: Envelope, now: float) -> None:
        if self._job is None:
            self._deliver(request, now)
        elif len(self._waiting) < self._policy.backlog_max:
            self._waiting.append(request)
        else:
            text = f"dropped a request: one is running, and {len(self._waiting)} are queued"
            self._out.append(Warn("backlog", text))

    def _deliver(self, request: Envelope, now: float) -> None:
        self._job = job = ClientJob(self._peer, request.envelope)
        self.jobs.deliver(job, None, Request(self.jobs.service, request.body), self._out, now)

    # --- from handlers ----------------------------------------------------------------------------
    def _produced(self, event: Produced, now: float) -> None:
        if reason := self.jobs.join(event, self._out, now):
            self._drop_connection(reason, Cause.DONE, now)

    def _finished(self, event: Finished, now: float) -> None:
        ended = self.jobs.finish(event, self._out, now)
        if ended is None:
            return
        job: ClientJob = event.token
        if job is not self._job:  # it was abandoned
            self._maybe_dial(now)
            return
        self._job = None
        if ended[1] is Status.OK:
            self._liveness.heard_at = now  # the queue may be silent while we are busy
            self._say(job.reply(event.frames), now)
            if self._waiting:
                self._deliver(self._waiting.popleft(), now)
            return
        reason = reason_of(event.frames)
        text = f"a request failed, and the Pirates have no error replies: {reason}"
        self._out.append(Warn("failed request", text))
        self._drop_connection(text, Cause.DONE, now)

    # --- the connection ---------------------------------------------------------------------------
    def _say(self, message: Sequence[bytes], now: float) -> None:
        self._liveness.spoke_at = now
        self._out.append(Send(self._peer, message))

    def _joined(self, event: PeerJoined, now: float) -> None:
        if self._draining or self._peer is not None:
            self._out.append(Disconnect(event.peer, "this connection is not needed", Cause.DONE))
            return
        self._dialling = False
        self._peer = event.peer
        self._was_heard = False
        self._joined_at = now
        self._liveness = Liveness(self._policy.heartbeat, now)
        if self._pattern.beats:
            self._beat_at = self._liveness.next_at()
        self._say([self._words.ready], now)
        self._note("ready")

    def _lost(self, event: PeerLost, now: float) -> None:
        if event.peer is self._peer and not self._stopped:
            self._connection_lost(event.reason or "the connection was closed", Cause.DONE, now)

    def _drop_connection(self, reason: str, cause: Cause, now: float) -> None:
        self._out.append(Disconnect(self._peer, reason, cause))
        self._connection_lost(reason, cause, now)

    def _connection_lost(self, reason: str, cause: Cause, now: float) -> None:
        """Handle the loss of the queue: abandon the running request, and reconnect.

        After a connection that worked, reconnect at once: the queue may have restarted. Otherwise
        back off (Guide: "it does an exponential back-off, and it never abandons").
        """
        self._peer = None
        self._beat_at = inf
        self._waiting.clear()
        if self._job is not None:
            self.jobs.abandon(self._job, reason, self._out, now)
            self._job = None
        if self._draining:
            return
        has_worked = self._was_heard or now - self._joined_at >= self._policy.pause_first_s
        self._dial_at = now
        if cause is Cause.SILENT or not has_worked:
            policy = self._policy
            self._fruitless += 1
            self._dial_at += pause_s(self._fruitless, policy.pause_first_s, policy.pause_max_s)
        self._maybe_dial(now)

    def _maybe_dial(self, now: float) -> None:
        """Connect, if it is time to. While an abandoned handler still runs, the worker is not
        ready: a new request would have to wait for it."""
        if now < self._dial_at or self.jobs.abandoned:
            return
        if not self._dialling and self._peer is None:
            self._dial_at = inf
            self._dialling = True
            self._out.append(Connect())

    # --- time -------------------------------------------------------------------------------------
    def _woken(self, event: Wake, now: float) -> None:
        self.jobs.woken(event, now)
        if now >= self._beat_at:
            self._beat(now)
        self._maybe_dial(now)

    def _beat(self, now: float) -> None:
        """Disconnect from a silent queue; send a heartbeat if one is due."""
        liveness = self._liveness
        liveness.excuse(absence_s(self._beat_at, now, liveness.interval_s), now)
        is_busy = self._job is not None
        if now >= liveness.gone_at() and not is_busy:
            did = f"for {now - liveness.heard_at:.2f} s"
            if not self._was_heard:
                did = "since connecting, not even a reply to READY"
            reason = f"nothing came from the queue {did}"
            self._note("silent", reason=reason)
            self._drop_connection(reason, Cause.SILENT, now)
            return
        if now >= liveness.speak_at():
            self._say([self._words.heartbeat], now)
        self._beat_at = liveness.speak_at() if is_busy else liveness.next_at()

    # --- drain ------------------------------------------------------------------------------------
    def _drained(self, _event: Drain, _now: float) -> None:
        self._draining = True
        self._dial_at = inf
        self._waiting.clear()

    def _maybe_stop(self, _now: float) -> None:
        """Disconnect once no request is running; the protocol has no message for it."""
        if self._stopped or self.jobs:
            return
        self._stopped = True
        self._beat_at = inf
        if self._peer is not None:
            self._out.append(Disconnect(self._peer, "the worker has drained", Cause.DONE))
            self._peer = None
        self._out.append(Stopped())

    def _note(self, kind: str, **facts: Any) -> None:
        """Make a note about the connection."""
        if self.jobs.observer.makes_notes:
            self.jobs.observer.remark(kind, {"service": self._service} | facts, self._out)
