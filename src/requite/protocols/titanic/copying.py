"""Keeping a replica: what is stored here is sent there, in the order of the log.

    asking ──position──► idle ──something is stored──► reading ──► sending
       ▲                   ▲                                          │
       └── resting ◄──┐    └────────────────position──────────────────┘
                      └── no answer, or none that helps

    SUPERSEDED: the replica was promoted. It is the last word.

There is one way for what is new and for what a replica has missed: records are read from the log,
from the number on that the replica lacks. One batch is under way at a time; the larger it gets, the
more records share it. A replica of which nothing is wanted is asked now and then all the same: that
it was promoted has to be known here before anybody submits something.

With `Replicate.SYNC` nothing is told before the replica has it: 200 for a submission, a reply, 200
for what was closed. While the replica does not answer, submissions and closing are refused (500),
and replies that it does not have are pending (300). What was stored here by then is dispatched all
the same. A process that has just started does not know what the replica has, and tells no reply
until that has everything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, Final

from requite.engine import Effect, Finished, Load, Submit
from requite.errors import CallError, RemoteViolation, StorageError
from requite.protocols.titanic.core import Core
from requite.protocols.titanic.policy import Replicate
from requite.protocols.titanic.records import StoreRole, encode_role
from requite.protocols.titanic.replication import (
    Batch,
    decode_batch,
    decode_position,
    decode_superseded,
    encode_batch,
    of_epoch,
    unpack,
)
from requite.protocols.titanic.requests import DurableRequest
from requite.protocols.titanic.tickets import ForReplica, Since
from requite.protocols.titanic.wire import ERROR, OK, REPLICATE, decode_status, encode_ticket
from requite.protocols.titanic.wire import refusal as status_frame
from requite.request import Reply, Status

COPY: Final = "copy"
BATCH_BYTES_MAX: Final = 1024 * 1024
_CAUSE_SIZE: Final = 16  # so much of an error tells its kind; figures are behind that
_REPLICA: Final = "replica"
_SUPERSEDED: Final = "superseded"


class State(Enum):
    """What is under way between this Titanic and its replica."""

    OFF = "off"
    ASKING = "asking"
    IDLE = "idle"
    READING = "reading"
    SENDING = "sending"
    RESTING = "resting"
    SUPERSEDED = "superseded"


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
        self._held: deque[tuple[int, Effect]] = deque()  # answers that wait for the replica
        self._later: deque[tuple[int, Callable[[float], None]]] = deque()  # what else waits for it
        self._unclosed: dict[bytes, int] = {}  # closed here, and not at the replica
        self._caught_up_at = next_number
        core.is_catching_up = self._is_sync
        if self._is_sync:
            core.copy_first = self._copy_first

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
        is_over = self._state in (State.OFF, State.SUPERSEDED)
        return 0 if is_over else self.written - (self.acked or 0)

    @property
    def held(self) -> int:
        """How many answers wait for the replica."""
        return len(self._held)

    @property
    def is_done(self) -> bool:
        """Whether the replica has everything, or cannot have it."""
        is_over = self._state in (State.OFF, State.RESTING, State.SUPERSEDED)
        return is_over or self.acked == self.written

    @property
    def refusal(self) -> str:
        """Why nothing can be accepted; "" if something can."""
        if not (self._is_sync and self.error):
            return ""
        return f"the replica, which is to have everything at once: {self.error}"

    def emit_at(self, locations: Sequence[Any]) -> Callable[[Effect], None] | None:
        """Return how answers are to be given about records at those locations: None, at once; else
        when the replica has them."""
        if self._state is State.SUPERSEDED:
            return self._refuse
        if not self._is_sync:
            return None
        number = locations[-1].number
        return lambda effect: self._held.append((number, effect))

    def holds(self, token: Any, request: DurableRequest) -> bool:
        """Answer a submission that came before when the replica has it; or say that it has."""
        location = request.location
        if not self._is_sync or location is None or location.number < (self.acked or 0):
            return False
        answer = Finished(token, (OK, encode_ticket(request.uuid)), Status.OK)
        self._held.append((location.number, answer))
        return True

    def _copy_first(self, location: Any, done: Callable[[float], None]) -> None:
        """Have something done once the replica has the record at that location."""
        self._later.append((location.number, done))

    def closed(self, uuid: bytes, location: Any) -> Callable[[Effect], None] | None:
        """Take note that a request is closed here; return how to tell, as `emit_at` does."""
        emit = self.emit_at([location])
        if emit is not None:
            self._unclosed[uuid] = location.number
            self._copy_first(location, lambda _now: self._closed_there(uuid))
        return emit

    def _closed_there(self, uuid: bytes) -> None:
        self._unclosed.pop(uuid, None)

    def holds_closing(self, token: Any, uuid: bytes) -> bool:
        """Answer one who closes what is closed here, if the replica may not know of that; or say
        that it does."""
        number = self._unclosed.get(uuid)
        if number is None and not self._core.is_catching_up:
            return False
        if number is None or self.error:
            why = self.error or "it is being sent what it lacks"
            self._core.refuse(token, ERROR, f"closed here, but perhaps not at the replica: {why}")
        else:
            self._held.append((number, Finished(token, (OK,), Status.OK)))
        return True

    # --- inputs -----------------------------------------------------------------------------------
    def begin(self) -> None:
        """Start at the first `Wake`."""
        if self._core.policy.replicate is not Replicate.NO and not self._core.bystander:
            self._state = State.RESTING
            self._core.timers.set(COPY, 0.0)

    def resume(self, now: float) -> None:
        """Begin again, an operator having made this one the first again."""
        if self._state is State.SUPERSEDED:
            self._state, self.error = State.RESTING, "has not answered yet"
            self._core.timers.set(COPY, now)

    def due(self, now: float) -> None:
        """Ask the replica where it is, if nothing else is asked of it."""
        if self._state in (State.RESTING, State.IDLE):
            self._state = State.ASKING
            self._submit(encode_batch(Batch(self._log_id, self.written, self.written)), now)

    def grew(self, locations: Sequence[Any]) -> None:
        """Take note of what has been stored."""
        if self._state is not State.OFF and locations:
            self.written = max(self.written, locations[-1].number + 1)
            if self._state is State.IDLE:
                self._maybe_read()

    def loaded(self, payload: bytes, now: float) -> None:
        """Send what was read; copies that compaction made are among it."""
        if self._state is State.READING:
            self._state = State.SENDING
            frames = unpack(payload)
            self.written = max(self.written, decode_batch(frames).following)
            self._submit(frames, now)

    def reopened(self, next_number: int) -> None:
        """The log was opened again, and may have come further, or less far."""
        self.written = max(next_number, self.acked or 0)

    def load_failed(self, error: StorageError, now: float) -> None:
        """Try again later."""
        self._rest(f"the log cannot be read: {error}", now)

    def answered(self, outcome: Reply | CallError, now: float) -> None:
        """Take what the replica says."""
        if self._state is State.SUPERSEDED:
            return
        if isinstance(outcome, CallError):
            self._rest(f"{type(outcome).__name__}: {outcome}", now)
            return
        epoch = decode_superseded(outcome.frames)
        if epoch is not None and epoch > self._core.epoch:
            self._step_down(epoch)
            return
        try:
            status = decode_status(outcome.frames[0])
            if status.code != 200:
                self._rest(f"{status.code} {status.text}", now)
                return
            self._is_at(*decode_position(outcome.frames), now)
        except RemoteViolation as violation:
            self._rest(str(violation), now)

    # --- inside -----------------------------------------------------------------------------------
    def _is_at(self, log_id: bytes, number: int, now: float) -> None:
        """The replica has everything before `number` of that log."""
        self.error = ""
        if log_id == self._log_id and number <= self.written:
            self.acked = number
            self._begins = False
            self._release(number, now)
        else:  # it has nothing of this log, or what was lost here
            self.acked = 0
            self._begins = True
        self._state = State.IDLE
        self._core.timers.set(COPY, now + self._core.policy.replica_timeout_s)
        if self._core.trouble and self.acked == self.written:
            self._core.trouble.works(_REPLICA, now, calm_s=0.0)
        self._maybe_read()

    def _maybe_read(self) -> None:
        assert self.acked is not None
        if self._begins or self.acked < self.written:
            self._state = State.READING
            since = Since(self.acked, BATCH_BYTES_MAX, self._begins)
            self._core.emit(Load(ForReplica(self.acked), since))

    def _release(self, number: int, now: float) -> None:
        """Tell, and do, what has waited for the replica to have it."""
        held, later = self._held, self._later
        if number >= self._caught_up_at:
            self._core.is_catching_up = False
        while later and later[0][0] < number:
            later.popleft()[1](now)
        while held and held[0][0] < number:
            self._core.emit(held.popleft()[1])

    def _submit(self, frames: Sequence[bytes], now: float) -> None:
        due_at = now + self._core.policy.replica_timeout_s
        frames = of_epoch(frames, self._core.epoch)
        self._core.emit(Submit(self, REPLICATE, frames, due_at))

    def _step_down(self, epoch: int) -> None:
        """Leave everything to the replica, which was promoted; and remember that."""
        core = self._core
        core.epoch, core.is_superseded = epoch, True
        core.halt(_SUPERSEDED)
        self._state, self.error = State.SUPERSEDED, core.bystander
        core.timers.clear(COPY)
        core.warn(_SUPERSEDED, f"{core.bystander}. It takes and sends nothing any more.")
        role = StoreRole(core.now_us, False, self._log_id, self.written, epoch, superseded=True)
        core.enter(encode_role(role), None, _nothing, self._not_remembered)
        self._refuse_held()

    def _not_remembered(self, _what: Any, error: StorageError, _now: float) -> None:
        text = f"the next process on this folder will not know of it by itself: {error}"
        self._core.warn(_SUPERSEDED, text)

    def _rest(self, error: str, now: float) -> None:
        """Leave the replica alone for a while; nobody is kept waiting for it."""
        core = self._core
        core.trouble.failed(_REPLICA, error, now, cause=error[:_CAUSE_SIZE])
        self.error = error
        self._state = State.RESTING
        core.timers.set(COPY, now + core.policy.store_retry_s)
        self._refuse_held()

    def _refuse_held(self) -> None:
        """Let nobody wait for the replica any more."""
        while self._held:
            self._refuse(self._held.popleft()[1])

    def _refuse(self, answer: Effect) -> None:
        assert isinstance(answer, Finished)
        text = f"stored here, but not at the replica: {self.error}"
        self._core.emit(replace(answer, frames=(status_frame(ERROR, text),)))


def _nothing(_what: Any, _location: Any, _now: float) -> None:
    """There is nothing to be done when it is stored."""
