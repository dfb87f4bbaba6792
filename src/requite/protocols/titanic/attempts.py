"""What becomes of requests at their services: replies, failures, and those that are given up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from requite.engine import Cancel
from requite.errors import CallError, NoService, StorageError
from requite.protocols.titanic import records
from requite.protocols.titanic.core import RECORD_SIZE_MAX, Core
from requite.protocols.titanic.requests import (
    ANSWERED,
    KEEPING,
    POISONED,
    SENT,
    WAITING,
    Kept,
    Lane,
)
from requite.request import Reply

STORE_AGAIN: Final = "store again"
_UNSTORED: Final = "replies are not stored"
_REASON_SIZE_MAX: Final = 1000
IN_DOUBT: Final = (
    "the log is damaged behind this request, which may have been answered, or closed, there"
)

LOST: Final = "its record has vanished from the log, of which a part must have been removed"

Ended = Callable[[Kept, float], None]


class Attempts:
    """Takes the outcome of attempts. `ended(kept, now)` is called when there will be no other."""

    def __init__(self, core: Core, ended: Ended) -> None:
        self._core = core
        self._ended = ended
        self._unstored: dict[Kept, None] = {}  # whose reply the disk did not take

    @property
    def is_idle(self) -> bool:
        """Whether every reply is stored."""
        return not self._unstored

    def came(self, kept: Kept, outcome: Reply | CallError, now: float) -> None:
        """An attempt has come to its end."""
        if kept.state is not SENT or kept.asked is None:
            return  # closed meanwhile
        core = self._core
        lane = core.lane_of(kept)
        core.dispatcher.free(kept, lane)
        if isinstance(outcome, CallError):
            self._failed(kept, outcome, lane, now)
            return
        core.dispatcher.seen(lane, now)
        kept.attempts += 1
        kept.answered_us = core.now_us
        kept.reply = outcome.frames
        kept.reply_size = sum(map(len, outcome.frames))
        kept.state = KEEPING
        if kept.closing is None:  # else: nothing is stored behind its CLOSED, unless that fails
            self._keep_reply(kept, now)

    # --- replies ----------------------------------------------------------------------------------
    def _keep_reply(self, kept: Kept, now: float) -> None:
        """Store a reply before anybody hears of it."""
        reply = kept.reply or ()
        record = records.encode_answered(kept.uuid, kept.answered_us, kept.attempts, reply)
        if len(record) > RECORD_SIZE_MAX:
            kept.reply = None
            self.poison(kept, f"its reply has {kept.reply_size} bytes, too many to store", now)
            return
        self._core.enter(record, kept, self._reply_stored, self._reply_not_stored)

    def _reply_stored(self, kept: Kept, place: Any, now: float) -> None:
        if kept.state is not KEEPING:
            return  # closed meanwhile
        core = self._core
        self.let_go(kept)
        kept.reply_place = place
        core.cache.drop_request(kept)
        core.cache.keep_reply(kept)
        if core.copy_first is None:
            self._may_be_told(kept, now)
        else:
            core.copy_first(place, lambda then: self._may_be_told(kept, then))

    def _may_be_told(self, kept: Kept, now: float) -> None:
        """A reply is wherever it has to be."""
        if kept.state is not KEEPING:
            return  # closed meanwhile
        core = self._core
        kept.state = ANSWERED
        core.answered += 1
        core.leave_lane(kept, now)
        core.note("answered", kept)
        self._ended(kept, now)

    def _reply_not_stored(self, kept: Kept, _error: StorageError, now: float) -> None:
        """Hold the reply back, and send nothing until it is stored: replies must not pile up."""
        if kept.state is not KEEPING:
            return
        core = self._core
        self._unstored[kept] = None
        core.halt(_UNSTORED)
        if STORE_AGAIN not in core.timers:
            core.timers.set(STORE_AGAIN, now + core.policy.store_retry_s)

    def store_again(self, now: float) -> None:
        """Try to store the replies that the disk did not take."""
        for kept in list(self._unstored):
            if kept.closing is None:
                self._keep_reply(kept, now)

    def let_go(self, kept: Kept) -> None:
        """A reply is stored, or needs no storing any more."""
        if self._unstored:
            self._unstored.pop(kept, None)
            self._core.halt(_UNSTORED, bool(self._unstored))

    def stays(self, kept: Kept, now: float) -> None:
        """A request was to be closed, and is not: what came meanwhile counts."""
        if kept.state is not KEEPING or kept.reply_place is not None:
            return
        if kept not in self._unstored:
            self._keep_reply(kept, now)
        elif STORE_AGAIN not in self._core.timers:
            self._core.timers.set(STORE_AGAIN, now + self._core.policy.store_retry_s)

    # --- failures ---------------------------------------------------------------------------------
    def _failed(self, kept: Kept, error: CallError, lane: Lane, now: float) -> None:
        """Have a request tried again, at once or later, or give it up."""
        core = self._core
        if isinstance(error, NoService):
            core.dispatcher.leave_alone(lane, now)
        if not error.may_have_executed:
            core.dispatcher.turned_away(kept, lane, now)
            return
        kept.attempts += 1
        kept.reason = f"{type(error).__name__}: {error}"[:_REASON_SIZE_MAX]
        limit = core.policy.attempts_max
        if limit is not None and kept.attempts >= limit:
            self.poison(kept, kept.reason, now)
            return
        core.dispatcher.rest(kept, now + core.policy.delay_s(kept.attempts, core.rng))
        if limit is not None:
            self._enter_tried(kept, poisoned=False)
        core.note("tried", kept, reason=kept.reason)

    def poison(self, kept: Kept, reason: str, now: float) -> None:
        """Try a request no more, but keep it: an operator may look at it, and have it tried."""
        self._put_aside(kept, reason, now)
        self._core.warn("poisoned", f"{kept.ticket}: {reason}")

    def put_aside(self, waiting: Sequence[Kept], reason: str, now: float) -> None:
        """Try requests no more that have waited for their turn."""
        for kept in waiting:
            self._core.timers.clear(kept)
            self._put_aside(kept, reason, now)
        self._core.dispatcher.forget_withdrawn()
        self._core.warn("put aside", f"{len(waiting)} requests: {reason}. See `requite titanic ls`")

    def _put_aside(self, kept: Kept, reason: str, now: float) -> None:
        core = self._core
        kept.state = POISONED
        kept.reason = reason
        core.poisoned += 1
        core.cache.drop_request(kept)
        core.leave_lane(kept, now)
        self._enter_tried(kept, poisoned=True)
        core.note("poisoned", kept, reason=reason)
        self._ended(kept, now)

    def release_damaged(self) -> None:
        """Let those wait again that were in doubt: it is known now that they are not closed."""
        core = self._core
        for kept in core.register:
            if kept.state is POISONED and kept.reason == IN_DOUBT and kept.place is not None:
                record = records.encode_tried(kept.uuid, core.now_us, 0, False, "")
                core.enter(record, kept, self.try_again, _nothing)

    def try_again(self, kept: Kept, _place: Any, _now: float) -> None:
        """It is stored that a request is poisoned no longer."""
        core = self._core
        if kept.state is POISONED:
            core.poisoned -= 1
            kept.attempts = 0
            kept.reason = ""
            core.dispatcher.enqueue(kept, core.enter_lane(kept))

    def _enter_tried(self, kept: Kept, *, poisoned: bool) -> None:
        if kept.closing is not None:
            return  # nothing is stored behind its CLOSED
        core = self._core
        record = records.encode_tried(kept.uuid, core.now_us, kept.attempts, poisoned, kept.reason)
        core.enter(record, kept, _nothing, _nothing)  # at worst, a later start knows nothing of it

    def lost(self, requests: Sequence[Kept], now: float) -> None:
        """Requests that were acknowledged are not in the log any more: keep what is in memory."""
        core = self._core
        waiting = []
        for kept in requests:
            kept.place = None
            if kept.state is ANSWERED and kept.reply is None:
                self.lost_reply(kept, now)
            if kept.state is SENT:
                if kept.asked is not None:
                    core.emit(Cancel(kept))
                core.dispatcher.free(kept, core.lane_of(kept))
                kept.state = WAITING
            if kept.state is WAITING:
                waiting.append(kept)
        if waiting:
            self.put_aside(waiting, LOST, now)

    def lost_reply(self, kept: Kept, now: float) -> None:
        """A stored reply cannot be read, but the request can: a restart would have it run again,
        and so do we."""
        core = self._core
        core.answered -= 1
        kept.reply_place = None
        kept.reply_size = kept.answered_us = 0
        lane = core.enter_lane(kept)
        if kept.place is None:
            self.poison(kept, "its reply cannot be read, nor the request itself", now)
        else:
            core.dispatcher.enqueue(kept, lane)


def _nothing(_what: Any, _outcome: Any, _now: float) -> None:
    """There is nothing to be done when it is stored, nor when it is not."""
