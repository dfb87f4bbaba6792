"""`titanic.reply` and `titanic.close`: collecting replies, and removing requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from requite.engine import Cancel, Finished
from requite.errors import LogFailed, RemoteViolation, StorageError
from requite.protocols.titanic import records
from requite.protocols.titanic.attempts import Attempts
from requite.protocols.titanic.copying import Copying
from requite.protocols.titanic.core import Core
from requite.protocols.titanic.handing import Handing
from requite.protocols.titanic.requests import (
    ANSWERED,
    CLOSED,
    POISONED,
    SENT,
    DurableRequest,
    State,
)
from requite.protocols.titanic.tickets import ForReply
from requite.protocols.titanic.wire import (
    ERROR,
    OK,
    PENDING,
    UNKNOWN,
    decode_ticket,
    encode_reply,
    refusal,
)
from requite.protocols.titanic.wire import POISONED as POISONED_FRAME
from requite.request import Status

EXPIRE: Final = "expire"
KEYS: Final = "keys"
_EXPIRE_MAX: Final = 1000  # requests that one turn closes
_EXPIRE_PAUSE_S: Final = 0.01  # until the next of such turns


class Collecting:
    """Serves replies, any number of times, and removes requests when they are closed or expire."""

    def __init__(self, core: Core, copying: Copying) -> None:
        self._core = core
        self._copying = copying
        self._attempts = Attempts(core, self.expire_later)
        self.handing = Handing(core, self._has_no_reply)
        self._half_closed: set[bytes] = set()  # CLOSED may or may not be on the disk
        self._expiring: deque[tuple[float, DurableRequest]] = deque()

    @property
    def attempts(self) -> Attempts:
        """The handler of attempts, which precede collecting."""
        return self._attempts

    def reply(self, token: Any, frames: Sequence[bytes], owner: bytes, _now: float) -> None:
        """Answer with the reply, now or in a later turn, or with 300 while the request is
        pending."""
        request = self._core.find(token, frames, owner)
        if request is None:
            return
        if request.state is ANSWERED and not self._core.is_catching_up:
            self.handing.hand_out(ForReply(token, request, owner, request.reply_size))
        else:
            self._has_no_reply(token, request)

    def _has_no_reply(self, token: Any, request: DurableRequest) -> None:
        core = self._core
        if request.state is CLOSED:
            core.refuse_unknown(token)
        elif request.state is POISONED:
            status = refusal(UNKNOWN, f"poisoned: {request.reason}")
            core.answer(token, status, POISONED_FRAME, request.reason.encode())
        elif core.is_superseded:
            core.refuse(
                token, ERROR, f"{core.why_inactive}; ask the promoted Titanic for the reply"
            )
        else:
            core.answer(token, PENDING)

    def loaded(self, token: Any, entry: records.Submitted | records.Answered) -> None:
        """Answer with a reply that was read from the log."""
        is_negative = isinstance(entry, records.Answered) and entry.is_negative
        self._core.answer(token, *encode_reply(entry.frames, is_negative=is_negative))

    # --- closing ----------------------------------------------------------------------------------
    def close(self, token: Any, frames: Sequence[bytes], owner: bytes, _now: float) -> None:
        """Remove a request and its reply. An unknown or malformed ticket, or one of another owner,
        is also answered with 200: the request is closed already, or never existed."""
        core = self._core
        try:
            uuid = decode_ticket(frames[0] if frames else b"")
        except RemoteViolation:
            core.answer(token, OK)
            return
        request = core.register.find(uuid)
        if request is not None and not request.owner.admits(owner):
            request = None
        if core.why_inactive:
            where = "promoted" if core.is_superseded else "active"
            core.refuse(token, ERROR, f"{core.why_inactive}; close it at the {where} Titanic")
        elif request is None:
            if not self._copying.holds_closing(token, uuid, owner):
                core.answer(token, OK)
        elif request.closing is not None:
            request.closing.append(token)
        else:
            self.begin_closing(request, [token], expired=False)

    def begin_closing(self, request: DurableRequest, tokens: list[Any], *, expired: bool) -> None:
        """Store that a request is closed; then forget it, and answer `tokens`."""
        core = self._core
        request.closing = tokens
        until_us = core.now_us + int(core.policy.key_window_s * 1e6)
        record = records.encode_closed(
            request.uuid,
            core.now_us,
            request.key,
            until_us,
            expired=expired,
            owner=request.owner.name if request.key else b"",
        )
        core.enter(record, request, self._closed, self._not_closed)

    def _closed(self, request: DurableRequest, location: Any, now: float) -> None:
        emit = self._copying.closed(request, location) or self._core.emit
        for token in request.closing or ():
            emit(Finished(token, (OK,), Status.OK))
        if request.state is not CLOSED:  # else SUBMITTED could not be stored
            self.forget(request, now, now + self._core.policy.key_window_s)

    def forget(self, request: DurableRequest, now: float, key_until: float) -> None:
        """Remove a closed request from all tables, whatever its state."""
        core = self._core
        state, request.state = request.state, CLOSED
        if state is ANSWERED:
            core.answered -= 1
        elif state is POISONED:
            core.poisoned -= 1
        else:
            self._recall(request, state, now)
        self._attempts.let_go(request)
        core.cache.drop_request(request)
        core.cache.drop_reply(request)
        core.register.remove(request, key_until if request.key else None)
        if request.key and KEYS not in core.timers:
            core.timers.set(KEYS, key_until)
        if core.register.has_too_many_keys:
            self.expire_keys(now)
        core.note("closed", request)

    def missing(self, missing: Sequence[DurableRequest], now: float) -> None:
        """Handle requests that are missing from the reopened log. Those whose CLOSED failed were
        closed after all; the others are lost."""
        lost = [request for request in missing if request.uuid not in self._half_closed]
        for request in missing:
            if request.uuid in self._half_closed:
                self.forget(request, now, now + self._core.policy.key_window_s)
        self._half_closed.clear()
        if lost:
            self._attempts.lost(lost, now)

    def _recall(self, request: DurableRequest, state: State, now: float) -> None:
        """Cancel a request whose reply is not needed any more."""
        core = self._core
        lane = core.lane_of(request)
        if state is SENT:
            if request.asked is not None:
                core.emit(Cancel(request))
            core.dispatcher.free(request, lane)
        core.leave_lane(request, now)
        core.dispatcher.withdraw(request, lane)

    def _not_closed(self, request: DurableRequest, error: StorageError, now: float) -> None:
        for token in request.closing or ():
            self._core.not_stored(token, error)
        request.closing = None
        if isinstance(error, LogFailed):
            self._half_closed.add(request.uuid)
        self._attempts.close_failed(request, now)

    # --- time -------------------------------------------------------------------------------------
    def expire_later(self, request: DurableRequest, now: float) -> None:
        """Schedule the removal of a request that has ended now, or before the start."""
        core = self._core
        if core.policy.expire_s is not None:
            self._expiring.append((now + core.policy.expire_s, request))
            if EXPIRE not in core.timers:
                core.timers.set(EXPIRE, self._expiring[0][0])

    def expire(self, now: float) -> None:
        """Close requests that were not collected in time. All have the same time limit, so the
        queue is in order. Those of one start are due together, so each turn closes some of them.

        A replica and a superseded Titanic close nothing by time, and check again later.
        """
        core, expiring = self._core, self._expiring
        if core.why_inactive:
            core.timers.set(EXPIRE, now + max(core.policy.expire_s or 0.0, 1.0))
            return
        for _ in range(_EXPIRE_MAX):
            if not expiring or expiring[0][0] > now:
                break
            request = expiring.popleft()[1]
            if request.state in (ANSWERED, POISONED) and request.closing is None:
                self.begin_closing(request, [], expired=True)
        if expiring:
            self._core.timers.set(EXPIRE, max(expiring[0][0], now + _EXPIRE_PAUSE_S))

    def expire_keys(self, now: float) -> None:
        """Forget expired idempotency keys."""
        until = self._core.register.expire_keys(now)
        if until is not None:
            self._core.timers.set(KEYS, until)
