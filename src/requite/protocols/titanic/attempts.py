"""Outcomes of attempts: replies to store, retries after failures, and poisoned requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from requite.engine import Cancel
from requite.errors import CallError, NoService, RemoteFailure, StorageError
from requite.protocols.titanic import records
from requite.protocols.titanic.core import RECORD_SIZE_MAX, Core
from requite.protocols.titanic.requests import (
    ANSWERED,
    KEEPING,
    POISONED,
    SENT,
    WAITING,
    DurableRequest,
    Lane,
)
from requite.request import Reply

STORE_AGAIN: Final = "store again"
_UNSTORED: Final = "replies are not stored"
_REASON_SIZE_MAX: Final = 1000
# Stored in TRIED records, and compared with them: it must not change.
IN_DOUBT: Final = (
    "the log is damaged after this request, which may have been answered or closed there"
)

LOST: Final = "its record is missing from the log, from which a part has been removed"

Ended = Callable[[DurableRequest, float], None]


class Attempts:
    """Handles outcomes of attempts; calls `ended(request, now)` when no other attempt follows."""

    def __init__(self, core: Core, ended: Ended) -> None:
        self._core = core
        self._ended = ended
        self._unstored: dict[DurableRequest, None] = {}  # replies that the disk refused

    @property
    def is_idle(self) -> bool:
        """Whether every reply is stored."""
        return not self._unstored

    def attempt_ended(
        self, request: DurableRequest, outcome: Reply | CallError, now: float
    ) -> None:
        """Handle the outcome of an attempt."""
        if request.state is not SENT or request.asked is None:
            return  # closed meanwhile
        core = self._core
        lane = core.lane_of(request)
        core.dispatcher.free(request, lane)
        if isinstance(outcome, RemoteFailure) and outcome.is_final:
            frames: Sequence[bytes] = (str(outcome).encode(),)
            request.is_negative = True
        elif isinstance(outcome, CallError):
            self._failed(request, outcome, lane, now)
            return
        else:
            frames = outcome.frames
        core.dispatcher.seen(lane, now)
        request.attempts += 1
        request.answered_us = core.now_us
        request.reply = frames
        request.resize(request.size, sum(map(len, frames)))
        request.state = KEEPING
        if request.closing is None:  # else `close_failed` stores it if CLOSED cannot be stored
            self._keep_reply(request, now)

    # --- replies ----------------------------------------------------------------------------------
    def _keep_reply(self, request: DurableRequest, now: float) -> None:
        """Store a reply, before a client can collect it."""
        reply = request.reply or ()
        if exceeded := self._core.policy.exceeded_by_replies_to(request.owner):
            request.reply = None
            request.is_negative = False
            request.resize(request.size, 0)
            self.let_go(request)
            self.poison(request, exceeded, now)
            return
        record = records.encode_answered(
            request.uuid,
            request.answered_us,
            request.attempts,
            reply,
            request.owner.name,
            is_negative=request.is_negative,
        )
        if len(record) > RECORD_SIZE_MAX:
            request.reply = None
            request.is_negative = False
            self.poison(
                request, f"its reply has {request.reply_size} bytes, too many to store", now
            )
            return
        self._core.enter(record, request, self._reply_stored, self._reply_not_stored)

    def _reply_stored(self, request: DurableRequest, location: Any, now: float) -> None:
        if request.state is not KEEPING:
            return  # closed meanwhile
        core = self._core
        self.let_go(request)
        request.reply_location = location
        core.cache.drop_request(request)
        core.cache.keep_reply(request)
        if core.copy_first is None:
            self._reply_released(request, now)
        else:
            core.copy_first(location, lambda then: self._reply_released(request, then))

    def _reply_released(self, request: DurableRequest, now: float) -> None:
        """Make a reply available: it is stored, and replicated if required."""
        if request.state is not KEEPING:
            return  # closed meanwhile
        core = self._core
        request.state = ANSWERED
        core.answered += 1
        core.leave_lane(request, now)
        core.note("answered", request)
        self._ended(request, now)

    def _reply_not_stored(self, request: DurableRequest, _error: StorageError, now: float) -> None:
        """Hold the reply back and halt dispatch until it is stored: replies must not pile up."""
        if request.state is not KEEPING:
            return
        core = self._core
        self._unstored[request] = None
        core.halt(_UNSTORED)
        if STORE_AGAIN not in core.timers:
            core.timers.set(STORE_AGAIN, now + core.policy.store_retry_s)

    def store_again(self, now: float) -> None:
        """Retry storing the replies that the disk refused."""
        for request in list(self._unstored):
            if request.closing is None:
                self._keep_reply(request, now)

    def let_go(self, request: DurableRequest) -> None:
        """Drop a request from the unstored replies."""
        if self._unstored:
            self._unstored.pop(request, None)
            self._core.halt(_UNSTORED, bool(self._unstored))

    def close_failed(self, request: DurableRequest, now: float) -> None:
        """Store a reply that arrived while the request was closing: CLOSED could not be stored."""
        if request.state is not KEEPING or request.reply_location is not None:
            return
        if request not in self._unstored:
            self._keep_reply(request, now)
        elif STORE_AGAIN not in self._core.timers:
            self._core.timers.set(STORE_AGAIN, now + self._core.policy.store_retry_s)

    # --- failures ---------------------------------------------------------------------------------
    def _failed(self, request: DurableRequest, error: CallError, lane: Lane, now: float) -> None:
        """Retry a request after a failed attempt, at once or later, or poison it."""
        core = self._core
        if isinstance(error, NoService):
            core.dispatcher.leave_alone(lane, now)
        if not error.may_have_executed:
            core.dispatcher.put_back(request, lane, now)
            return
        request.attempts += 1
        request.reason = f"{type(error).__name__}: {error}"[:_REASON_SIZE_MAX]
        limit = core.policy.attempts_max
        if limit is not None and request.attempts >= limit:
            self.poison(request, request.reason, now)
            return
        core.dispatcher.rest(request, now + core.policy.delay_s(request.attempts, core.rng))
        if limit is not None:
            self._enter_tried(request, poisoned=False)
        core.note("tried", request, reason=request.reason)

    def poison(self, request: DurableRequest, reason: str, now: float) -> None:
        """Stop retrying a request, but retain it: an operator can inspect and retry it."""
        self._set_aside(request, reason, now)
        self._core.warn("poisoned", f"{request.ticket}: {reason}")

    def set_aside(self, waiting: Sequence[DurableRequest], reason: str, now: float) -> None:
        """Poison requests that wait for dispatch."""
        for request in waiting:
            self._core.timers.clear(request)
            self._set_aside(request, reason, now)
        self._core.dispatcher.forget_withdrawn()
        self._core.warn("set aside", f"{len(waiting)} requests: {reason}. See `requite titanic ls`")

    def _set_aside(self, request: DurableRequest, reason: str, now: float) -> None:
        core = self._core
        request.state = POISONED
        request.reason = reason
        core.poisoned += 1
        core.cache.drop_request(request)
        core.leave_lane(request, now)
        self._enter_tried(request, poisoned=True)
        core.note("poisoned", request, reason=reason)
        self._ended(request, now)

    def release_damaged(self) -> None:
        """Dispatch the requests that were in doubt: now it is known that they are not closed."""
        core = self._core
        for request in core.register:
            if (
                request.state is POISONED
                and request.reason == IN_DOUBT
                and request.location is not None
            ):
                owner = request.owner.name
                record = records.encode_tried(request.uuid, core.now_us, 0, False, "", owner)
                core.enter(record, request, self.try_again, _nothing)

    def try_again(self, request: DurableRequest, _location: Any, _now: float) -> None:
        """Queue a request whose retry by an operator has been stored."""
        core = self._core
        if request.state is POISONED:
            core.poisoned -= 1
            request.attempts = 0
            request.reason = ""
            core.dispatcher.enqueue(request, core.enter_lane(request))

    def _enter_tried(self, request: DurableRequest, *, poisoned: bool) -> None:
        if request.closing is not None:
            return  # its CLOSED must remain the last record
        core = self._core
        record = records.encode_tried(
            request.uuid,
            core.now_us,
            request.attempts,
            poisoned,
            request.reason,
            request.owner.name,
        )
        # If this fails, a later start just does not know of the attempt.
        core.enter(record, request, _nothing, _nothing)

    def lost(self, requests: Sequence[DurableRequest], now: float) -> None:
        """Handle acknowledged requests that are missing from the log; keep what is in memory."""
        core = self._core
        waiting = []
        for request in requests:
            request.location = None
            if request.state is ANSWERED and request.reply is None:
                self.lost_reply(request, now)
            if request.state is SENT:
                if request.asked is not None:
                    core.emit(Cancel(request))
                core.dispatcher.free(request, core.lane_of(request))
                request.state = WAITING
            if request.state is WAITING:
                waiting.append(request)
        if waiting:
            self.set_aside(waiting, LOST, now)

    def lost_reply(self, request: DurableRequest, now: float) -> None:
        """Run a request again whose stored reply cannot be read, as a restart would do."""
        core = self._core
        core.answered -= 1
        request.reply_location = None
        request.is_negative = False
        request.answered_us = 0
        request.resize(request.size, 0)
        lane = core.enter_lane(request)
        if request.location is None:
            self.poison(request, "neither its reply nor the request itself can be read", now)
        else:
            core.dispatcher.enqueue(request, lane)


def _nothing(_what: Any, _outcome: Any, _now: float) -> None:
    """Ignore whether a record was stored."""
