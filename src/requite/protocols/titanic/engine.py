"""Titanic: takes requests for services that may be there later, and keeps them and their replies.

    titanic.request ──► Store SUBMITTED ──Stored──► 200, ticket
                                                     │ Submit (as a client of the services)
    titanic.reply ◄── 200, body ◄──Stored── Store ANSWERED ◄── Answered
    titanic.close ──► Store CLOSED ──Stored──► 200

It is a worker to its clients (`Asked` in, `Finished` out), a client of the services behind it
(`Submit` out, `Answered` in), and speaks of nothing that is not on the disk (`Store`, `Stored`).
Whoever composes it hands each effect to the right engine, shell or store. Inputs: `Asked`,
`Answered` (`inputs`), `Stored`, `StoreFailed`, `Loaded`, `LoadFailed`, `Drain`, `Wake`; effects:
`Finished`, `Submit`, `Cancel`, `Store`, `Load`, `Note`, `Warn`, `Stopped`.

The token of a `Submit` is this engine's; each has to come back once with `Answered`, but after a
`Cancel` need not. A `Submit` for `titanic.replicate` is for the replica (see `replication`), any
other for the broker.

Sources: 9/TSP; the Guide, "Disconnected Reliability (Titanic Pattern)".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from requite import engine
from requite.engine import (
    Cancel,
    Drain,
    Effect,
    Finished,
    Input,
    Load,
    Loaded,
    LoadFailed,
    Note,
    Rng,
    Stopped,
    Stored,
    StoreFailed,
    Wake,
    Warn,
)
from requite.errors import (
    CallError,
    LocalViolation,
    LogCorrupt,
    LogFailed,
    LogGone,
    NoService,
    RemoteViolation,
    StorageError,
)
from requite.protocols.titanic import listing, records
from requite.protocols.titanic.cache import Cache
from requite.protocols.titanic.dispatch import Dispatcher, Lane
from requite.protocols.titanic.inputs import Answered, Asked
from requite.protocols.titanic.policy import TitanicPolicy
from requite.protocols.titanic.requests import (
    ANSWERED,
    CLOSED,
    KEEPING,
    POISONED,
    SENT,
    WAITING,
    Kept,
    Recovered,
    RecoveredRequest,
    Register,
)
from requite.protocols.titanic.tickets import (
    Entries,
    Entry,
    ForDispatch,
    ForReply,
    ForShow,
    Submissions,
)
from requite.protocols.titanic.wire import (
    CLOSE,
    ERROR,
    LIST,
    OK,
    PENDING,
    REPLY,
    REQUEST,
    RETRY,
    SHOW,
    STATS,
    UNKNOWN,
    decode_ticket,
    encode_ticket,
    refusal,
)
from requite.protocols.titanic.wire import POISONED as POISONED_TEXT
from requite.request import Reply, Status
from requite.timers import Timers

RECORD_SIZE_MAX: Final = 16 * 1024 * 1024
"""What a log takes as one record."""

_BEGIN: Final = "begin"
_STORE_AGAIN: Final = "store again"
_EXPIRE: Final = "expire"
_KEYS: Final = "keys"
_DRAIN: Final = "drain"
_new: Final = tuple.__new__  # half the price of calling a NamedTuple's class, on the hot path


class TitanicSnapshot(NamedTuple):
    """What Titanic holds. `requests` are all that are kept; `waiting`, `sent`, `answered` and
    `poisoned` some of them; `storing` counts what the disk has not confirmed; `timers` and `lanes`
    are tables (I9)."""

    requests: int
    waiting: int
    sent: int
    answered: int
    poisoned: int
    storing: int
    keys: int
    cached_bytes: int
    lanes: int
    timers: int
    replica: bool
    draining: bool
    stopped: bool


class TitanicEngine:
    """See the module.

    `rng` gives randomness for pauses, `new_uuid` 16 random bytes. `recovered` is what the store
    found when it was opened. `epoch_s` is the wall time (seconds since 1970) at which the monotonic
    clock, whose instants are fed with inputs, was 0.

    `failure`: why the store takes nothing any more, after which all that is asked for is refused
    (500), but for replies: the log has to be opened again, by a new process.
    """

    def __init__(
        self,
        policy: TitanicPolicy | None = None,
        *,
        rng: Rng,
        new_uuid: Callable[[], bytes],
        recovered: Recovered | None = None,
        epoch_s: float = 0.0,
    ) -> None:
        self.policy = policy = policy or TitanicPolicy()
        self._rng = rng
        self._new_uuid = new_uuid
        self._epoch_s = epoch_s
        self._now_us = 0
        self._out: list[Effect] = []
        self._timers: Timers[Any] = Timers()
        self._register = Register()
        self._cache = Cache(policy.cache_bytes_max)
        self._dispatcher = Dispatcher(policy, rng, self._timers, self._emit)
        self._submissions: list[Kept] = []  # of this turn
        self._submitted: list[bytes] = []  # their records
        self._entries: list[Entry] = []
        self._entered: list[bytes] = []
        self._storing = 0  # how many `Store` and `Load` have not come back
        self._unstored: dict[Kept, None] = {}  # whose reply the disk did not take
        self._expiring: deque[tuple[float, Kept]] = deque()
        self._answered = self._poisoned = 0
        self.failure: StorageError | None = None  # why the store takes nothing any more
        self._draining = self._stopped = False
        self._services: dict[str, Callable[[Any, Sequence[bytes], float], None]] = {
            REPLY: self._reply,
            CLOSE: self._close,
            LIST: self._list,
            STATS: self._stats,
            SHOW: self._show,
            RETRY: self._retry,
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
        self._begin(recovered or Recovered())

    # --- the engine's contract --------------------------------------------------------------------
    def handle(self, event: Input, now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`."""
        return self.handle_all((event,), now)

    def handle_all(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.BulkEngine.handle_all`: what these inputs want stored leaves as one
        `Store` for all submissions, and one for the rest."""
        self._now_us = int((now + self._epoch_s) * 1e6)
        for event in events:
            if event.__class__ is Asked:
                token, service, frames, key = event
                if service == REQUEST:
                    self._request(token, frames, key, now)
                else:
                    self._other_service(token, service, frames, now)
            else:
                handler = self._inputs.get(event.__class__)
                if handler is None:
                    raise LocalViolation(f"Titanic has no use for {event!r}")
                handler(event, now)
        return self._end_turn(now)

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`; 0 until the first input, so that a shell that
        honours deadlines starts it."""
        return self._timers.next()

    def snapshot(self) -> TitanicSnapshot:
        """Return the tables, as counts."""
        dispatcher, kept = self._dispatcher, len(self._register)
        return TitanicSnapshot(
            kept,
            kept - dispatcher.sent - self._answered - self._poisoned,
            dispatcher.sent,
            self._answered,
            self._poisoned,
            self._storing,
            self._register.keys,
            self._cache.size,
            len(dispatcher.lanes),
            len(self._timers),
            dispatcher.halted,
            self._draining,
            self._stopped,
        )

    # --- a turn -----------------------------------------------------------------------------------
    def _emit(self, effect: Effect) -> None:
        self._out.append(effect)

    def _end_turn(self, now: float) -> list[Effect]:
        """Ask for what is to be stored, send what can be sent, and hand the effects over."""
        if self._submissions:
            self._storing += 1
            self._out.append(engine.Store(Submissions(self._submissions), self._submitted))
            self._submissions, self._submitted = [], []
        self._dispatcher.pump(now)
        if self._entries:
            self._storing += 1
            self._out.append(engine.Store(Entries(self._entries), self._entered))
            self._entries, self._entered = [], []
        if self._draining:
            self._maybe_stop()
        out, self._out = self._out, []
        return out

    def _enter(
        self,
        record: bytes,
        what: Any,
        stored: Callable[[Any, Any, float], None],
        failed: Callable[[Any, StorageError, float], None],
    ) -> None:
        """Have a record stored with the others of this turn."""
        self._entered.append(record)
        self._entries.append(Entry(what, stored, failed))

    def _answer(self, token: Any, *frames: bytes) -> None:
        self._out.append(_new(Finished, (token, frames, Status.OK)))

    def _refuse(self, token: Any, code: int, text: str) -> None:
        self._out.append(Finished(token, (refusal(code, text),)))

    # --- titanic.request --------------------------------------------------------------------------
    def _request(self, token: Any, frames: Sequence[bytes], key: bytes, now: float) -> None:
        """Accept a request, unless its key says that it was accepted before."""
        if key and self._is_known(token, key):
            return
        refused = self._refusal()
        if refused:
            self._refuse(token, ERROR, refused)
            return
        service, body = frames[0] if frames else b"", list(frames[1:]) or [b""]
        try:
            lane = self._dispatcher.lane(service)
        except RemoteViolation as violation:
            self._refuse(token, UNKNOWN, str(violation))
            return
        uuid = self._new_uuid()
        record = records.encode_submitted(uuid, self._now_us, service, key, body)
        if len(record) > RECORD_SIZE_MAX:
            self._dispatcher.maybe_drop(lane, now)
            self._refuse(token, UNKNOWN, f"a request has at most {RECORD_SIZE_MAX} bytes")
            return
        kept = Kept(uuid, lane, key, self._now_us)
        kept.frames = body
        kept.size = sum(map(len, body))
        kept.waiting = [token]
        lane.open += 1
        self._register.add(kept)
        self._submissions.append(kept)
        self._submitted.append(record)

    def _is_known(self, token: Any, key: bytes) -> bool:
        """Answer, or have answered, a submission whose key came before."""
        uuid = self._register.uuid_of(key)
        if uuid is None:
            return False
        kept = self._register.find(uuid)
        if kept is not None and kept.waiting is not None:
            kept.waiting.append(token)  # it is being stored
        else:
            self._answer(token, OK, encode_ticket(uuid))
        return True

    def _refusal(self) -> str:
        """Why no request can be accepted now; "" if one can."""
        if self.failure is not None:
            return f"the store takes nothing any more: {self.failure}"
        if self._draining:
            return "shutting down"
        if len(self._register) >= self.policy.requests_max:
            return f"{len(self._register)} requests are kept, which is the limit"
        return ""

    def _submissions_stored(self, requests: list[Kept], places: Sequence[Any]) -> None:
        out, dispatcher, cache = self._out, self._dispatcher, self._cache
        for kept, place in zip(requests, places, strict=True):
            kept.place = place
            answer = (OK, encode_ticket(kept.uuid))
            for token in kept.waiting or ():
                out.append(_new(Finished, (token, answer, Status.OK)))
            kept.waiting = None
            cache.keep_request(kept)
            dispatcher.enqueue(kept, kept.lane)  # type: ignore[arg-type]
        if self.policy.notes:
            for kept in requests:
                self._note("submitted", kept)

    def _submissions_failed(self, requests: list[Kept], error: StorageError, now: float) -> None:
        """Refuse them. After `LogFailed` they may be on the disk all the same, and be found there
        by the next process; a client that asks again should use a key."""
        for kept in requests:
            for token in kept.waiting or ():
                self._refuse(token, ERROR, f"not stored: {error}")
            kept.state = CLOSED
            self._register.remove(kept)
            self._leave_lane(kept, now)

    # --- attempts ---------------------------------------------------------------------------------
    def _outcome(self, event: Answered, now: float) -> None:
        """Take what became of an attempt, or what the broker says of a service."""
        token, outcome = event
        if token.__class__ is Kept:
            self._attempted(token, outcome, now)
        elif token.__class__ is Lane:
            self._dispatcher.told(token, outcome, now)
        else:
            raise LocalViolation(f"nothing was submitted under {token!r}")

    def _attempted(self, kept: Kept, outcome: Reply | CallError, now: float) -> None:
        if kept.state is not SENT or kept.asked is None:
            return  # closed meanwhile
        lane = self._lane_of(kept)
        self._dispatcher.free(kept, lane)
        if isinstance(outcome, CallError):
            self._failed(kept, outcome, lane, now)
            return
        self._dispatcher.seen(lane, now)
        kept.attempts += 1
        kept.answered_us = self._now_us
        kept.reply = outcome.frames
        kept.reply_size = sum(map(len, outcome.frames))
        if kept.closing is None:
            self._keep_reply(kept, now)
        else:
            kept.state = KEEPING  # nothing is stored behind its CLOSED, unless that fails

    def _keep_reply(self, kept: Kept, now: float) -> None:
        """Store a reply before anybody hears of it."""
        reply = kept.reply or ()
        record = records.encode_answered(kept.uuid, kept.answered_us, kept.attempts, reply)
        if len(record) > RECORD_SIZE_MAX:
            kept.reply = None
            self._poison(kept, f"its reply has {kept.reply_size} bytes, too many to store", now)
            return
        kept.state = KEEPING
        self._enter(record, kept, self._reply_stored, self._reply_not_stored)

    def _reply_stored(self, kept: Kept, place: Any, now: float) -> None:
        if kept.state is not KEEPING:
            return  # closed meanwhile
        self._let_go(kept)
        kept.reply_place = place
        kept.state = ANSWERED
        self._answered += 1
        self._cache.drop_request(kept)
        self._cache.keep_reply(kept)
        self._leave_lane(kept, now)
        self._expire_later(kept, now)
        if self.policy.notes:
            self._note("answered", kept)

    def _reply_not_stored(self, kept: Kept, error: StorageError, now: float) -> None:
        """Hold the reply back, and send nothing until it is stored: replies must not pile up."""
        if kept.state is not KEEPING:
            return
        self._unstored[kept] = None
        self._set_halted()
        if _STORE_AGAIN not in self._timers:
            self._out.append(Warn("reply not stored", f"{kept.ticket}: {error}"))
            self._timers.set(_STORE_AGAIN, now + self.policy.store_retry_s)

    def _store_again(self, now: float) -> None:
        for kept in list(self._unstored):
            if kept.closing is None:
                self._keep_reply(kept, now)

    def _let_go(self, kept: Kept) -> None:
        """A reply is stored, or needs no storing any more."""
        if self._unstored:
            self._unstored.pop(kept, None)
            self._set_halted()

    def _failed(self, kept: Kept, error: CallError, lane: Lane, now: float) -> None:
        """Have a request tried again, at once or later, or give it up."""
        if isinstance(error, NoService):
            self._dispatcher.leave_alone(lane, now)
        if not error.may_have_executed:
            self._dispatcher.turned_away(kept, lane, now)
            return
        kept.attempts += 1
        kept.reason = f"{type(error).__name__}: {error}"
        limit = self.policy.attempts_max
        if limit is not None and kept.attempts >= limit:
            self._poison(kept, kept.reason, now)
            return
        self._dispatcher.rest(kept, now + self.policy.delay_s(kept.attempts, self._rng))
        if limit is not None:
            self._enter_tried(kept, poisoned=False)
        if self.policy.notes:
            self._note("tried", kept, reason=kept.reason)

    def _poison(self, kept: Kept, reason: str, now: float) -> None:
        """Try a request no more, but keep it: an operator may look at it, and have it tried."""
        kept.state = POISONED
        kept.reason = reason
        self._poisoned += 1
        self._cache.drop_request(kept)
        self._leave_lane(kept, now)
        self._expire_later(kept, now)
        self._enter_tried(kept, poisoned=True)
        self._out.append(Warn("poisoned", f"{kept.ticket}: {reason}"))
        if self.policy.notes:
            self._note("poisoned", kept, reason=reason)

    def _enter_tried(self, kept: Kept, *, poisoned: bool) -> None:
        if kept.closing is not None:
            return
        record = records.encode_tried(
            kept.uuid, self._now_us, kept.attempts, poisoned, kept.reason[:1000]
        )
        self._enter(record, kept, _nothing, self._not_entered)

    def _not_entered(self, kept: Kept, error: StorageError, _now: float) -> None:
        text = f"{kept.ticket}: a later start will not know of its attempts: {error}"
        self._out.append(Warn("attempts not stored", text))

    # --- titanic.reply ----------------------------------------------------------------------------
    def _reply(self, token: Any, frames: Sequence[bytes], _now: float) -> None:
        kept = self._find(token, frames)
        if kept is None:
            return
        if kept.state is ANSWERED:
            if kept.reply is not None:
                self._answer(token, OK, *kept.reply)
            else:
                self._load(ForReply(token, kept), kept.reply_place)
        elif kept.state is POISONED:
            self._refuse(token, UNKNOWN, f"{POISONED_TEXT}: {kept.reason}")
        else:
            self._answer(token, PENDING)

    def _find(self, token: Any, frames: Sequence[bytes]) -> Kept | None:
        """Return the request that a ticket is for, or answer 400."""
        uuid = self._uuid(token, frames)
        kept = None if uuid is None else self._register.find(uuid)
        if uuid is not None and kept is None:
            self._refuse(token, UNKNOWN, "no such request: it was closed, or never accepted")
        return kept

    def _uuid(self, token: Any, frames: Sequence[bytes]) -> bytes | None:
        """Read the ticket, or answer 400."""
        try:
            return decode_ticket(frames[0] if frames else b"")
        except RemoteViolation as violation:
            self._refuse(token, UNKNOWN, str(violation))
            return None

    # --- titanic.close ----------------------------------------------------------------------------
    def _close(self, token: Any, frames: Sequence[bytes], _now: float) -> None:
        """Remove a request and its reply. What is not there is closed already, and 200 as well."""
        uuid = self._uuid(token, frames)
        if uuid is None:
            return
        kept = self._register.find(uuid)
        if kept is None:
            self._answer(token, OK)
        elif kept.closing is not None:
            kept.closing.append(token)
        else:
            self._begin_closing(kept, [token], expired=False)

    def _begin_closing(self, kept: Kept, tokens: list[Any], *, expired: bool) -> None:
        kept.closing = tokens
        until_us = self._now_us + int(self.policy.key_window_s * 1e6)
        record = records.encode_closed(kept.uuid, self._now_us, kept.key, until_us, expired=expired)
        self._enter(record, kept, self._closed, self._not_closed)

    def _closed(self, kept: Kept, _place: Any, now: float) -> None:
        for token in kept.closing or ():
            self._answer(token, OK)
        self._forget(kept, now)
        if self.policy.notes:
            self._note("closed", kept)

    def _forget(self, kept: Kept, now: float) -> None:
        """Let go of a request that is closed, wherever it is."""
        state, kept.state = kept.state, CLOSED
        if state is ANSWERED:
            self._answered -= 1
        elif state is POISONED:
            self._poisoned -= 1
        else:
            self._recall(kept, state, now)
        self._let_go(kept)
        self._cache.drop_request(kept)
        self._cache.drop_reply(kept)
        self._register.remove(kept, now + self.policy.key_window_s if kept.key else None)
        if kept.key and _KEYS not in self._timers:
            self._timers.set(_KEYS, now + self.policy.key_window_s)

    def _recall(self, kept: Kept, state: Any, now: float) -> None:
        """Nobody waits for the reply any more."""
        lane = self._lane_of(kept)
        if state is SENT:
            if kept.asked is not None:
                self._out.append(Cancel(kept))
            self._dispatcher.free(kept, lane)
        self._leave_lane(kept, now)
        self._dispatcher.withdraw(kept, lane)

    def _not_closed(self, kept: Kept, error: StorageError, now: float) -> None:
        for token in kept.closing or ():
            self._refuse(token, ERROR, f"not stored: {error}")
        kept.closing = None
        if kept.state is not KEEPING:
            return
        if kept not in self._unstored:
            self._keep_reply(kept, now)
        elif _STORE_AGAIN not in self._timers:
            self._timers.set(_STORE_AGAIN, now + self.policy.store_retry_s)

    # --- extensions -------------------------------------------------------------------------------
    def _other_service(self, token: Any, service: str, frames: Sequence[bytes], now: float) -> None:
        handler = self._services.get(service)
        if handler is None:
            self._refuse(token, UNKNOWN, f"{service} is no service of Titanic")
        else:
            handler(token, frames, now)

    def _list(self, token: Any, frames: Sequence[bytes], _now: float) -> None:
        try:
            question = listing.decode_question(frames)
        except RemoteViolation as violation:
            self._refuse(token, UNKNOWN, str(violation))
            return
        self._answer(token, OK, *listing.page(self._register, question))

    def _stats(self, token: Any, _frames: Sequence[bytes], _now: float) -> None:
        self._answer(token, OK, listing.stats(self.snapshot()))

    def _show(self, token: Any, frames: Sequence[bytes], _now: float) -> None:
        kept = self._find(token, frames)
        if kept is not None:
            self._show_next(ForShow(token, kept))

    def _show_next(self, ticket: ForShow) -> None:
        """Collect what is to be shown: the request's frames, then those of the reply."""
        token, kept, frames = ticket
        if frames is None:
            if kept.frames is None and kept.place is not None:
                self._load(ticket, kept.place)
                return
            frames = list(kept.frames or ())
        if kept.reply is None and kept.reply_place is not None:
            self._load(ForShow(token, kept, frames), kept.reply_place)
        else:
            self._answer(token, OK, listing.details(kept), *frames, *(kept.reply or ()))

    def _retry(self, token: Any, frames: Sequence[bytes], _now: float) -> None:
        kept = self._find(token, frames)
        if kept is None:
            return
        if kept.state is not POISONED or kept.place is None or kept.closing is not None:
            self._refuse(token, UNKNOWN, f"the request is not poisoned, but {kept.state.value}")
            return
        record = records.encode_tried(kept.uuid, self._now_us, 0, False, "")
        self._enter(record, (token, kept), self._try_again, self._not_tried_again)

    def _try_again(self, what: tuple[Any, Kept], _place: Any, _now: float) -> None:
        token, kept = what
        if kept.state is POISONED:
            self._poisoned -= 1
            kept.attempts = 0
            kept.reason = ""
            kept.lane = lane = self._dispatcher.stored_lane(self._lane_of(kept).name)
            lane.open += 1
            self._dispatcher.enqueue(kept, lane)
        self._answer(token, OK)

    def _not_tried_again(self, what: tuple[Any, Kept], error: StorageError, _now: float) -> None:
        self._refuse(what[0], ERROR, f"not stored: {error}")

    # --- the store --------------------------------------------------------------------------------
    def _load(self, ticket: Any, place: Any) -> None:
        self._storing += 1
        self._out.append(Load(ticket, place))

    def _stored(self, event: Stored, now: float) -> None:
        self._storing -= 1
        ticket, places = event
        if ticket.__class__ is Submissions:
            self._submissions_stored(ticket.requests, places)
            return
        for entry, place in zip(ticket.entries, places, strict=True):
            entry.stored(entry.what, place, now)

    def _store_failed(self, event: StoreFailed, now: float) -> None:
        self._storing -= 1
        ticket, error = event
        self._out.append(Warn("store failed", str(error)))
        if isinstance(error, LogFailed):
            self.failure = error
        if ticket.__class__ is Submissions:
            self._submissions_failed(ticket.requests, error, now)
            return
        for entry in ticket.entries:
            entry.failed(entry.what, error, now)

    def _loaded(self, event: Loaded, now: float) -> None:
        ticket, payload = event
        if ticket.__class__ is not ForDispatch:  # those are counted as sent
            self._storing -= 1
        try:
            entry = records.decode(payload)
        except RemoteViolation as violation:
            self._unreadable(ticket, str(violation), now)
            return
        if not isinstance(entry, records.Submitted | records.Answered):
            self._unreadable(ticket, "another record is in its place", now)
            return
        frames = list(entry.frames)
        if ticket.__class__ is ForDispatch:
            self._dispatch_loaded(ticket.kept, frames, now)
        elif ticket.__class__ is ForReply:
            self._answer(ticket.token, OK, *frames)
        elif ticket.frames is None and isinstance(entry, records.Submitted):
            self._show_next(ForShow(ticket.token, ticket.kept, frames))
        else:
            shown = ticket.frames or []
            self._answer(ticket.token, OK, listing.details(ticket.kept), *shown, *frames)

    def _load_failed(self, event: LoadFailed, now: float) -> None:
        if event.ticket.__class__ is not ForDispatch:
            self._storing -= 1
        is_damaged = isinstance(event.error, LogCorrupt | LogGone)
        self._unreadable(event.ticket, str(event.error), now, is_damaged=is_damaged)

    def _dispatch_loaded(self, kept: Kept, frames: list[bytes], now: float) -> None:
        if kept.state is SENT:
            kept.frames = frames
            self._dispatcher.submit(kept, self._lane_of(kept), now)
            kept.frames = None
            self._cache.maybe_keep(kept, frames)

    def _unreadable(self, ticket: Any, reason: str, now: float, *, is_damaged: bool = True) -> None:
        """Tell whoever wants it that a record cannot be read; everything else goes on."""
        kept = ticket.kept
        self._out.append(Warn("record damaged", f"{kept.ticket}: {reason}"))
        if ticket.__class__ is ForDispatch:
            if kept.state is SENT:
                self._dispatcher.free(kept, self._lane_of(kept))
                self._poison(kept, f"the request cannot be read: {reason}", now)
            return
        if ticket.__class__ is ForReply and is_damaged and kept.state is ANSWERED:
            self._run_again(kept, now)
        self._refuse(ticket.token, ERROR, f"cannot be read: {reason}")

    def _run_again(self, kept: Kept, now: float) -> None:
        """The reply is lost, but the request is not; a restart would have it run again as well."""
        self._answered -= 1
        kept.reply_place = None
        kept.reply_size = kept.answered_us = 0
        kept.lane = lane = self._dispatcher.stored_lane(self._lane_of(kept).name)
        lane.open += 1
        if kept.place is None:
            self._poison(kept, "its reply cannot be read, nor the request itself", now)
        else:
            self._dispatcher.enqueue(kept, lane)

    # --- time -------------------------------------------------------------------------------------
    def _woken(self, _event: Wake, now: float) -> None:
        for name in self._timers.due(now):
            if name.__class__ is Kept:
                if name.state is WAITING:
                    self._dispatcher.enqueue(name, self._lane_of(name))
            elif name.__class__ is Lane:
                self._dispatcher.due(name, now)
            elif name == _STORE_AGAIN:
                self._store_again(now)
            elif name == _EXPIRE:
                self._expire(now)
            elif name == _KEYS:
                until = self._register.expire_keys(now)
                if until is not None:
                    self._timers.set(_KEYS, until)
            elif name == _DRAIN:
                self._cut_short()

    def _expire_later(self, kept: Kept, now: float) -> None:
        if self.policy.expire_s is not None:
            self._expiring.append((now + self.policy.expire_s, kept))
            if _EXPIRE not in self._timers:
                self._timers.set(_EXPIRE, self._expiring[0][0])

    def _expire(self, now: float) -> None:
        """Close what nobody has collected. All wait equally long, so the first is due first."""
        expiring = self._expiring
        while expiring and expiring[0][0] <= now:
            kept = expiring.popleft()[1]
            if kept.state in (ANSWERED, POISONED) and kept.closing is None:
                self._begin_closing(kept, [], expired=True)
        if expiring:
            self._timers.set(_EXPIRE, expiring[0][0])

    # --- the beginning and the end ----------------------------------------------------------------
    def _begin(self, recovered: Recovered) -> None:
        """Take over what an earlier process left."""
        now = 0.0
        for found in recovered.requests:
            self._take_over(found, now)
        for key, uuid, until_us in sorted(recovered.closed_keys, key=lambda one: one.until_us):
            self._register.keep_key(key, uuid, until_us / 1e6 - self._epoch_s)
        if recovered.closed_keys:
            self._timers.set(_KEYS, now)
        if self._expiring:
            self._expiring = deque(sorted(self._expiring, key=lambda one: one[0]))
            self._timers.set(_EXPIRE, self._expiring[0][0])
        self._timers.set(_BEGIN, now)

    def _take_over(self, found: RecoveredRequest, now: float) -> None:
        lane = self._dispatcher.stored_lane(found.service)
        kept = Kept(found.uuid, lane, found.key, found.submitted_us)
        kept.size, kept.place = found.size, found.place
        kept.attempts, kept.reason = found.attempts, found.reason
        kept.answered_us = found.answered_us
        kept.reply_size, kept.reply_place = found.reply_size, found.reply_place
        self._register.add(kept)
        lane.open += 1
        if found.reply_place is not None:
            kept.state = ANSWERED
            self._answered += 1
        elif found.poisoned or found.place is None:
            kept.state = POISONED
            kept.reason = found.reason or "the request is damaged in the log"
            self._poisoned += 1
        else:
            self._dispatcher.enqueue(kept, lane)
            return
        self._leave_lane(kept, now)
        ended_s = (found.answered_us or found.submitted_us) / 1e6 - self._epoch_s
        self._expire_later(kept, ended_s)

    def _drain(self, _event: Drain, now: float) -> None:
        """Accept nothing new, send nothing, and wait for what is out."""
        if not self._draining:
            self._draining = True
            self._set_halted()
            self._timers.set(_DRAIN, now + self.policy.drain_timeout_s)

    def _cut_short(self) -> None:
        """Wait no longer: what is out stays in the log, and is sent again by the next process."""
        for kept in self._register:
            if kept.state is SENT:
                if kept.asked is not None:
                    self._out.append(Cancel(kept))
                lane = self._lane_of(kept)
                self._dispatcher.free(kept, lane)
                self._dispatcher.enqueue(kept, lane)
        self._unstored.clear()

    def _maybe_stop(self) -> None:
        if self._stopped or self._dispatcher.sent or self._storing or self._unstored:
            return
        self._stopped = True
        self._timers = Timers()
        self._out.append(Stopped())

    # --- helpers ----------------------------------------------------------------------------------
    def _set_halted(self) -> None:
        self._dispatcher.halted = bool(self._draining or self._unstored)

    def _lane_of(self, kept: Kept) -> Lane:
        assert kept.lane is not None
        return kept.lane

    def _leave_lane(self, kept: Kept, now: float) -> None:
        lane = self._lane_of(kept)
        lane.open -= 1
        self._dispatcher.maybe_drop(lane, now)

    def _note(self, kind: str, kept: Kept, **facts: Any) -> None:
        self._out.append(Note(kind, {"uuid": kept.uuid, **facts}))


def _nothing(_what: Any, _place: Any, _now: float) -> None:
    """There is nothing to be done when it is stored."""
