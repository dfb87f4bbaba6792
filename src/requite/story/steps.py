"""The events of a request in words, one line for each; partial replies in a row are one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import groupby
from typing import Final, NamedTuple

from requite.chronicle import NOT_IDEMPOTENT
from requite.journal.event import Event
from requite.story.vocabulary import (
    ABANDONED,
    ACCEPTED,
    BROKER,
    CLIENT,
    DELIVERED,
    DISPATCHED,
    FINISHED,
    OK,
    OUTCOMES,
    PARTIAL,
    QUEUED,
    REDELIVERED,
    REFUSED,
    SENT,
    STARTED,
    WORKER,
)
from requite.story.words import because, counted, duration, failure, process, size, writer


class Step(NamedTuple):
    """A line of a request's story: when, who, what, and the first event that it stands for."""

    at: datetime | None
    who: str
    what: str
    event: Event


def steps(events: Iterable[Event]) -> Iterator[Step]:
    """Yield the lines for events, which are ordered by time."""
    for (_log, is_partial), group in groupby(events, lambda e: (e.log, e.kind == PARTIAL)):
        found = list(group)
        if is_partial and len(found) > 1:
            first, total = found[0], size(sum(event.bytes or 0 for event in found))
            parts = counted(len(found), "partial reply", "partial replies")
            what = f"{_PARTS.get(first.role or '', 'has')} {parts}, {total} in all"
            yield Step(first.ts, writer(first), what, first)
        else:
            yield from (Step(each.ts, writer(each), phrase(each), each) for each in found)


def phrase(event: Event) -> str:
    """Return what a process did, by an event: "gives it to worker d97bea07"."""
    if event.raw is not None:
        return f"recorded an event that this version cannot read{because(event)}"
    say = _PHRASES.get((event.role or "", event.kind or "")) or _OTHERS.get(event.kind or "")
    if say is not None:
        return say(event)
    return (event.kind or "unknown").replace("_", " ") + because(event)


def _again(event: Event) -> str:
    return f", attempt {event.attempt}" if (event.attempt or 0) > 1 else ""


def _facts(event: Event) -> str:
    """Return size and deadline of an accepted or delivered request, after a colon."""
    facts = [size(event.bytes)] if event.bytes is not None else []
    if event.deadline is not None and event.ts is not None:
        facts.append(f"due in {duration((event.deadline - event.ts).total_seconds())}")
    if event.reason == NOT_IDEMPOTENT:
        facts.append("must not run twice")
    return f": {', '.join(facts)}" if facts else ""


def _told(event: Event) -> str:
    if event.outcome == OK:
        return f"gives its caller the reply: {size(event.bytes or 0)}"
    return f"gives its caller {failure(event)}{because(event)}"


def _ended(event: Event) -> str:
    if event.outcome == OK:
        return f"sends the reply of worker {process(event.worker)}: {size(event.bytes or 0)}"
    return f"ends it with {failure(event)}{because(event)}"


def _finished(event: Event) -> str:
    if event.outcome == OK:
        return f"its handler ends{_again(event)}: {size(event.bytes or 0)}"
    return f"its handler ends with {failure(event)}{_again(event)}{because(event)}"


_PARTS: Final[Mapping[str, str]] = {
    CLIENT: "gets",
    BROKER: "forwards",
    WORKER: "sends",
}
_PHRASES: Final[Mapping[tuple[str, str], Callable[[Event], str]]] = {
    (CLIENT, ACCEPTED): lambda event: f"takes the call{_facts(event)}",
    (CLIENT, SENT): lambda event: f"sends it{_again(event)}",
    (CLIENT, REDELIVERED): lambda event: f"gives the attempt up{because(event)}",
    (CLIENT, PARTIAL): lambda event: f"gets a partial reply: {size(event.bytes or 0)}",
    **{(CLIENT, kind): _told for kind in OUTCOMES},
    (BROKER, ACCEPTED): lambda event: f"accepts it{_facts(event)}",
    (BROKER, QUEUED): lambda _event: "queues it",
    (BROKER, DISPATCHED): lambda event: (
        f"gives it to worker {process(event.worker)}{_again(event)}"
    ),
    (BROKER, PARTIAL): lambda event: f"forwards a partial reply: {size(event.bytes or 0)}",
    (BROKER, REDELIVERED): lambda event: (
        f"takes it back from worker {process(event.worker)}{because(event)}; queues it again"
    ),
    **{(BROKER, kind): _ended for kind in OUTCOMES},
    (WORKER, DELIVERED): lambda event: f"receives it{_again(event)}{_facts(event)}",
    (WORKER, STARTED): lambda event: f"starts its handler{_again(event)}",
    (WORKER, PARTIAL): lambda event: f"sends a partial reply: {size(event.bytes or 0)}",
    (WORKER, FINISHED): _finished,
    (WORKER, ABANDONED): lambda event: f"gives it up{because(event)}",
    ("manager", QUEUED): lambda _event: "forwards it to the queue of its group",
    **{("manager", kind): lambda event: f"answers its caller{because(event)}" for kind in OUTCOMES},
}
_OTHERS: Final[Mapping[str, Callable[[Event], str]]] = {
    REFUSED: lambda event: f"refuses it with {failure(event)}{because(event)}",
}
