"""What the logs of one request contradict: the rules of the table `audit_contradictions`.

These are the kinds that the events of the request itself show. RAN_UNDISPATCHED and RAN_UNASKED
rest on events that are missing, and on witnesses for that in all logs: only the audit finds them
(`requite.spark.missing_events`).

Most rules count events: each event requires an earlier event of another kind, so there cannot be
more of the former. Source: docs/topics/audit.md, section "Contradictions".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from requite.chronicle import NOT_IDEMPOTENT
from requite.journal.event import Event
from requite.story.rules import ORDER_SLACK_S, TIMER_SLACK_S, USUAL, Terms
from requite.story.vocabulary import (
    ACCEPTED,
    BROKER,
    CLIENT,
    DELIVERED,
    DISPATCHED,
    FINISHED,
    OK,
    OUTCOMES,
    REDELIVERED,
    SENT,
    STARTED,
    Contradiction,
)

_ORDER_SLACK: Final = timedelta(seconds=ORDER_SLACK_S)


class _Tally(NamedTuple):
    """Counts of events by kind and role."""

    made: int
    sent: int
    kept: int
    taken: int
    ended: int
    replied: int
    given: int
    taken_back: int
    begun: int


def contradictions(events: Sequence[Event], terms: Terms = USUAL) -> list[Contradiction]:
    """Return the contradictions between the events of one request, ordered by time."""
    tally = _tally(events)
    if not _is_suspect(events, tally):
        return []
    found = {
        Contradiction.OUTCOMES_DIFFER: _outcomes_differ(tally),
        Contradiction.BROKER_ENDED_TWICE: _any_broker(events, _ended_twice),
        Contradiction.TWO_OWNERS: _any_broker(events, _has_two_owners),
        Contradiction.FORMER_OWNER: _any_broker(events, _replies_exceed)
        or _any_names_another(events),
        Contradiction.RAN_AGAIN: any(_is_once(event) for event in events)
        and (tally.begun > 1 or tally.given > 1 or tally.taken_back > 0),
        Contradiction.BEGUN_LATE: _begun_late(events, terms),
        Contradiction.SHARED_CALL_ID: _is_shared(events),
    }
    return [kind for kind, is_so in found.items() if is_so]


def _tally(events: Sequence[Event]) -> _Tally:
    return _Tally(
        made=_count(events, lambda event: event.role == CLIENT and event.kind == ACCEPTED),
        sent=_count(events, _is(SENT)),
        kept=_count(events, lambda event: event.role == CLIENT and _ended_well(event)),
        taken=_count(events, lambda event: event.role == BROKER and event.kind == ACCEPTED),
        ended=_count(events, lambda event: event.role == BROKER and _is_outcome(event)),
        replied=_count(events, _is_reply),
        given=_count(events, _is(DISPATCHED)),
        taken_back=_count(events, lambda event: event.role == BROKER and event.kind == REDELIVERED),
        begun=_count(events, _is(STARTED)),
    )


def _is_suspect(events: Sequence[Event], tally: _Tally) -> bool:
    """Whether not every step happened once: hardly any other request contradicts itself."""
    more_than_once = (tally.made, tally.taken, tally.ended, tally.given, tally.begun)
    return (
        max(more_than_once) > 1
        or tally.begun > tally.given
        or tally.kept > tally.replied
        or tally.taken_back > 0
        or _last_begun_after_first_deadline(events)
        or _has_two_services(events)
        or (tally.begun > 0 and tally.replied > 0 and _ended_otherwise(events))
    )


def _last_begun_after_first_deadline(events: Sequence[Event]) -> bool:
    begun = [_ts(event) for event in events if event.kind in (SENT, DISPATCHED, STARTED)]
    given = [event.deadline for event in events if event.deadline is not None]
    return bool(begun and given) and max(begun) > min(given)


def _ended_otherwise(events: Sequence[Event]) -> bool:
    """Whether a worker had not finished with OK before a broker's first reply."""
    replied_at = min(_ts(event) for event in events if _is_reply(event))
    return any(
        event.outcome != OK or _ts(event) > replied_at + _ORDER_SLACK
        for event in events
        if event.kind == FINISHED
    )


# --- the kinds --------------------------------------------------------------------------------
def _outcomes_differ(tally: _Tally) -> bool:
    """The client has an OK, but brokers received and ended all its attempts without one."""
    all_arrived = tally.taken > 0 and tally.sent <= tally.taken
    return tally.kept > 0 and not tally.replied and all_arrived and tally.ended >= tally.taken


