"""Verdicts, contradictions and outcomes in words, for the report, `requite why` and its JSON.

Each fact has one wording here; a page that shows it takes it from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from requite.journal.event import Event
from requite.story.vocabulary import BROKER, OK, Contradiction, Verdict

MEANINGS: Final[Mapping[Verdict, str]] = {
    Verdict.EXACTLY_ONE: "accepted, and ended once, in time",
    Verdict.LATE: "ended after its deadline and one heartbeat period",
    Verdict.ONE_SIDED: "a broker's half of a request; counted with the client's half",
    Verdict.UNDECIDED: "cannot be judged: a clock was set, or its other half is unknown",
    Verdict.IN_FLIGHT: "accepted, and not ended yet; it still has time",
    Verdict.MISSING: "accepted, and never ended",
    Verdict.DUPLICATE_OUTCOME: "ended more than once",
    Verdict.ORPHAN: "ended or was dispatched without having been accepted",
    Verdict.ACCEPTED_TWICE: "accepted twice without having ended in between",
}
"""The meaning of each verdict on a request."""

CONTRADICTIONS: Final[Mapping[Contradiction, str]] = {
    Contradiction.OUTCOMES_DIFFER: "the client got a reply, and no broker sent one",
    Contradiction.BROKER_ENDED_TWICE: "a broker ended it more often than it had accepted it",
    Contradiction.TWO_OWNERS: "a broker dispatched it to a worker while another one had it",
    Contradiction.FORMER_OWNER: (
        "a broker forwarded the reply of a worker that did not have it any more"
    ),
    Contradiction.RAN_UNDISPATCHED: (
        "a worker ran it, and no broker had dispatched it to that worker"
    ),
    Contradiction.RAN_UNASKED: "a worker ran it, and no client had sent it",
    Contradiction.RAN_AGAIN: "it is not idempotent, and was dispatched or run more than once",
    Contradiction.BEGUN_LATE: "it was sent, dispatched or started after its deadline",
    Contradiction.SHARED_CALL_ID: "two requests have this call id",
}
"""The meaning of each kind of contradiction."""

NO_VERDICT: Final = "no verdict: no client or broker with a journal here accepted it"

_NAME_SIZE: Final = 8  # digits of the name of a process; a log's name has all


def meaning(name: str) -> str:
    """Return the meaning of a verdict, by its name; "" if there is no such verdict."""
    return next((text for of, text in MEANINGS.items() if of == name), "")


def contradiction(name: str) -> str:
    """Return the meaning of a kind of contradiction; "" if there is no such kind."""
    return next((text for of, text in CONTRADICTIONS.items() if of == name), "")


def verdict(of: Verdict | None) -> str:
    """Return a verdict with its meaning."""
    return NO_VERDICT if of is None else f"{of.value}: {MEANINGS[of]}"


def outcome(end: Event, after_s: float | None) -> str:
    """Return what the caller was told, as a sentence; `after_s` is the time since the call.

    `end` is an event that ends a request, or refuses it.
    """
    after = "" if after_s is None else f" after {duration(after_s)}"
    if end.role != BROKER:
        if end.outcome == OK:
            return f"Its caller got the reply ({size(end.bytes or 0)}){after}."
        return f"Its caller got {failure(end)}{after}{because(end)}."
    unseen = "no journal here shows what its client got"
    if end.outcome == OK:
        return f"The broker sent the reply ({size(end.bytes or 0)}){after}; {unseen}."
    return f"The broker ended it with {failure(end)}{after}{because(end)}; {unseen}."


def failure(end: Event) -> str:
    """Return the error of an outcome, by class or by status."""
    return end.error_class or end.outcome or (end.kind or "no outcome").upper()


def because(event: Event) -> str:
    """Return the reason of an event, after a colon; "" if it has none."""
    return f": {event.reason.rstrip('.')}" if event.reason else ""


def process(name: str | None) -> str:
    """Return the short name of a process, such as a worker."""
    return (name or "")[:_NAME_SIZE] or "unknown"


def writer(event: Event) -> str:
    """Return the process that recorded an event: `broker 37318fde`."""
    return f"{event.role} {process(event.log.rpartition('-')[2])}"


# --- figures ----------------------------------------------------------------------------------
def counted(n: int, one: str, many: str = "") -> str:
    """Return a number and its noun: 1 request, 2 requests."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def size(n: int) -> str:
    """Return a number of bytes with a unit: 999 B, 1.2 kB, 3.4 MB."""
    if n < 1000:
        return f"{n} B"
    value, unit = n / 1000, "kB"
    for larger in ("MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:,.1f} {unit}"


def figure(value: float) -> str:
    """Return a measured value with about three digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def duration(seconds: float, gap: str = " ") -> str:
    """Format a duration in a suitable unit: 3.25 ms, 42 s, 2 h 5 min; `gap` separates the unit."""
    if seconds < 1:
        return f"{figure(seconds * 1000)}{gap}ms"
    if seconds < 90:
        return f"{seconds:.3g}{gap}s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes}{gap}min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}{gap}h {minutes}{gap}min" if minutes else f"{hours}{gap}h"
    return f"{round(hours / 24)}{gap}days"
