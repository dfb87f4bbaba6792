"""State shared by the parts of Titanic's engine: its tables, and the effects of a turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from requite.core.timers import Timers
from requite.engine import Effect, Finished, Load, Note, Rng, Warn
from requite.errors import RemoteViolation, StorageError
from requite.protocols.titanic.cache import Cache
from requite.protocols.titanic.dispatch import Dispatcher
from requite.protocols.titanic.policy import TitanicPolicy
from requite.protocols.titanic.requests import DurableRequest, Lane, Register
from requite.protocols.titanic.tickets import Entry
from requite.protocols.titanic.trouble import Trouble
from requite.protocols.titanic.wire import ERROR, UNKNOWN, decode_ticket, refusal
from requite.request import Status
from requite.trace_context import is_sampled

RECORD_SIZE_MAX: Final = 16 * 1024 * 1024 - 64
"""The maximum size of a log record, in bytes. The log has 16 MiB, of which encryption needs 45."""


Callback = Callable[[Any, Any, float], None]


class TitanicSnapshot(NamedTuple):
    """Counts and state of Titanic. `requests` counts all stored requests; `waiting`, `sent`,
    `answered` and `poisoned` those in a state; `storing` the unanswered orders to the store; `held`
    the answers that wait for the replica; `timers` and `lanes` are table sizes (I9).

    `replica`: this is a replica; `superseded`: its replica was promoted and has taken over; `epoch`
    counts promotions. `replicating` is the state of replication ("": no replica), `behind` the
    number of records that the replica lacks. `trouble` lists current failures, `failure` is the
    error that stopped the store; both are "" if all is well.
    """

    requests: int
    waiting: int
    sent: int
    answered: int
    poisoned: int
    storing: int
    held: int
    keys: int
    cached_bytes: int
    lanes: int
    timers: int
    replica: bool
    replicating: str
    behind: int
    draining: bool
    stopped: bool
    epoch: int = 0
    superseded: bool = False
    trouble: str = ""
    failure: str = ""


class Core:
    """The tables of one Titanic.

    `failure`: the error that stopped the store. `storing` counts unanswered orders to the store;
    `answered` and `poisoned` count requests in these states. `copy_first(location, done)` calls
    `done` once the replica has a record; None if nothing waits for the replica.
    """

    def __init__(
        self, policy: TitanicPolicy, rng: Rng, new_uuid: Callable[[], bytes], epoch_s: float
    ) -> None:
        self.policy = policy
        self.rng = rng
        self.new_uuid = new_uuid
        self.epoch_s = epoch_s
        self.now_us = 0
        self.out: list[Effect] = []
        self.timers: Timers[Any] = Timers()
        self.register = Register()
        self.cache = Cache(policy.cache_bytes_max)
        self.dispatcher = Dispatcher(policy, rng, self.timers, self.emit)
        self.submissions: list[DurableRequest] = []  # of this turn
        self.submitted: list[bytes] = []  # their records
        self.entries: list[Entry] = []
        self.entered: list[bytes] = []
        self.storing = 0
        self.answered = self.poisoned = 0
        self.failure: StorageError | None = None
        self.is_damaged = False  # requests may be missing
        self.is_replica = False
        self.is_superseded = False
        self.is_catching_up = False  # the replica may lack records of earlier processes
        self.copy_first: Callable[[Any, Callable[[float], None]], None] | None = None
        self.epoch = 0  # the highest known; see `replication`
        self.trouble = Trouble(self.warn)
        self._halts: set[str] = set()

    # --- effects ----------------------------------------------------------------------------------
    def emit(self, effect: Effect) -> None:
        """Emit an effect."""
        self.out.append(effect)

    def enter(self, record: bytes, what: Any, stored: Callback, failed: Callback) -> None:
        """Store a record together with the others of this turn, then call
        `stored(what, location, now)` or `failed(what, error, now)`."""
        self.entered.append(record)
        self.entries.append(Entry(what, stored, failed))

    def load(self, ticket: Any, location: Any) -> None:
        """Read a record."""
        self.storing += 1
        self.out.append(Load(ticket, location))

    def answer(self, token: Any, *frames: bytes) -> None:
        """Answer the request with that token."""
        self.out.append(Finished(token, frames, Status.OK))

    def refuse(self, token: Any, code: int, text: str) -> None:
        """Answer with a status and a reason."""
        self.out.append(Finished(token, (refusal(code, text),)))

    def not_stored(self, token: Any, error: StorageError) -> None:
        """Answer that a record could not be stored."""
        self.refuse(token, ERROR, f"not stored: {error}")

    def warn(self, kind: str, text: str) -> None:
        """Emit a warning for the operator."""
        self.out.append(Warn(kind, text))

    def note(self, kind: str, request: DurableRequest, **facts: Any) -> None:
        """Emit a note, if notes are enabled or the request's trace is sampled."""
        policy = self.policy
        if policy.notes or (policy.notes_traces and is_sampled(request.trace)):
            known: dict[str, Any] = {"uuid": request.uuid}
            if request.trace:
                known |= {
                    "trace": request.trace,
                    "service": self.lane_of(request).name,
                    "attempts": request.attempts,
                    "submitted_us": request.submitted_us,
                }
            self.out.append(Note(kind, known | facts))

    @property
    def why_inactive(self) -> str:
        """Why another Titanic is active; "" if this one is."""
        if self.is_superseded:
            return f"this Titanic was superseded: its replica was promoted (epoch {self.epoch})"
        return "this is a replica" if self.is_replica else ""

    # --- requests ---------------------------------------------------------------------------------
    def find(
        self, token: Any, frames: Sequence[bytes], owner: bytes | None
    ) -> DurableRequest | None:
        """Return the owner's request with that ticket (None: anybody's), or answer 400: a ticket of
        another owner is unknown."""
        uuid = self.uuid(token, frames)
        request = None if uuid is None else self.register.find(uuid)
        if request is not None and owner is not None and not request.owner.admits(owner):
            request = None
        if uuid is not None and request is None:
            self.refuse_unknown(token)
        return request

    def refuse_unknown(self, token: Any) -> None:
        """Answer 400: there is no request with that ticket."""
        why = "closed, or never accepted"
        lost = ", or lost: the log is damaged" if self.is_damaged else ""
        self.refuse(token, UNKNOWN, f"no such request: {why}{lost}")

    def uuid(self, token: Any, frames: Sequence[bytes]) -> bytes | None:
        """Decode the ticket, or answer 400."""
        try:
            return decode_ticket(frames[0] if frames else b"")
        except RemoteViolation as violation:
            self.refuse(token, UNKNOWN, str(violation))
            return None

    def lane_of(self, request: DurableRequest) -> Lane:
        """Return the lane of a request."""
        assert request.lane is not None
        return request.lane

    def enter_lane(self, request: DurableRequest) -> Lane:
        """Count a request as unanswered again; recreate its lane if it was dropped."""
        request.lane = lane = self.dispatcher.stored_lane(self.lane_of(request).name)
        lane.open += 1
        return lane

    def leave_lane(self, request: DurableRequest, now: float) -> None:
        """Stop counting a request as unanswered."""
        lane = self.lane_of(request)
        lane.open -= 1
        self.dispatcher.maybe_drop(lane, now)

    def halt(self, reason: str, is_so: bool = True) -> None:
        """Set or clear a reason to dispatch nothing."""
        (self._halts.add if is_so else self._halts.discard)(reason)
        self.dispatcher.halted = bool(self._halts)
