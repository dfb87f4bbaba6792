"""The rules of the audit for one request: its authority, its fault and its verdict.

The *authority* is the party that accepted the request: the client if it journalled its acceptance,
otherwise the brokers. `own_of` returns the authority's acceptances and outcomes.

    fault              a client                                    brokers
    FAULT_ENDED     0  an outcome follows the last acceptance      each acceptance has its outcome
    FAULT_OPEN      1  no outcome follows it                       the last one may have none
    FAULT_TWICE     2  an outcome follows an outcome               more outcomes than acceptances
    FAULT_ACCEPTED  3  an acceptance follows an acceptance

A log has two orders: by clock, and as written. A clock may be set back, and a process that writes
two kinds of rows may write later ones first. The fault of a client is the milder of both orders.
Brokers are judged by counting, log by log (`requite.spark.lifecycle` says why).

Instants may be of any type that its durations can be added to: microseconds, or `datetime`.
Source: docs/topics/audit.md, section "What is proven".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from requite.core.liveness import INTERVAL_S_DEFAULT
from requite.story.vocabulary import ACCEPTED, BROKER, CLIENT, DISPATCHED, OUTCOMES, Verdict

LONGEST_DEADLINE_S: Final = 60.0
"""Default limit for a request without a deadline."""

GRACE_S: Final = INTERVAL_S_DEFAULT
"""How long after its deadline a request may end: one heartbeat period (I1)."""

TIMER_SLACK_S: Final = 0.005
"""How late an engine's timers may fire; the simulator's checkers use the same value."""

ORDER_SLACK_S: Final = 0.05
"""Maximum difference between clock readings of two processes on one machine."""

FAULT_ENDED: Final = 0
FAULT_OPEN: Final = 1
FAULT_TWICE: Final = 2
FAULT_ACCEPTED: Final = 3

_COUNTS: Final = frozenset({ACCEPTED, *OUTCOMES})
_HANDLED: Final = frozenset({DISPATCHED, *OUTCOMES})


class Terms(NamedTuple):
    """When an outcome is late or missing: `grace_s` after the deadline.

    A request without a deadline is never late; it is missing if it has not ended
    `longest_deadline_s` plus `grace_s` after its acceptance.
    """

    longest_deadline_s: float = LONGEST_DEADLINE_S
    grace_s: float = GRACE_S


USUAL: Final = Terms()


class Act(Protocol):
    """An event of a request, as the rules need it."""

    @property
    def ts(self) -> Any: ...
    @property
    def log(self) -> str: ...
    @property
    def seq(self) -> Any: ...
    @property
    def kind(self) -> str | None: ...
    @property
    def role(self) -> str | None: ...
    @property
    def deadline(self) -> Any: ...


ActT = TypeVar("ActT", bound=Act)


def own_of(events: Iterable[ActT]) -> list[ActT]:
    """Return the acceptances and outcomes in the logs of the request's authority."""
    events = list(events)
    by_client = any(event.role == CLIENT and event.kind == ACCEPTED for event in events)
    authority = CLIENT if by_client else BROKER
    return [event for event in events if event.role == authority and event.kind in _COUNTS]


def last_acceptance(own: Sequence[ActT]) -> ActT | None:
    """Return the last acceptance by time; `own` is ordered by time. None: never accepted."""
    return next((event for event in reversed(own) if event.kind == ACCEPTED), None)


def fault_of(own: Sequence[ActT], last: ActT) -> int:
    """Return the fault of a request; `last` is the last acceptance."""
    if last.role == BROKER:
        return _fault_by_count(own, last)
    by_clock = _fault_in_order(own, last, lambda event: (event.ts, event.seq))
    return min(by_clock, _fault_in_order(own, last, lambda event: (event.seq,)))


def is_late(own: Sequence[Act], last: Act, grace: Any) -> bool:
    """Whether the last outcome missed all deadlines and the grace period, in the log of the last
    acceptance, which has an outcome."""
    in_log = [event for event in own if event.log == last.log]
    given = [event.deadline for event in in_log if event.kind == ACCEPTED]
    if None in given:
        return False
    ended_at = max(event.ts for event in in_log if event.kind != ACCEPTED)
    return bool(ended_at > max(given) + grace)


def due_at(own: Iterable[Act], last: Act, longest: Any) -> Any:
    """Return the instant by which a request must end."""
    given = [event.deadline for event in own if event.deadline is not None]
    return max(given) if given else last.ts + longest


def judge(events: Sequence[Act], now: Any, *, longest: Any, grace: Any) -> Verdict | None:
    """Return the verdict on the events of a request, ordered by time, as of `now`.

    None: no party with a journal has accepted or handled it.
    """
    own = own_of(events)
    last = last_acceptance(own)
    if last is None:
        return Verdict.ORPHAN if any(map(_is_handled, events)) else None
    fault = fault_of(own, last)
    if fault == FAULT_ACCEPTED:
        return Verdict.ACCEPTED_TWICE
    if fault == FAULT_TWICE:
        return Verdict.DUPLICATE_OUTCOME
    if fault == FAULT_ENDED:
        return Verdict.LATE if is_late(own, last, grace) else Verdict.EXACTLY_ONE
    return Verdict.MISSING if now > due_at(own, last, longest) + grace else Verdict.IN_FLIGHT


def _is_handled(event: Act) -> bool:
    return event.role in (BROKER, CLIENT) and event.kind in _HANDLED


def _fault_in_order(own: Sequence[Act], last: Act, order: Callable[[Act], tuple[Any, ...]]) -> int:
    """Return the fault by the sequences of acceptances and outcomes in each log, in an order."""
    reaccepted = twice = unmatched = ended = False
    before: Act | None = None
    for event in sorted(own, key=lambda event: (event.log, *order(event))):
        if before is not None and before.log != event.log:
            before = None
        if event.kind == ACCEPTED:
            reaccepted |= before is not None and before.kind == ACCEPTED
        else:
            unmatched |= before is None
            twice |= before is not None and before.kind != ACCEPTED
            ended |= before is last
        before = event
    if reaccepted:
        return FAULT_ACCEPTED
    if twice or (unmatched and ended):
        return FAULT_TWICE
    return FAULT_ENDED if ended else FAULT_OPEN


def _fault_by_count(own: Sequence[Act], last: Act) -> int:
    """Return the fault by the counts of acceptances and outcomes in each broker's log."""
    surplus: Counter[str] = Counter()
    for event in own:
        surplus[event.log] += -1 if event.kind == ACCEPTED else 1
    if surplus[last.log] < 0:
        return FAULT_OPEN
    return FAULT_TWICE if max(surplus.values()) > 0 else FAULT_ENDED
