"""The history of a run: calls, executions of handlers, and the requests of the broker.

Three independent sources report on a call. The client: submitted, partial, ended. The handlers:
started, stopped. The broker, by its notes and by the inputs and effects of its engine: accepted,
dispatched, answered (one `Trace` each time the call is sent). `History` updates its objects and
notifies each checker by the name of the event; checkers compare the sources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from inspect import isfunction
from typing import TYPE_CHECKING, Any, Final

from requite.errors import CallError
from requite.request import Partial, Reply

if TYPE_CHECKING:
    from requite.sim.kernel.world import World

_VIOLATIONS_MAX: Final = 50  # of each invariant; a run with more is broken in general


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated invariant: its id, the time, and the evidence."""

    invariant: str
    at_s: float
    text: str

    def __str__(self) -> str:
        return f"{self.invariant} at {self.at_s:.4f} s: {self.text}"


@dataclass(slots=True, eq=False)
class Call:
    """One call as its client made it. Times are in world time.

    `frozen_s`: how long the client had been frozen before. `carries_idempotency`: its dialect
    carries `key`, and whether the call is idempotent. `partials`: those that the user received.
    `answered_by`: the workers whose reply the broker forwarded. `sent`: how often the broker
    accepted the call.
    `abandoned`: its client's process ended, and no user waits for the call.
    """

    number: int
    client: str
    service: str
    payload: bytes
    due_at: float
    idempotent: bool
    carries_idempotency: bool
    key: bytes
    tries_max: int
    submitted_at: float
    frozen_s: float
    partials: list[Sequence[bytes]] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    answered_by: list[str] = field(default_factory=list)
    sent: int = 0
    cancelled: bool = False
    abandoned: bool = False
    ended_at: float | None = None
    outcome: Reply | CallError | None = None

    def __str__(self) -> str:
        return f"call {self.number} of {self.client}"


@dataclass(slots=True, eq=False)
class Execution:
    """One run of a handler for a call, with the `payload` and the `key` that it received."""

    serial: int
    call: Call
    worker: str
    payload: bytes
    key: bytes
    ended: str = ""  # how it ended; "" while it runs

    def __str__(self) -> str:
        return f"execution {self.serial} on {self.worker}"


@dataclass(slots=True, eq=False)
class Trace:
    """One request at the broker since its last start, by the id from its client or the broker.

    `owner` is the connection of the worker that has it, under `dispatch_id`; `attempts` counts its
    dispatches. `withdrawn`: the broker received a cancellation, even if it ignored it.
    """

    call: Call
    client: str  # the identity of the client's connection, in hex
    request_id: int
    service: str
    arrived_at: float
    expires_at: float
    excused_s: float  # how long the broker had been frozen before
    state: str = "accepted"
    owner: bytes | None = None
    owner_name: str = ""
    dispatch_id: int = 0
    dispatched_at: float = 0.0
    vouched_at: float = 0.0  # when the broker last received progress from its worker
    vouched_s: float = 0.0  # the extension that the worker asked for, if any
    attempts: int = 0
    partials: int = 0
    withdrawn: str = ""

    def __str__(self) -> str:
        return f"request {self.request_id} ({self.call})"


EVENTS: Final = (
    "submitted",
    "cancelled",
    "partial",
    "ended",
    "execution_started",
    "broker_started",
    "broker_ended",
    "broker_rested",
    "accepted",
    "queued",
    "put_off",
    "dispatched",
    "passed_on",
    "redelivered",
    "answered",
    "withdrawn",
    "unknown_request",
    "worker_joined",
    "worker_lost",
    "worker_drained",
    "worker_blocked",
    "worker_writable",
    "process_failed",
    "expelled",
    "spoke",
    "not_told",
    "finished",
    # events of engines: see `requite.sim.kernel.hub`
    "hub_started",
    "hub_ended",
    "channel_lost",
    "channel_up",
    "channel_down",
    "caller_up",
    "caller_down",
    "batch_came",
    "request_came",
    "request_sent",
    "call_sent",
    "request_taken",
    "reply_came",
    "reply_sent",
    "sent_in_vain",
    "sent_away",
    "gave_up",
    "turns_unknown",
    "rested",
    # events of RabbitMQ: see `requite.sim.rabbitmq.server`
    "protocol_error",
    "acked_unanswered",
    "silent",
    # events of services that run each request once: see `requite.sim.dedup.workers`
    "effect_began",
    "effect_ended",
    # events of a pair of brokers: see `requite.sim.paired.brokers`
    "served",
    "pair_changed",
    # events of a broker with an access file: see `requite.sim.rights.watch`
    "rights_changed",
    "request_given",
    "principal_named",
    "client_told",
    "request_held",
    "request_let_go",
    "quota_reached",
    "request_denied",
    "worker_denied",
    "principal_expelled",
)


