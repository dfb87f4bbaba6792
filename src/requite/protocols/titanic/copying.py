"""Keeping a replica: what is stored here is sent there, in the order of the log.

    asking ──position──► idle ──something is stored──► reading ──► sending
       ▲                   ▲                                          │
       └── resting ◄──┐    └────────────────position──────────────────┘
                      └── no answer, or none that helps

There is one way for what is new and for what a replica has missed: records are read from the log,
from the number on that the replica lacks. One batch is under way at a time; the larger it gets, the
more records share it.

With `Replicate.SYNC`, 200 is told for a submission once the replica has it; while the replica does
not answer, submissions are refused (500). What was stored here by then is dispatched all the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final

from requite.engine import Effect, Finished, Load, Submit
from requite.errors import CallError, RemoteViolation, StorageError
from requite.protocols.titanic.core import Core
from requite.protocols.titanic.policy import Replicate
from requite.protocols.titanic.replication import (
    Batch,
    decode_batch,
    decode_position,
    encode_batch,
    unpack,
)
from requite.protocols.titanic.requests import Kept
from requite.protocols.titanic.tickets import ForReplica, Since
from requite.protocols.titanic.wire import ERROR, OK, REPLICATE, decode_status, encode_ticket
from requite.protocols.titanic.wire import refusal as status_frame
from requite.request import Reply, Status

COPY: Final = "copy"
BATCH_BYTES_MAX: Final = 1024 * 1024


class State(Enum):
    """What is under way between this Titanic and its replica."""

    OFF = "off"
    ASKING = "asking"
    IDLE = "idle"
    READING = "reading"
    SENDING = "sending"
    RESTING = "resting"


class Copying:
    """The replica's sender. `written` is the number after the newest record that is stored here,
    `acked` the one that the replica lacks (None: not known). `error`: why it gets nothing."""

    def __init__(self, core: Core, log_id: bytes, next_number: int) -> None:
        self.acked: int | None = None
        self.error = "" if core.policy.replicate is Replicate.NO else "has not answered yet"
        self.written = next_number
        self._core = core
        self._log_id = log_id
        self._is_sync = core.policy.replicate is Replicate.SYNC
        self._state = State.OFF
        self._begins = False  # the next batch is the first of everything
        self._held: deque[tuple[int, Effect]] = deque()

    # --- for the other parts ----------------------------------------------------------------------
    @property
    def view(self) -> str:
        """What is to be told of the replica; "" if there is none."""
        mode = self._core.policy.replicate
        if mode is Replicate.NO:
            return ""
        return f"{mode.value}: {self.error or self._state.value}"

    @property
    def behind(self) -> int:
        """How many records the replica lacks."""
        return 0 if self._state is State.OFF else self.written - (self.acked or 0)

    @property
    def held(self) -> int:
        """How many answers wait for the replica."""
        return len(self._held)

    @property
    def is_done(self) -> bool:
        """Whether the replica has everything, or cannot have it."""
        return self._state in (State.OFF, State.RESTING) or self.acked == self.written

    @property
    def refusal(self) -> str:
        """Why nothing can be accepted; "" if something can."""
        if not (self._is_sync and self.error):
            return ""
        return f"the replica, which is to have everything at once: {self.error}"

    def emit_at(self, places: Sequence[Any]) -> Callable[[Effect], None] | None:
        """Return how answers are to be given about records at those places: None, at once; else
        when the replica has them."""
        if not self._is_sync:
            return None
        number = places[-1].number
        return lambda effect: self._held.append((number, effect))

    def holds(self, token: Any, kept: Kept) -> bool:
        """Answer a submission that came before when the replica has it; or say that it has."""
        place = kept.place
        if not self._is_sync or place is None or place.number < (self.acked or 0):
            return False
        answer = Finished(token, (OK, encode_ticket(kept.uuid)), Status.OK)
        self._held.append((place.number, answer))
        return True

    # --- inputs -----------------------------------------------------------------------------------
    def begin(self) -> None:
        """Start at the first `Wake`."""
        if self._core.policy.replicate is not Replicate.NO and not self._core.is_replica:
            self._state = State.RESTING
            self._core.timers.set(COPY, 0.0)

    def due(self, now: float) -> None:
        """Ask the replica where it is."""
        self._state = State.ASKING
        self._submit(encode_batch(Batch(self._log_id, self.written, self.written)), now)

    def grew(self, places: Sequence[Any]) -> None:
        """Take note of what has been stored."""
        if self._state is not State.OFF and places:
            self.written = max(self.written, places[-1].number + 1)
            if self._state is State.IDLE:
                self._maybe_read()

    def loaded(self, payload: bytes, now: float) -> None:
        """Send what was read; copies that compaction made are among it."""
        if self._state is State.READING:
            self._state = State.SENDING
            frames = unpack(payload)
            self.written = max(self.written, decode_batch(frames).following)
            self._submit(frames, now)

    def load_failed(self, error: StorageError, now: float) -> None:
        """Try again later."""
        self._rest(f"the log cannot be read: {error}", now)

    def came(self, outcome: Reply | CallError, now: float) -> None:
        """Take what the replica says."""
        if isinstance(outcome, CallError):
            self._rest(f"{type(outcome).__name__}: {outcome}", now)
            return
        try:
            status = decode_status(outcome.frames[0])
            if status.code != 200:
                self._rest(f"{status.code} {status.text}", now)
                return
            self._is_at(*decode_position(outcome.frames))
        except RemoteViolation as violation:
            self._rest(str(violation), now)

    # --- inside -----------------------------------------------------------------------------------
    def _is_at(self, log_id: bytes, number: int) -> None:
        """The replica has everything before `number` of that log."""
        self.error = ""
        if log_id == self._log_id and number <= self.written:
            self.acked = number
            self._begins = False
            self._release(number)
        else:  # it has nothing of this log, or what was lost here
            self.acked = 0
            self._begins = True
        self._state = State.IDLE
        self._maybe_read()

    def _maybe_read(self) -> None:
        assert self.acked is not None
        if self._begins or self.acked < self.written:
            self._state = State.READING
            since = Since(self.acked, BATCH_BYTES_MAX, self._begins)
            self._core.emit(Load(ForReplica(self.acked), since))

    def _release(self, number: int) -> None:
        held = self._held
        while held and held[0][0] < number:
            self._core.emit(held.popleft()[1])

    def _submit(self, frames: Sequence[bytes], now: float) -> None:
        due_at = now + self._core.policy.replica_timeout_s
        self._core.emit(Submit(self, REPLICATE, frames, due_at))

    def _rest(self, error: str, now: float) -> None:
        """Leave the replica alone for a while; nobody is kept waiting for it."""
        core = self._core
        if not self.error:
            core.warn("replica", error)
        self.error = error
        self._state = State.RESTING
        core.timers.set(COPY, now + core.policy.store_retry_s)
        text = status_frame(ERROR, f"stored here, but not at the replica: {error}")
        while self._held:
            answer = self._held.popleft()[1]
            assert isinstance(answer, Finished)
            core.emit(answer._replace(frames=(text,)))
