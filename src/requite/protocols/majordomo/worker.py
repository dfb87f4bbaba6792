"""The Majordomo worker: registers for one service, and answers the broker's requests.

    disconnected ──joined: READY──► serving ──► draining ──► stopped
         ▲                             │
         └── connection lost, broker silent or faulty, or DISCONNECT: reconnect

One engine implements MDP 0.1, 0.2 and 0.3. It does not run handlers: it delivers each request under
a token, a `Job`, and the shell, which runs the handler, answers with `Produced`, `Progressed` and
`Finished`. A job belongs to its connection: when that ends, its handler is abandoned, and its
output is dropped ([worker-reconnect]).

The first `Wake` starts it; until then `deadline()` is 0.

Sources: 18/MDP and 7/MDP, "MDP/Worker", "Opening and Closing a Connection" and "Heartbeating"; rule
ids in brackets are those of docs/protocols/mdp-0.3.md, section "The worker's side".
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from types import SimpleNamespace
from typing import ClassVar, Final

from requite import engine
from requite.chronicle import NO_INSTANCE, Chronicle
from requite.core.jobs import Jobs, reason_of
from requite.core.liveness import Liveness, absence_s
from requite.core.machine import Handlers, Machine, ignore_input
from requite.core.observer import JobObserver
from requite.core.sweep import Sweep
from requite.engine import (
    Connect,
    Finished,
    Peer,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Produced,
    Progressed,
    Received,
    Rng,
    Send,
    Started,
    Stopped,
    Wake,
    Warn,
)
from requite.errors import ConfigurationError, RemoteViolation
from requite.protocols.majordomo.dialects import check_service_name
from requite.protocols.majordomo.jobs import Job, WorkerPolicy
from requite.protocols.majordomo.recorders import WorkerRecorder
from requite.protocols.majordomo.redial import Redial
from requite.protocols.majordomo.wire import (
    MMI_PREFIX,
    U32_MAX,
    Dialect,
    Disconnect,
    DrainNotice,
    Progress,
    Ready,
    ToWorker,
    WorkerCancel,
    WorkerHeartbeat,
    WorkerPartial,
    WorkerRequest,
)
from requite.request import Request

# PROGRESS is sent at most this often per lease, however often a handler reports it.
_PROGRESS_PER_LEASE_MAX: Final = 8


class MajordomoWorker(Machine):
    """A worker for one service, on one connection to one broker.

    `instance` identifies the worker in journals and should be random per start. `chronicle`
    journals its requests.

    Raises `ConfigurationError` for a service name that MDP does not allow, and for a capacity above
    1 in a dialect whose workers "handle at most one request a time" (18/MDP, "Architecture").
    """

    _kind: ClassVar = "a worker"

    def __init__(
        self,
        dialect: Dialect,
        service: str,
        policy: WorkerPolicy | None = None,
        *,
        rng: Rng,
        instance: bytes = NO_INSTANCE,
        chronicle: Chronicle | None = None,
    ) -> None:
        self._dialect = dialect
        self._service = service
        self._name = _check_name(service)
        self._policy = policy = policy or WorkerPolicy()
        if policy.capacity > 1 and not dialect.has_ids:
            raise ConfigurationError(
                f"a worker of MDP {dialect.version} takes one request at a time,"
                f" not {policy.capacity}"
            )
        self.jobs: Jobs[Job] = Jobs(
            service,
            JobObserver(notes=policy.notes)
            if chronicle is None
            else WorkerRecorder(chronicle, instance, service, notes=policy.notes),
            kind=self._kind,
        )
        super().__init__()
        self._instance = instance
        self._peer: Peer | None = None
        self._dialling = False
        self._redial = Redial(rng)
        self._redial.at = 0.0
        self._was_heard = False  # the broker, on this connection
        self.refusal = ""  # why the broker does not accept this worker
        self._liveness = Liveness(policy.heartbeat, 0.0)
        self._beat_at = inf
        self._by_id: dict[int, Job] = {}  # jobs of this connection, by dispatch id
        self._sweep = Sweep()
        self._serial = 0  # dispatch ids for dialects without
        self._linger_until = -inf

    def _handlers(self) -> Handlers:
        return {
            Received: self._received,
            Finished: self._finished,
            Produced: self._produced,
            Progressed: self._progressed,
            Started: self.jobs.started,
            Wake: self._woken,
            PeerJoined: self._joined,
            PeerLost: self._lost,
            # Output to a broker that does not read is bounded by the requests that it has sent.
            PeerBlocked: ignore_input,
            PeerWritable: ignore_input,
            engine.Drain: self._drained,
        }

    # --- the engine's contract --------------------------------------------------------------------
    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        at = self._sweep.at
        if self._beat_at < at:
            at = self._beat_at
        if self._redial.at < at:
            at = self._redial.at
        flush_at = self.jobs.observer.flush_at
        if flush_at < at and not self._stopped:
            at = flush_at
        if self._draining and not self._stopped and not self.jobs:
            at = min(at, self._linger_until)
        return None if at == inf else at

    @property
    def is_answered(self) -> bool:
        """Whether the broker has answered READY; any message from it counts."""
        return self._peer is not None and self._was_heard

    def snapshot(self) -> SimpleNamespace:
        """Return the worker's state. `running` and `abandoned` count requests without a FINAL."""
        abandoned = self.jobs.abandoned
        return SimpleNamespace(
            service=self._service,
            connected=self._peer is not None,
            dialling=self._dialling,
            running=len(self.jobs) - abandoned,
            abandoned=abandoned,
            draining=self._draining,
            stopped=self._stopped,
        )

    # --- from the broker --------------------------------------------------------------------------
    def _received(self, event: Received, now: float) -> None:
        peer, messages = event.peer, event.messages
        if peer is not self._peer:
            return  # of an earlier connection
        self._liveness.heard_at = now
        decode = self._dialect.decode_to_worker
        try:
            for message in messages:
                command = decode(message)
                if isinstance(command, WorkerRequest):
                    self._request(command, now)
                elif isinstance(command, Disconnect):
                    self._disconnected(command.reason.decode(errors="replace"), now)
                    return
                else:
                    self._received_other(command, now)
        except RemoteViolation as violation:
            reason = f"the broker broke the protocol: {violation}"
            self._out.append(Warn("malformed", reason))
            self._send_disconnect()
            self._drop_connection(reason, engine.Cause.FAULTY, now)
            return
        self._redial.fruitless = 0
        self._was_heard = True
        self.refusal = ""

    def _request(self, command: WorkerRequest, now: float) -> None:
        dispatch_id, timeout_ms, attempt = command.dispatch_id, command.timeout_ms, command.attempt
        jobs = self.jobs
        if len(jobs) >= self._policy.capacity:  # [worker-capacity]
            raise RemoteViolation(f"received a request beyond the capacity of {len(jobs)}")
        if not self._dialect.has_ids:
            dispatch_id = self._serial = self._serial + 1
        elif dispatch_id in self._by_id:  # [worker-dispatch]
            raise RemoteViolation(f"the dispatch id {dispatch_id} is already in use")
        remaining_s = timeout_ms / 1000 if timeout_ms else None
        due_at = inf if remaining_s is None else now + remaining_s
        lease_until = now + self._policy.lease_s
        job = Job(dispatch_id, command.address, command.call_id, attempt, due_at, lease_until)
        self._by_id[dispatch_id] = job
        if due_at < self._sweep.at:
            self._sweep.at = due_at
        request = Request(self._service, command.body, attempt, remaining_s, command.key)
        if command.principal:
            request.principal = command.principal.decode(errors="replace")
        if command.trace:
            request.trace = command.trace
        jobs.deliver(job, None, request, self._out, now, attempt=attempt)

    def _received_other(self, command: ToWorker, now: float) -> None:
        if isinstance(command, WorkerHeartbeat):
            if self._dialect.has_ids:  # [worker-heartbeat]: the longer interval holds
                self._liveness.agree(command.interval_ms)
        elif isinstance(command, WorkerCancel):
            job = self._by_id.get(command.dispatch_id)
            if job is not None:  # else its FINAL was sent before the CANCEL arrived
                self._abandon(job, "the caller cancelled the request", now)

    # --- from handlers ----------------------------------------------------------------------------
    def _produced(self, event: Produced, now: float) -> None:
        job: Job = event.token
        if job not in self.jobs or job.abandoned:
            return
        job.lease_until = now + self._policy.lease_s
        frames = event.frames or (b"",)
        if not self._dialect.has_partials:
            self.jobs.join(Produced(job, frames), self._out, now)
            return
        self.jobs.observer.partial(job, frames, now)
        self._say(self._dialect.encode(WorkerPartial(job.address, [*frames], job.dispatch_id)), now)

    def _finished(self, event: Finished, now: float) -> None:
        job: Job = event.token
        if job.abandoned:  # [worker-cancel]
            event = Finished(job, (job.abandoned.encode(),), event.status)
        ended = self.jobs.finish(event, self._out, now)  # [status-worker]
        if ended is None:
            return
        del self._by_id[job.dispatch_id]
        status, frames = ended[1], event.frames
        if status and not self._dialect.has_ids:
            self._fail_silently(frames, now)
            return
        if job.joined:
            frames = (*job.joined, *frames)
        message = self._dialect.worker_final(job.address, frames or (b"",), job.dispatch_id, status)
        self._say(message, now)

    def _fail_silently(self, reason: Sequence[bytes], now: float) -> None:
        """End a failed request without a reply, in a dialect without negative replies.

        An error text in a FINAL would look like a result. So the worker disconnects, as if it had
        crashed, from which brokers recover (18/MDP, "Reliability").
        """
        text = reason_of(reason)
        why = f"a request failed, and MDP {self._dialect.version} has no error replies"
        self._leave(why, f"{why}: {text}", now)

    def _leave(self, reason: str, warning: str, now: float) -> None:
        """Disconnect, so that the broker redelivers the running requests to other workers."""
        self._out.append(Warn("failed request", warning))
        self._send_disconnect()
        self._drop_connection(reason, engine.Cause.DONE, now)

    def _progressed(self, event: Progressed, now: float) -> None:
        job: Job = event.token
        lease_s = self._policy.lease_s
        if not lease_s or job not in self.jobs or job.abandoned:
            return
        job.lease_until = now + (event.extend_s or lease_s)
        if not self._dialect.has_ids:
            return
        if event.extend_s or now - job.vouched_at >= lease_s / _PROGRESS_PER_LEASE_MAX:
            job.vouched_at = now
            extend_ms = min(U32_MAX, round(event.extend_s * 1000))
            self._say(self._dialect.encode(Progress(job.dispatch_id, extend_ms)), now)

    def _abandon(self, job: Job, reason: str, now: float) -> None:
        if not job.abandoned:
            job.due_at = inf
            self.jobs.abandon(job, reason, self._out, now)

    # --- the connection ---------------------------------------------------------------------------
    def _say(self, message: Sequence[bytes], now: float) -> None:
        self._liveness.spoke_at = now
        self._out.append(Send(self._peer, message))

    def _send_disconnect(self) -> None:
        self._out.append(Send(self._peer, self._dialect.encode(Disconnect())))

    def _joined(self, event: PeerJoined, now: float) -> None:
        if self._draining or self._peer is not None:
            why = "this connection is not needed"
            self._out.append(engine.Disconnect(event.peer, why, engine.Cause.DONE))
            return
        policy = self._policy
        self._dialling = False
        self._peer = event.peer
        self._was_heard = False
        self._redial.joined(now)
        self._liveness = Liveness(policy.heartbeat, now)
        self._beat_at = self._liveness.next_at()
        interval_ms = policy.heartbeat.interval_ms
        lease_ms = min(U32_MAX, round(policy.lease_s * 1000))
        ready = self._dialect.encode(
            Ready(self._name, policy.capacity, interval_ms, lease_ms, self._instance)
        )
        self._say(ready, now)

    def _disconnected(self, reason: str, now: float) -> None:
        """Handle DISCONNECT; its reason stays in `refusal` until the broker accepts the worker."""
        if reason:
            self.refusal = reason
        why = f": {reason}" if reason else ""
        self._drop_connection(f"the broker disconnected{why}", engine.Cause.DONE, now)

    def _lost(self, event: PeerLost, now: float) -> None:
        if event.peer is self._peer and not self._stopped:
            self._connection_lost(event.reason or "the connection was closed", now)

    def _drop_connection(self, reason: str, cause: engine.Cause, now: float) -> None:
        self._out.append(engine.Disconnect(self._peer, reason, cause))
        self._connection_lost(reason, now)

    def _connection_lost(self, reason: str, now: float) -> None:
        """Handle the loss of the broker: abandon running requests, and reconnect."""
        self._peer = None
        self._beat_at = self._sweep.at = inf
        for job in self.jobs:
            self._abandon(job, reason, now)
        self.jobs.clear()
        self._by_id.clear()
        if not self._draining:
            self._redial.plan(now)
            self._maybe_connect(now)

    def _maybe_connect(self, now: float) -> None:
        if self._redial.is_due(now) and not self._dialling and self._peer is None:
            self._dialling = True
            self._out.append(Connect())

    # --- time -------------------------------------------------------------------------------------
    def _woken(self, event: Wake, now: float) -> None:
        self.jobs.woken(event, now)
        if now >= self._sweep.at:
            for job in self._sweep.due(self.jobs, now):
                self._abandon(job, "the deadline passed", now)
        if now >= self._beat_at:
            self._beat(now)
        self._maybe_connect(now)

    def _beat(self, now: float) -> None:
        """Disconnect from a silent broker; send a heartbeat if one is due."""
        liveness = self._liveness
        liveness.excuse(absence_s(self._beat_at, now, liveness.interval_s), now)
        if now >= liveness.gone_at():
            did = f"for {now - liveness.heard_at:.2f} s"
            if not self._was_heard:
                did = "since connecting, not even a reply to READY"
            why = f"nothing came from the broker {did}"
            self._drop_connection(why, engine.Cause.SILENT, now)
            return
        if not self._vouches(now):
            why = (
                f"a handler exceeded its lease, and MDP {self._dialect.version} cannot report that"
            )
            self._leave(
                why,
                f"{why}: the worker disconnects, so that the broker redelivers the request,"
                " and registers again",
                now,
            )
            return
        if now >= liveness.speak_at():
            self._say(
                self._dialect.encode(WorkerHeartbeat(self._policy.heartbeat.interval_ms)), now
            )
        self._beat_at = liveness.next_at()

    def _vouches(self, now: float) -> bool:
        """Whether no handler has exceeded its lease.

        With dispatch ids the broker checks the lease of each handler ([worker-lease]). Without, the
        worker must disconnect, so that the broker redelivers its request: brokers wait far longer
        for busy workers than for idle ones.
        """
        if self._dialect.has_ids or not self._policy.lease_s:
            return True
        return all(now < job.lease_until for job in self.jobs)

    # --- drain ------------------------------------------------------------------------------------
    def _drained(self, _event: engine.Drain, now: float) -> None:
        if self._draining:
            return
        self._draining = True
        self._redial.at = inf
        if self._peer is not None and self._dialect.has_ids:  # [worker-drain]
            self._say(self._dialect.encode(DrainNotice()), now)
            self._linger_until = now + self._policy.drain_linger_s

    def _maybe_stop(self, now: float) -> None:
        """Disconnect once no request is running, and none can be in flight any more."""
        if self._stopped or self.jobs or (self._peer is not None and now < self._linger_until):
            return
        self._stopped = True
        self._beat_at = self._sweep.at = inf
        if self._peer is not None:
            self._send_disconnect()
            why = "the worker has drained"
            self._out.append(engine.Disconnect(self._peer, why, engine.Cause.DONE))
            self._peer = None
        self._out.append(Stopped())


def _check_name(service: str) -> bytes:
    name = service.encode()
    try:
        check_service_name(name)
    except RemoteViolation as violation:
        raise ConfigurationError(str(violation)) from violation
    if name.startswith(MMI_PREFIX):  # 8/MMI
        raise ConfigurationError(
            f"{service!r}: names that start with mmi. are reserved for the broker"
        )
    return name
