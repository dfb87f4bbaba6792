"""Titanic: stores requests for services that may be unavailable, dispatches them, stores replies.

    titanic.request ──► Store SUBMITTED ──Stored──► 200, ticket
                                                     │ Submit (as a client of the services)
    titanic.reply ◄── 200, body ◄──Stored── Store ANSWERED ◄── Answered
    titanic.close ──► Store CLOSED ──Stored──► 200

It is a worker to its clients (`Asked` in, `Finished` out) and a client of the services (`Submit`
out, `Answered` in), and acknowledges nothing that is not on the disk (`Store`, `Stored`). The
composition routes each effect to an engine, the shell or the store. Inputs: `Asked`, `Answered`
(`inputs`), `Stored`, `StoreFailed`, `Loaded`, `LoadFailed`, `Drain`, `Wake`; effects: `Finished`,
`Submit`, `Cancel`, `Store`, `Load`, `Note`, `Warn`, `Stopped`.

Each token of a `Submit` must be answered once by `Answered`; after a `Cancel`, that is optional. A
`Submit` for `titanic.replicate` goes to the replica (see `replication`), any other to the broker.

Sources: 9/TSP; the Guide, "Disconnected Reliability (Titanic Pattern)".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from requite import engine
from requite.core.timers import Timers
from requite.engine import (
    Cancel,
    Drain,
    Effect,
    Input,
    Loaded,
    LoadFailed,
    Rng,
    Stopped,
    Stored,
    StoreFailed,
    Wake,
)
from requite.errors import (
    LocalViolation,
    LogCorrupt,
    LogFailed,
    LogGone,
    RemoteViolation,
    StorageError,
)
from requite.protocols.titanic import records
from requite.protocols.titanic.administration import Administration
from requite.protocols.titanic.attempts import IN_DOUBT, STORE_AGAIN
from requite.protocols.titanic.collecting import EXPIRE, KEYS, Collecting
from requite.protocols.titanic.copying import COPY, Copying
from requite.protocols.titanic.core import Core, TitanicSnapshot
from requite.protocols.titanic.erasing import Erasing
from requite.protocols.titanic.handing import HAND_OUT
from requite.protocols.titanic.inputs import Answered, Asked
from requite.protocols.titanic.intake import Intake
from requite.protocols.titanic.policy import TitanicPolicy
from requite.protocols.titanic.requests import (
    ANSWERED,
    POISONED,
    SENT,
    WAITING,
    DurableRequest,
    Lane,
    Recovered,
    RecoveredRequest,
)
from requite.protocols.titanic.standby import Replicated, Standby
from requite.protocols.titanic.tickets import (
    Entries,
    ForDispatch,
    ForRepeat,
    ForReplica,
    ForReply,
    Submissions,
)
from requite.protocols.titanic.wire import (
    CLOSE,
    ERASE,
    ERROR,
    LIST,
    PROMOTE,
    REPLICATE,
    REPLY,
    REQUEST,
    RETRY,
    SHOW,
    STATS,
    UNKNOWN,
)

__all__ = ["TitanicEngine", "TitanicSnapshot"]

_BEGIN: Final = "begin"
_DISK: Final = "the disk has failed"
_DRAIN: Final = "drain"
_DRAINING: Final = "draining"

_STORED_AS: Final[dict[type, str]] = {
    Submissions: "requests",
    Entries: "replies and closing",
    Replicated: "copies",
}

Service = Callable[[Any, Sequence[bytes], bytes, float], None]


class TitanicEngine:
    """The engine; see the module.

    `rng` returns random numbers for pauses, `new_uuid` 16 random bytes. `recovered` is the content
    of the store when it was opened. `epoch_s` is the wall time (seconds since 1970) at instant 0 of
    the monotonic clock. `facts` returns additional entries for `titanic.stats`.
    """

    def __init__(
        self,
        policy: TitanicPolicy | None = None,
        *,
        rng: Rng,
        new_uuid: Callable[[], bytes],
        recovered: Recovered | None = None,
        epoch_s: float = 0.0,
        facts: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self.policy = policy = policy or TitanicPolicy()
        recovered = recovered or Recovered()
        self._core = core = Core(policy, rng, new_uuid, epoch_s)
        self._copying = Copying(core, recovered.log_id, recovered.next_number)
        self._intake = Intake(core, self._copying)
        self._collecting = Collecting(core, self._copying)
        self._attempts = self._collecting.attempts
        self._standby = Standby(core, self._collecting, self._copying)
        self._administration = administration = Administration(
            core, self._attempts, self.snapshot, facts
        )
        self._draining = self._stopped = False
        self._services: dict[str, Service] = {
            REPLY: self._collecting.reply,
            CLOSE: self._collecting.close,
            LIST: administration.list_page,
            STATS: administration.stats,
            SHOW: administration.show,
            RETRY: administration.retry,
            ERASE: Erasing(core, self._collecting).erase,
            PROMOTE: self._standby.promote,
            REPLICATE: self._standby.replicate,
        }
        self._inputs: dict[type, Callable[[Any, float], None]] = {
            Answered: self._outcome,
            Stored: self._stored,
            StoreFailed: self._store_failed,
            Loaded: self._loaded,
            LoadFailed: self._load_failed,
            Drain: self._drain,
            Wake: self._woken,
        }
        self._timed: dict[object, Callable[[float], None]] = {
            STORE_AGAIN: self._attempts.store_again,
            EXPIRE: self._collecting.expire,
            KEYS: self._collecting.expire_keys,
            HAND_OUT: self._collecting.handing.go_on,
            COPY: self._copying.due,
            _DRAIN: self._drain_timed_out,
        }
        self._begin(recovered)

    # --- the engine's contract --------------------------------------------------------------------
    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`. The records of one batch of inputs leave as one
        `Store` for all submissions, and one for the rest."""
        self._core.now_us = int((now + self._core.epoch_s) * 1e6)
        ask = self._intake.ask
        refused: LocalViolation | None = None
        for event in events:
            if event.__class__ is Asked:
                token, service, frames, key, owner, trace = event
                if service == REQUEST:
                    ask(token, frames, key, owner, now, trace)
                else:
                    self._other_service(token, service, frames, owner, now)
                continue
            handler = self._inputs.get(event.__class__)
            if handler is None:
                refused = refused or LocalViolation(f"Titanic does not handle the input {event!r}")
                continue
            try:
                handler(event, now)
            except LocalViolation as violation:
                refused = refused or violation
        if refused is not None:
            raise refused
        return self._end_turn(now)

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`; 0 until the first `Wake`, which starts it."""
        return self._core.timers.next()

    def snapshot(self) -> TitanicSnapshot:
        """Return counts and state."""
        core, dispatcher = self._core, self._core.dispatcher
        requests = len(core.register)
        return TitanicSnapshot(
            requests=requests,
            waiting=requests - dispatcher.sent - core.answered - core.poisoned,
            sent=dispatcher.sent,
            answered=core.answered,
            poisoned=core.poisoned,
            storing=core.storing,
            held=self._copying.held,
            keys=core.register.keys,
            cached_bytes=core.cache.size,
            lanes=len(dispatcher.lanes),
            timers=len(core.timers),
            replica=core.is_replica,
            replicating=self._copying.view,
            behind=self._copying.behind,
            draining=self._draining,
            stopped=self._stopped,
            epoch=core.epoch,
            superseded=core.is_superseded,
            trouble=core.trouble.text,
            failure="" if core.failure is None else str(core.failure),
        )

    @property
    def failure(self) -> StorageError | None:
        """The error that stopped the store. Until the log is reopened, by `reopened` or a new
        process, everything but collecting replies is refused (500)."""
        return self._core.failure

    def _end_turn(self, now: float) -> list[Effect]:
        """Emit `Store` for the records of this turn, dispatch, and return the effects."""
        core = self._core
        if core.submissions:
            core.storing += 1
            core.out.append(engine.Store(Submissions(core.submissions), core.submitted))
            core.submissions, core.submitted = [], []
        core.dispatcher.pump(now)
        if core.entries:
            core.storing += 1
            core.out.append(engine.Store(Entries(core.entries), core.entered))
            core.entries, core.entered = [], []
        self._collecting.handing.end_turn(now)
        if self._draining:
            self._maybe_stop()
        out, core.out = core.out, []
        return out

    # --- inputs -----------------------------------------------------------------------------------
    def _other_service(
        self, token: Any, service: str, frames: Sequence[bytes], owner: bytes, now: float
    ) -> None:
        handler = self._services.get(service)
        if handler is None:
            self._core.refuse(token, UNKNOWN, f"Titanic has no service {service}")
        else:
            handler(token, frames, owner, now)

    def _outcome(self, event: Answered, now: float) -> None:
        """Handle the outcome of an attempt, a service check or a batch for the replica."""
        token, outcome = event
        if token.__class__ is DurableRequest:
            self._attempts.attempt_ended(token, outcome, now)
        elif token.__class__ is Lane:
            self._core.dispatcher.service_checked(token, outcome, now)
        elif token is self._copying:
            self._copying.answered(outcome, now)
        else:
            raise LocalViolation(f"no submission has the token {token!r}")

    def _stored(self, event: Stored, now: float) -> None:
        self._core.storing -= 1
        ticket, locations = event.ticket, event.positions
        if self._core.trouble:
            self._core.trouble.works(_STORED_AS[ticket.__class__], now)
        if ticket.__class__ is Submissions:
            self._intake.stored(ticket.requests, locations)
        elif ticket.__class__ is Replicated:
            self._standby.stored(ticket, locations, now)
        else:
            for entry, location in zip(ticket.entries, locations, strict=True):
                entry.stored(entry.what, location, now)
        self._copying.grew(locations)

    def _store_failed(self, event: StoreFailed, now: float) -> None:
        self._core.storing -= 1
        ticket, error = event.ticket, event.error
        what = _STORED_AS[ticket.__class__]
        self._core.trouble.failed(what, f"not stored: {error}", now, type(error).__name__)
        if isinstance(error, LogFailed):
            self._disk_failed(error)
        if ticket.__class__ is Submissions:
            self._intake.failed(ticket.requests, error, now)
        elif ticket.__class__ is Replicated:
            self._standby.failed(ticket, error)
        else:
            for entry in ticket.entries:
                entry.failed(entry.what, error, now)

    def _disk_failed(self, error: LogFailed) -> None:
        """Accept and dispatch nothing: replies could not be stored."""
        self._core.failure = error
        self._core.halt(_DISK)

    def reopened(self, recovered: Recovered, now: float) -> None:
        """Continue with a store that was reopened on the same log after a `failure`.

        The log has all requests known here, except those that were closed. It may also have
        requests whose storing was reported as failed. Effects leave with the next input.
        """
        core = self._core
        missing = {request.uuid: request for request in core.register}
        for found in recovered.requests:
            request = core.register.find(found.uuid)
            if request is None:
                self._take_over(found)
                continue
            del missing[found.uuid]
            request.location = found.location
            if request.reply_location is not None:
                request.reply_location = found.reply_location
        self._collecting.missing(list(missing.values()), now)
        self._copying.reopened(recovered.next_number)
        core.failure = None
        core.halt(_DISK, False)

    # --- loaded records ---------------------------------------------------------------------------
    def _loaded(self, event: Loaded, now: float) -> None:
        ticket, payload = event.ticket, event.payload
        if ticket.__class__ is ForReplica:
            self._copying.loaded(payload, now)
            return
        self._has_come_back(ticket)
        try:
            entry = records.decode(payload)
        except RemoteViolation as violation:
            self._unreadable(ticket, str(violation), now)
            return
        if isinstance(entry, records.Submitted | records.Answered):
            self._read(ticket, entry, now)
        else:
            self._unreadable(ticket, "another record is in its place", now)

    def _read(self, ticket: Any, entry: records.Submitted | records.Answered, now: float) -> None:
        frames = list(entry.frames)
        if ticket.__class__ is ForDispatch:
            self._dispatch(ticket.request, frames, now)
        elif ticket.__class__ is ForReply:
            self._collecting.loaded(ticket.token, entry)
        elif ticket.__class__ is ForRepeat:
            self._intake.loaded(ticket, frames)
        else:
            self._administration.loaded(ticket, frames)

    def _dispatch(self, request: DurableRequest, frames: list[bytes], now: float) -> None:
        if request.state is SENT:
            core = self._core
            request.frames = frames
            core.dispatcher.submit(request, core.lane_of(request), now)
            request.frames = None
            core.cache.maybe_keep(request, frames)

    def _load_failed(self, event: LoadFailed, now: float) -> None:
        ticket, error = event.ticket, event.error
        if ticket.__class__ is ForReplica:
            self._copying.load_failed(error, now)
            return
        self._has_come_back(ticket)
        is_damaged = isinstance(error, LogCorrupt | LogGone)
        self._unreadable(ticket, str(error), now, is_damaged=is_damaged)

    def _has_come_back(self, ticket: Any) -> None:
        if ticket.__class__ is not ForDispatch:  # which counts as sent
            self._core.storing -= 1
        if ticket.__class__ is ForReply:
            self._collecting.handing.came_back(ticket)

    def _unreadable(self, ticket: Any, reason: str, now: float, *, is_damaged: bool = True) -> None:
        """Handle a record that cannot be read: poison or requeue its request, or refuse (500)."""
        core, request = self._core, ticket.request
        core.warn("record damaged" if is_damaged else "disk", f"{request.ticket}: {reason}")
        if ticket.__class__ is ForDispatch:
            if request.state is SENT:
                lane = core.lane_of(request)
                core.dispatcher.free(request, lane)
                if is_damaged:
                    self._attempts.poison(request, f"the request cannot be read: {reason}", now)
                else:  # the disk may work again
                    core.dispatcher.put_back(request, lane, now)
            return
        if ticket.__class__ is ForRepeat and is_damaged:  # it cannot be compared any more
            self._intake.loaded(ticket, ticket.body)
            return
        if ticket.__class__ is ForReply and is_damaged and request.state is ANSWERED:
            self._attempts.lost_reply(request, now)
        core.refuse(ticket.token, ERROR, f"cannot be read: {reason}")

    # --- time -------------------------------------------------------------------------------------
    def _woken(self, _event: Wake, now: float) -> None:
        core = self._core
        for name in core.timers.due(now):
            if name.__class__ is DurableRequest:
                if name.state is WAITING:
                    core.dispatcher.enqueue(name, core.lane_of(name))
            elif name.__class__ is Lane:
                core.dispatcher.due(name, now)
            else:
                self._timed[name](now)

    # --- start ------------------------------------------------------------------------------------
    def _begin(self, recovered: Recovered) -> None:
        """Restore the state of an earlier process."""
        core = self._core
        core.is_damaged = recovered.is_damaged
        self._standby.begin(recovered.role)
        found = [(self._take_over(each), each.in_doubt) for each in recovered.requests]
        ended = [request for request, _ in found if request.state is not WAITING]
        in_doubt = [request for request, doubt in found if doubt and request.state is WAITING]
        if in_doubt:
            core.halt(IN_DOUBT)
        self._timed[_BEGIN] = lambda now: self._started(ended, in_doubt, now)
        for key in sorted(recovered.closed_keys, key=lambda one: one.until_us):
            core.register.keep_key(key, key.until_us / 1e6 - core.epoch_s)
        if recovered.closed_keys:
            core.timers.set(KEYS, 0.0)
        self._copying.begin()
        core.timers.set(_BEGIN, 0.0)

    def _take_over(self, found: RecoveredRequest) -> DurableRequest:
        """Restore a request."""
        core = self._core
        lane = core.dispatcher.stored_lane(found.service)
        owner = core.register.owner(found.owner)
        request = DurableRequest(found.uuid, owner, lane, found.key, found.submitted_us)
        request.size, request.location = found.size, found.location
        request.trace = found.trace
        request.attempts, request.reason = found.attempts, found.reason
        request.answered_us = found.answered_us
        request.reply_size, request.reply_location = found.reply_size, found.reply_location
        request.is_negative = found.is_negative
        core.register.add(request)
        lane.open += 1
        if found.reply_location is not None:
            request.state = ANSWERED
            core.answered += 1
        elif found.poisoned or found.location is None:
            request.state = POISONED
            request.reason = found.reason or "the request is damaged in the log"
            core.poisoned += 1
        else:
            core.dispatcher.enqueue(request, lane)
            return request
        core.leave_lane(request, 0.0)
        return request

    def _started(
        self, ended: list[DurableRequest], in_doubt: list[DurableRequest], now: float
    ) -> None:
        """Begin the time until ended requests expire, and poison requests that may have been
        closed; an operator must decide about them.

        The time begins anew at each start: the log has only times of the wall clock, which may have
        been set since they were written, and would let a reply expire early.
        """
        del self._timed[_BEGIN]  # else it would keep all requests that had ended, even once closed
        for request in ended:
            self._collecting.expire_later(request, now)
        waiting = [request for request in in_doubt if request.state is WAITING]
        if waiting:
            self._attempts.set_aside(waiting, IN_DOUBT, now)
        self._core.halt(IN_DOUBT, False)

    # --- drain ------------------------------------------------------------------------------------
    def _drain(self, _event: Drain, now: float) -> None:
        """Accept and dispatch nothing more; wait for attempts in flight."""
        if not self._draining:
            self._draining = self._intake.is_closed = True
            self._core.halt(_DRAINING)
            self._core.timers.set(_DRAIN, now + self.policy.drain_timeout_s)

    def _drain_timed_out(self, _now: float) -> None:
        """Stop waiting: cancel attempts in flight. The next process dispatches them again."""
        core = self._core
        for request in core.register:
            if request.state is SENT:
                if request.asked is not None:
                    core.emit(Cancel(request))
                lane = core.lane_of(request)
                core.dispatcher.free(request, lane)
                core.dispatcher.enqueue(request, lane)
        self._stop()

    def _maybe_stop(self) -> None:
        core = self._core
        is_handed_out = self._collecting.handing.is_idle
        is_idle = self._attempts.is_idle and self._copying.is_done and is_handed_out
        if is_idle and not (core.dispatcher.sent or core.storing):
            self._stop()

    def _stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._core.timers = Timers()
            self._core.out.append(Stopped())