class Checker:
    """Checks one invariant. Subclasses define a method for each event that they need, by its name.

    `invariant` is the id in ARCHITECTURE.md, `sentence` its text.
    """

    invariant: str
    sentence: str

    def __init_subclass__(cls, **options: Any) -> None:
        """Raise `TypeError` for a method that is not named after an event: nothing would call
        it."""
        super().__init_subclass__(**options)
        for name, value in vars(cls).items():
            is_own = not name.startswith("_") and not hasattr(Checker, name)
            if is_own and isfunction(value) and name not in EVENTS:
                raise TypeError(f"{cls.__name__}.{name}: there is no such event in EVENTS")

    def __init__(self, history: History) -> None:
        self.history = history

    @property
    def knobs(self) -> Any:
        """The knobs of the run: what it allows."""
        return self.history.knobs

    @property
    def now(self) -> float:
        """The time of the world, in seconds."""
        return self.history.world.now

    def violate(self, text: str) -> None:
        """Report a violation of the invariant, with the evidence."""
        self.history.violate(self.invariant, text)


class History:
    """All calls, executions and violations of a run; notifies the checkers."""

    def __init__(self, world: World, checkers: Sequence[type[Checker]], knobs: Any = None) -> None:
        self.world = world
        self.knobs = knobs
        self.calls: dict[int, Call] = {}
        self.open: dict[int, Call] = {}
        self.executions: dict[int, Execution] = {}
        self.violations: list[Violation] = []
        self._violated: Counter[str] = Counter()
        self.stop_at = ""  # the first violation of this invariant ends the run
        self.outcomes: Counter[str] = Counter()
        self.checkers = [checker(self) for checker in checkers]
        self.hearers: dict[str, list[Callable[..., None]]] = {
            event: [getattr(c, event) for c in self.checkers if hasattr(c, event)]
            for event in EVENTS
        }

    def tell(self, event: str, *what: Any) -> None:
        """Notify all checkers that have a method for the event, one of `EVENTS`."""
        for hear in self.hearers[event]:
            hear(*what)

    def violate(self, invariant: str, text: str) -> None:
        """Record a violation."""
        self._violated[invariant] += 1
        if self._violated[invariant] <= _VIOLATIONS_MAX:
            self.violations.append(Violation(invariant, self.world.now, text))
            if invariant == self.stop_at:
                self.world.stop()

    # --- the client's testimony -------------------------------------------------------------------
    def submitted(self, call: Call) -> None:
        """Record a new call."""
        self.calls[call.number] = self.open[call.number] = call
        self.tell("submitted", call)

    def cancelled(self, call: Call) -> None:
        """Record that the user cancelled a call."""
        call.cancelled = True
        self.tell("cancelled", call)

    def delivered(self, call: Call, partial: Partial) -> None:
        """Record that the user received a partial reply."""
        self.tell("partial", call, partial)
        call.partials.append(partial.frames)

    def ended(self, call: Call, outcome: Reply | CallError, frozen_s: float) -> None:
        """Record the end of a call; `frozen_s` is how long its client has been frozen in total."""
        call.frozen_s = frozen_s - call.frozen_s
        self.tell("ended", call, outcome)
        self.open.pop(call.number, None)
        call.ended_at = self.world.now
        call.outcome = outcome
        self.outcomes["OK" if isinstance(outcome, Reply) else type(outcome).__name__] += 1

    def client_died(self, client: str) -> None:
        """Mark the open calls of a client as abandoned."""
        for call in [call for call in self.open.values() if call.client == client]:
            call.abandoned = True
            self.outcomes["abandoned"] += 1
            del self.open[call.number]

    # --- the handlers' testimony ------------------------------------------------------------------
    def started(self, call: Call, worker: str, payload: bytes, key: bytes) -> Execution:
        """Record the start of a handler."""
        serial = len(self.executions) + 1
        execution = Execution(serial, call, worker, payload, key)
        self.executions[serial] = execution
        call.executions.append(execution)
        self.tell("execution_started", execution)
        return execution

    def finish(self) -> None:
        """Notify the checkers that the run has ended."""
        self.tell("finished")
