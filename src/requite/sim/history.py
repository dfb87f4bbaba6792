"""What has happened in a run, as nouns: calls, what handlers did, and what the broker held.

Three independent witnesses tell of one call. Its client: submitted, given partials, ended. The
handlers: started, stopped. And the broker, by its notes and by what goes in and out of its engine:
accepted, dispatched, answered (a `Trace` each time the call is sent). `History` keeps the nouns up
to date and lets each checker know, by the name of the event; checkers compare the witnesses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from requite.errors import CallError
from requite.request import Partial, Reply

if TYPE_CHECKING:
    from requite.sim.world import World

_VIOLATIONS_MAX: Final = 50  # a run with more is broken in general


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that did not hold: which, when, and what was seen."""

    invariant: str
    at_s: float
    text: str

    def __str__(self) -> str:
        return f"{self.invariant} at {self.at_s:.4f} s: {self.text}"


@dataclass(slots=True, eq=False)
class Call:
    """One call as its client made it. Times are the world's.

    `frozen_s` is how long the client's process had stood still before. `is_told`: its dialect can
    say that it is not idempotent, and carry `key`. `partials` were given to the user. `answered_by`
    are the workers whose reply the broker passed on; `sent` counts how often the broker accepted
    it. `abandoned`: its client's process died, and nobody waits for the call any more.
    """

    number: int
    client: str
    service: str
    payload: bytes
    due_at: float
    idempotent: bool
    is_told: bool
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
    """One run of a handler for a call, with the `payload` and the `key` it was given."""

    serial: int
    call: Call
    worker: str
    payload: bytes
    key: bytes
    ended: str = ""  # how; "" while it runs

    def __str__(self) -> str:
        return f"execution {self.serial} on {self.worker}"


@dataclass(slots=True, eq=False)
class Trace:
    """One request in one life of the broker, under the id its client or the broker gave it.

    `owner` is the connection of the worker that holds it, under `dispatch_id`; `attempts` counts
    its dispatches. `withdrawn`: the broker has been told that nobody waits for it, whether it took
    note or not.
    """

    call: Call
    client: str  # the identity of the client's connection, in hex
    request_id: int
    service: str
    arrived_at: float
    expires_at: float
    excused_s: float  # how long the broker had stood still before
    state: str = "accepted"
    owner: bytes | None = None
    owner_name: str = ""
    dispatch_id: int = 0
    dispatched_at: float = 0.0
    vouched_at: float = 0.0  # when its worker last showed progress, as far as the broker has heard
    vouched_s: float = 0.0  # for how long, if it said so
    attempts: int = 0
    partials: int = 0
    withdrawn: str = ""

    def __str__(self) -> str:
        return f"request {self.request_id} ({self.call})"


class Checker:
    """What must hold. Subclasses define methods named like the events they want to hear of.

    `invariant` is the id in ARCHITECTURE.md, `sentence` what it says.
    """

    invariant: str
    sentence: str

    def __init__(self, history: History) -> None:
        self.history = history

    @property
    def knobs(self) -> Any:
        """The knobs of the run: what it allows."""
        return self.history.knobs

    def violate(self, text: str) -> None:
        """Report that the invariant does not hold, with the evidence."""
        self.history.violate(self.invariant, text)


EVENTS: Final = (
    "submitted",
    "cancelled",
    "partial",
    "ended",
    "execution_started",
    "broker_started",
    "broker_ended",
    "accepted",
    "queued",
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
    "gave_up_on_broker",
    "sent",
    "spoke",
    "not_told",
    "finished",
    # those of the scalability protocols: see `requite.sim.scalability.watch`
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
    "request_taken",
    "reply_came",
    "reply_sent",
    "sent_in_vain",
    "sent_away",
    "gave_up",
    "turns_unknown",
    "rested",
    # those of RPC over AMQP: see `requite.sim.amqp.watch` and `requite.sim.amqp.server`
    "request_returned",
    "mistaken",
    "acked_unanswered",
    "silent",
    "left",
    # those of services that run each request once: see `requite.sim.dedup.workers`
    "effect_began",
    "effect_ended",
    # those of a pair of brokers: see `requite.sim.paired.brokers`
    "served",
    "pair_changed",
)


class History:
    """All nouns of a run, and who wants to hear of changes."""

    def __init__(self, world: World, checkers: Sequence[type[Checker]], knobs: Any = None) -> None:
        self.world = world
        self.knobs = knobs
        self.calls: dict[int, Call] = {}
        self.open: dict[int, Call] = {}
        self.executions: dict[int, Execution] = {}
        self.violations: list[Violation] = []
        self.stop_at = ""  # the first violation of this invariant ends the run
        self.outcomes: Counter[str] = Counter()
        self.checkers = [checker(self) for checker in checkers]
        self._hearers: dict[str, list[Callable[..., None]]] = {
            event: [getattr(c, event) for c in self.checkers if hasattr(c, event)]
            for event in EVENTS
        }

    def tell(self, event: str, *what: Any) -> None:
        """Let all checkers that care know."""
        for hear in self._hearers[event]:
            hear(*what)

    def violate(self, invariant: str, text: str) -> None:
        """Note a violation."""
        if len(self.violations) < _VIOLATIONS_MAX:
            self.violations.append(Violation(invariant, self.world.now, text))
            if invariant == self.stop_at:
                self.world.stop()

    # --- the client's testimony -------------------------------------------------------------------
    def submitted(self, call: Call) -> None:
        """Note a new call."""
        self.calls[call.number] = self.open[call.number] = call
        self.tell("submitted", call)

    def cancelled(self, call: Call) -> None:
        """Note that the user has given a call up."""
        call.cancelled = True
        self.tell("cancelled", call)

    def delivered(self, call: Call, partial: Partial) -> None:
        """Note that the user got a partial reply."""
        self.tell("partial", call, partial)
        call.partials.append(partial.frames)

    def ended(self, call: Call, outcome: Reply | CallError, frozen_s: float) -> None:
        """Note the end of a call; `frozen_s` is how long its client stood still over all."""
        call.frozen_s = frozen_s - call.frozen_s
        self.tell("ended", call, outcome)
        self.open.pop(call.number, None)
        call.ended_at = self.world.now
        call.outcome = outcome
        self.outcomes["OK" if isinstance(outcome, Reply) else type(outcome).__name__] += 1

    def client_died(self, client: str) -> None:
        """Note that nobody waits for the calls of a client any more."""
        for call in [call for call in self.open.values() if call.client == client]:
            call.abandoned = True
            self.outcomes["abandoned"] += 1
            del self.open[call.number]

    # --- the handlers' testimony ------------------------------------------------------------------
    def started(self, call: Call, worker: str, payload: bytes, key: bytes) -> Execution:
        """Note that a handler starts."""
        serial = len(self.executions) + 1
        execution = Execution(serial, call, worker, payload, key)
        self.executions[serial] = execution
        call.executions.append(execution)
        self.tell("execution_started", execution)
        return execution

    def finish(self) -> None:
        """Let checkers look at the whole."""
        self.tell("finished")
