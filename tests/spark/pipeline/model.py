"""A model of the tables in plain Python, written from their descriptions, not their queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from math import ceil
from typing import Any

Event = dict[str, Any]

ENDS = ("answered", "expired", "cancelled")


def by_request(events: Iterable[Event]) -> dict[str, list[Event]]:
    """Group events by request, ordered by time."""
    grouped: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event["request_id"] is not None and event["kind"] != "partial":
            grouped[event["request_id"]].append(event)
    return {
        request_id: sorted(group, key=lambda event: (event["ts"], event["log"], event["seq"]))
        for request_id, group in grouped.items()
    }


def own_of(events: list[Event]) -> list[Event]:
    """Return acceptances and outcomes: the client's if it has any acceptance, else the brokers'."""
    by_client = any(e["kind"] == "accepted" and e["role"] == "client" for e in events)
    role = "client" if by_client else "broker"
    return [e for e in events if e["role"] == role and e["kind"] in ("accepted", *ENDS)]


def faults(own: list[Event], *, by_clock: bool) -> str:
    """Return the fault of a request, with the events of each log ordered by clock or by number."""
    logs: dict[str, list[Event]] = defaultdict(list)
    for event in own:
        logs[event["log"]].append(event)
    last = max(
        (e for e in own if e["kind"] == "accepted"), key=lambda e: (e["ts"], e["log"], e["seq"])
    )
    if last["role"] == "broker":
        return balance(logs, last["log"])
    answered = twice = surplus = stray = False
    for group in logs.values():
        previous = None
        for event in sorted(group, key=lambda e: (e["ts"], e["seq"]) if by_clock else e["seq"]):
            if event["kind"] == "accepted":
                twice |= previous is not None and previous["kind"] == "accepted"
            elif previous is None:
                stray = True
            elif previous["kind"] in ENDS:
                surplus = True
            else:
                answered |= previous is last
            previous = event
    if twice:
        return "ACCEPTED_TWICE"
    if surplus or (stray and answered):
        return "DUPLICATE_OUTCOME"
    return "EXACTLY_ONE" if answered else "OPEN"


def balance(logs: dict[str, list[Event]], last: str) -> str:
    """Return the fault by the counts of brokers.

    A client may send a request again before its broker notices that the connection is lost.
    """
    surplus = {
        log: sum(1 if e["kind"] in ENDS else -1 for e in group) for log, group in logs.items()
    }
    if surplus[last] < 0:
        return "OPEN"
    return "DUPLICATE_OUTCOME" if max(surplus.values()) > 0 else "EXACTLY_ONE"


def is_late(own: list[Event], grace_s: float) -> bool:
    """Whether the log of the last acceptance ended after all its deadlines and the grace."""
    last = max((e for e in own if e["kind"] == "accepted"), key=lambda e: (e["ts"], e["log"]))
    group = [event for event in own if event["log"] == last["log"]]
    given = [event["deadline"] for event in group if event["kind"] == "accepted"]
    ends = [event["ts"] for event in group if event["kind"] in ENDS]
    if None in given:
        return False
    return max(ends) > max(given) + timedelta(seconds=grace_s)


MILDEST = ("EXACTLY_ONE", "OPEN", "DUPLICATE_OUTCOME", "ACCEPTED_TWICE")


def verdict(
    events: list[Event], now: datetime, *, longest_s: float = 60, grace_s: float = 1
) -> str | None:
    """Return the verdict on the events of one request; None if it gets no verdict."""
    own = own_of(events)
    accepted = [event for event in own if event["kind"] == "accepted"]
    if not accepted:
        group = [e for e in events if e["role"] in ("broker", "client")]
        return "ORPHAN" if any(e["kind"] in ("dispatched", *ENDS) for e in group) else None
    found = min((faults(own, by_clock=True), faults(own, by_clock=False)), key=MILDEST.index)
    if found == "EXACTLY_ONE" and is_late(own, grace_s):
        return "LATE"
    if found != "OPEN":
        return found
    deadlines = [event["deadline"] for event in own if event["deadline"]]
    last = max(event["ts"] for event in accepted)
    deadline = max(deadlines, default=last + timedelta(seconds=longest_s))
    return "MISSING" if now > deadline + timedelta(seconds=grace_s) else "IN_FLIGHT"


def percentile(values: list[float], share: float) -> float:
    """Return the nearest-rank percentile."""
    return sorted(values)[ceil(share * len(values)) - 1]


def minute(instant: datetime) -> datetime:
    return instant.replace(second=0, microsecond=0)


def depth_at(waits: list[tuple[datetime, datetime]], instant: datetime) -> int:
    """Return the number of waits that include an instant."""
    return sum(begin <= instant < end for begin, end in waits)
