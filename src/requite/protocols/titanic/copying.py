"""Replication: records are sent to the replica in the order of the log.

    asking ──position──► idle ──something is stored──► reading ──► sending
       ▲                   ▲                                          │
       └── resting ◄──┐    └────────────────position──────────────────┘
                      └── no answer, or an error

    SUPERSEDED: the replica was promoted; a final state, unless this Titanic is promoted again.

New records and those that a replica has missed take the same path: they are read from the log,
beginning with the number that the replica lacks. One batch is in flight at a time; under load,
batches grow. An idle replica is also polled, so that its promotion is noticed before a client
submits a request here.

With `Replicate.SYNC`, clients get no answer before the replica has the record: 200 for a
submission, a reply, 200 for closing. While the replica does not answer, submitting and closing are
refused (500), and replies that it lacks are pending (300); requests that are stored here are
dispatched nevertheless. After a start, no reply is served until the replica has everything.
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
from requite.protocols.titanic.requests import DurableRequest, Owner
from requite.protocols.titanic.tickets import ForReplica, Since
from requite.protocols.titanic.wire import ERROR, OK, REPLICATE, decode_status, encode_ticket
from requite.protocols.titanic.wire import refusal as status_frame
from requite.request import Reply, Status

COPY: Final = "copy"
BATCH_BYTES_MAX: Final = 1024 * 1024
_CAUSE_SIZE: Final = 16  # characters of an error that identify its kind; figures follow later
_REPLICA: Final = "replica"
_SUPERSEDED: Final = "superseded"


class State(Enum):
    """State of replication to the replica."""

    OFF = "off"
    ASKING = "asking"
    IDLE = "idle"
    READING = "reading"
    SENDING = "sending"
    RESTING = "resting"
    SUPERSEDED = "superseded"


class Copying:
    """Sends records to the replica. `written` is the number after the newest record stored here,
    `acked` the first number that the replica lacks (None: unknown). `error`: why replication fails;
    "" if it works."""

    def __init__(self, core: Core, log_id: bytes, next_number: int) -> None:
        self.acked: int | None = None
        self.error = "" if core.policy.replicate is Replicate.NO else "has not answered yet"
        self.written = next_number
        self._core = core
        self._log_id = log_id
        self._is_sync = core.policy.replicate is Replicate.SYNC
        self._state = State.OFF
        self._begins = False  # the next batch starts a full copy
        self._held: deque[tuple[int, Effect]] = deque()  # answers that wait for the replica
        self._later: deque[tuple[int, Callable[[float], None]]] = deque()  # callbacks
        self._unclosed: dict[bytes, tuple[int, Owner]] = {}  # closed here, and not at the replica
        self._caught_up_at = next_number
        core.is_catching_up = self._is_sync
        if self._is_sync:
            core.copy_first = self._copy_first

    # --- for the other parts ----------------------------------------------------------------------
    @property
    def view(self) -> str:
        """Mode and state of replication for operators; "" without a replica."""
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
        """Whether the replica has everything, or cannot be reached."""
        is_over = self._state in (State.OFF, State.RESTING, State.SUPERSEDED)
        return is_over or self.acked == self.written

    @property
    def refusal(self) -> str:
        """Why requests cannot be accepted; "" if they can."""
        if not (self._is_sync and self.error):
            return ""
        return f"synchronous replication fails: {self.error}"

    def emit_at(self, locations: Sequence[Any]) -> Callable[[Effect], None] | None:
        """Return a function that emits answers about these records once the replica has them; None
        if they can be emitted at once."""
        if self._state is State.SUPERSEDED:
            return self._refuse
        if not self._is_sync:
            return None
        number = locations[-1].number
        return lambda effect: self._held.append((number, effect))

    def holds(self, token: Any, request: DurableRequest) -> bool:
        """Hold the answer to a repeated submission until the replica has it; return False if it
        can be answered at once."""
        location = request.location
        if not self._is_sync or location is None or location.number < (self.acked or 0):
            return False
        answer = Finished(token, (OK, encode_ticket(request.uuid)), Status.OK)
        self._held.append((location.number, answer))
        return True

    def _copy_first(self, location: Any, done: Callable[[float], None]) -> None:
        """Call `done` once the replica has the record at that location."""
        self._later.append((location.number, done))

    def closed(self, request: DurableRequest, location: Any) -> Callable[[Effect], None] | None:
        """Record that a request is closed here; return how to emit its answers, as `emit_at`."""
        emit = self.emit_at([location])
        if emit is not None:
            self._unclosed[request.uuid] = location.number, request.owner
            self._copy_first(location, lambda _now: self._closed_there(request.uuid))
        return emit

    def _closed_there(self, uuid: bytes) -> None:
        self._unclosed.pop(uuid, None)

    def holds_closing(self, token: Any, uuid: bytes, owner: bytes) -> bool:
        """Hold or refuse the answer for an already closed request of that owner while the replica
        may not know that it is closed; return False if it can be answered at once."""
        number, whose = self._unclosed.get(uuid, (None, None))
        if whose is not None and not whose.admits(owner):
            number = None
        if number is None and not self._core.is_catching_up:
            return False
        if number is None or self.error:
            why = self.error or "it is still catching up"
            self._core.refuse(token, ERROR, f"closed here, but perhaps not at the replica: {why}")
        else:
            self._held.append((number, Finished(token, (OK,), Status.OK)))
        return True

    # --- inputs -----------------------------------------------------------------------------------
    def begin(self) -> None:
        """Start at the first `Wake`."""
        if self._core.policy.replicate is not Replicate.NO and not self._core.why_inactive:
            self._state = State.RESTING
            self._core.timers.set(COPY, 0.0)

    def resume(self, now: float) -> None:
        """Restart replication after this superseded Titanic was promoted again."""
        if self._state is State.SUPERSEDED:
            self._state, self.error = State.RESTING, "has not answered yet"
            self._core.timers.set(COPY, now)

    def due(self, now: float) -> None:
        """Ask the replica for its position, unless a batch is in flight."""
        if self._state in (State.RESTING, State.IDLE):
            self._state = State.ASKING
            self._submit(encode_batch(Batch(self._log_id, self.written, self.written)), now)

    def grew(self, locations: Sequence[Any]) -> None:
        """Record that records were stored at these locations."""
        if self._state is not State.OFF and locations:
            self.written = max(self.written, locations[-1].number + 1)
            if self._state is State.IDLE:
                self._maybe_read()

    def loaded(self, payload: bytes, now: float) -> None:
        """Send a batch that was read, unless it is empty; it may include copies made by
        compaction."""
        if self._state is not State.READING:
            return
        frames = unpack(payload)
        batch = decode_batch(frames)
        if batch.is_question:
            self._state = State.IDLE
            return
        self._state = State.SENDING
        self.written = max(self.written, batch.following)
        self._submit(frames, now)

    def reopened(self, next_number: int) -> None:
        """Adopt the next number of the reopened log, which may be higher or lower than before."""
        self.written = max(next_number, self.acked or 0)

    def load_failed(self, error: StorageError, now: float) -> None:
        """Retry later."""
        self._rest(f"the log cannot be read: {error}", now)

    def answered(self, outcome: Reply | CallError, now: float) -> None:
        """Handle the replica's answer."""
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
        """Record that the replica has everything before `number` of that log."""
        self.error = ""
        if log_id == self._log_id and number <= self.written:
            self.acked = number
            self._begins = False
            self._release(number, now)
        else:  # it has nothing of this log, or records that were lost here
            self.acked = 0
            self._begins = True
        was_asking, self._state = self._state is State.ASKING, State.IDLE
        self._core.timers.set(COPY, now + self._core.policy.replica_timeout_s)
        if self._core.trouble and self.acked == self.written:
            self._core.trouble.works(_REPLICA, now, calm_s=0.0)
        self._maybe_read(is_poll=was_asking)

    def _maybe_read(self, *, is_poll: bool = False) -> None:
        """Read what the replica lacks. A poll reads even if that is nothing: it tells the store,
        which keeps segments for the replica, how far the replica is."""
        assert self.acked is not None
        if self._begins or self.acked < self.written or is_poll:
            self._state = State.READING
            since = Since(self.acked, BATCH_BYTES_MAX, self._begins)
            self._core.emit(Load(ForReplica(self.acked), since))

    def _release(self, number: int, now: float) -> None:
        """Emit the answers and run the callbacks that waited for records before `number`."""
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
        """Stop serving because the replica was promoted; store that this Titanic is superseded."""
        core = self._core
        core.epoch, core.is_superseded = epoch, True
        core.halt(_SUPERSEDED)
        self._state, self.error = State.SUPERSEDED, core.why_inactive
        core.timers.clear(COPY)
        core.warn(_SUPERSEDED, f"{core.why_inactive}. It accepts and dispatches no more requests.")
        role = StoreRole(core.now_us, False, self._log_id, self.written, epoch, superseded=True)
        core.enter(encode_role(role), None, _nothing, self._not_remembered)
        self._refuse_held()

    def _not_remembered(self, _what: Any, error: StorageError, _now: float) -> None:
        text = f"this could not be stored; a restart will not remember it: {error}"
        self._core.warn(_SUPERSEDED, text)

    def _rest(self, error: str, now: float) -> None:
        """Pause replication after an error; refuse the held answers."""
        core = self._core
        core.trouble.failed(_REPLICA, error, now, cause=error[:_CAUSE_SIZE])
        self.error = error
        self._state = State.RESTING
        core.timers.set(COPY, now + core.policy.store_retry_s)
        self._refuse_held()

    def _refuse_held(self) -> None:
        """Refuse all held answers."""
        while self._held:
            self._refuse(self._held.popleft()[1])

    def _refuse(self, answer: Effect) -> None:
        assert isinstance(answer, Finished)
        text = f"stored here, but not at the replica: {self.error}"
        self._core.emit(replace(answer, frames=(status_frame(ERROR, text),)))


def _nothing(_what: Any, _location: Any, _now: float) -> None:
    """Do nothing once it is stored."""