def _any_broker(events: Sequence[Event], holds: Callable[[list[Event]], bool]) -> bool:
    """Whether a predicate holds for the events of any one broker's log."""
    by_log: dict[str, list[Event]] = {}
    for event in events:
        if event.role == BROKER:
            by_log.setdefault(event.log, []).append(event)
    return any(map(holds, by_log.values()))


def _ended_twice(events: list[Event]) -> bool:
    return _count(events, _is_outcome) > _count(events, _is(ACCEPTED))


def _has_two_owners(events: list[Event]) -> bool:
    """Each dispatch must follow an acceptance or a redelivery."""
    given = [event for event in events if event.kind == DISPATCHED]
    taken_back = _count(events, _is(REDELIVERED))
    is_numbered_beyond = max((event.attempt or 0 for event in given), default=0) > taken_back + 1
    return is_numbered_beyond or len(given) > _count(events, _is(ACCEPTED)) + taken_back


def _replies_exceed(events: list[Event]) -> bool:
    """Each forwarded reply must have a dispatch that was not redelivered."""
    given = _count(events, _is(DISPATCHED)) - _count(events, _is(REDELIVERED))
    return _count(events, _is_reply) > given


def _any_names_another(events: Sequence[Event]) -> bool:
    """Whether a broker's reply names a worker that ended this attempt otherwise or later.

    A worker may receive a request twice under one attempt number, and lose the newest end.
    """
    attempts: dict[tuple[str | None, int | None], list[Event]] = {}
    for event in events:
        attempts.setdefault((event.worker, event.attempt), []).append(event)
    return any(
        _names_another(attempt)
        for (worker, number), attempt in attempts.items()
        if worker is not None and number is not None
    )


def _names_another(attempt: Sequence[Event]) -> bool:
    """Whether a reply among the events of one attempt is none of its worker's."""
    ends = [event for event in attempt if event.kind == FINISHED]
    replied_at = [_ts(event) for event in attempt if _is_reply(event)]
    if not replied_at or len(ends) < max(_count(attempt, _is(DISPATCHED)), 1):
        return False
    well_at = [_ts(end) for end in ends if end.outcome == OK]
    return not well_at or min(well_at) > min(replied_at) + _ORDER_SLACK


def _begun_late(events: Sequence[Event], terms: Terms) -> bool:
    """Compare sends, dispatches and starts with the deadlines in the same log."""
    steps = {
        SENT: (ACCEPTED, TIMER_SLACK_S),
        DISPATCHED: (ACCEPTED, TIMER_SLACK_S),
        STARTED: (DELIVERED, terms.grace_s),
    }
    given: dict[tuple[str, str | None], list[datetime | None]] = {}
    for event in events:
        given.setdefault((event.log, event.kind), []).append(event.deadline)
    last: dict[tuple[str, str | None], datetime] = {}
    for key, known in given.items():
        ends = [end for end in known if end is not None]
        if len(ends) == len(known):
            last[key] = max(ends)
    for event in events:
        if event.kind not in steps:
            continue
        gives_time, slack_s = steps[event.kind]
        end = last.get((event.log, gives_time))
        if end is not None and _ts(event) > end + timedelta(0, slack_s):
            return True
    return False


def _is_shared(events: Sequence[Event]) -> bool:
    """One call id was accepted twice by a client, or has several sizes or services."""
    accepted = [event for event in events if event.kind == ACCEPTED]
    sizes = {event.bytes for event in accepted if event.bytes is not None}
    by_client = _count(accepted, lambda event: event.role == CLIENT)
    return by_client > 1 or len(sizes) > 1 or _has_two_services(events)


def _has_two_services(events: Sequence[Event]) -> bool:
    names = {event.service for event in events if event.kind == ACCEPTED}
    return len(names - {None}) > 1


# --- predicates -------------------------------------------------------------------------------
def _is(kind: str) -> Callable[[Event], bool]:
    return lambda event: event.kind == kind


def _is_outcome(event: Event) -> bool:
    return event.kind in OUTCOMES


def _ended_well(event: Event) -> bool:
    return event.kind in OUTCOMES and event.outcome == OK


def _is_reply(event: Event) -> bool:
    return event.role == BROKER and _ended_well(event)


def _is_once(event: Event) -> bool:
    return event.kind == ACCEPTED and event.reason == NOT_IDEMPOTENT


def _count(events: Iterable[Event], condition: Callable[[Event], bool]) -> int:
    return sum(map(condition, events))


def _ts(event: Event) -> datetime:
    """Return the instant of an event of a life, which has one."""
    assert event.ts is not None
    return event.ts
