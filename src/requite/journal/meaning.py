"""The events that the rows of a journal represent: the definition that all decoders share.

An event row is one event. A span is three or four, by the role of the log's owner (`STEPS`). The
meaning of a cell depends on the kind of event; a field that does not apply is null.
Source: docs/protocols/log-format.md, section "What the rows mean".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from requite.chronicle import NO_OUTCOME, Kind, WriterRole
from requite.request import Status


class Step(NamedTuple):
    """One of the events that a span represents.

    `number` is added to the row's first seq. `cell` is the 8-byte column whose place in the segment
    identifies the event, `at` the column of its instant. `size` is the column of its `bytes` ("":
    none). `attempt` and `outcome` are constants of it (None: null).
    """

    number: int
    kind: Kind
    cell: str
    at: str
    size: str = ""
    attempt: int | None = None
    outcome: Status | None = None
    has_worker: bool = False
    has_deadline: bool = False


# QUEUED only where `second_at > first_at`: else the request was given to a worker at once.
STEPS: Final[Mapping[WriterRole, tuple[Step, ...]]] = {
    WriterRole.BROKER: (
        Step(0, Kind.ACCEPTED, "first_at", "first_at", "request_size", has_deadline=True),
        Step(1, Kind.QUEUED, "deadline", "first_at"),
        Step(2, Kind.DISPATCHED, "second_at", "second_at", attempt=1, has_worker=True),
        Step(3, Kind.ANSWERED, "third_at", "third_at", "reply_size", 1, Status.OK, True),
    ),
    WriterRole.CLIENT: (
        Step(0, Kind.ACCEPTED, "first_at", "first_at", "request_size", has_deadline=True),
        Step(2, Kind.SENT, "second_at", "second_at", attempt=1),
        Step(3, Kind.ANSWERED, "third_at", "third_at", "reply_size", 1, Status.OK),
    ),
    WriterRole.WORKER: (
        Step(0, Kind.DELIVERED, "first_at", "first_at", "request_size", 1, None, True, True),
        Step(2, Kind.STARTED, "second_at", "second_at", attempt=1, has_worker=True),
        Step(3, Kind.FINISHED, "third_at", "third_at", "reply_size", 1, Status.OK, True),
    ),
    WriterRole.DEVICE: (),
    WriterRole.MANAGER: (),
}

# Kinds of event rows whose cells have a meaning; for all others the column is null.
DEADLINE_KINDS: Final = frozenset({Kind.ACCEPTED, Kind.DELIVERED})  # `value` is an instant
GAP_KINDS: Final = frozenset(  # `value` is seconds of silence
    {Kind.HEARTBEAT, Kind.WORKER_JOINED, Kind.WORKER_LOST, Kind.WORKER_DRAINED}
)
STAFF_KINDS: Final = GAP_KINDS  # `busy` and `capacity`
SIZE_KINDS: Final = frozenset(  # `size` is the event's `bytes`
    {Kind.ACCEPTED, Kind.PARTIAL, Kind.ANSWERED, Kind.DELIVERED, Kind.FINISHED}
)

KIND_NAMES: Final[Mapping[int, str]] = {kind.value: kind.name.lower() for kind in Kind}
OUTCOME_NAMES: Final[Mapping[int, str]] = {status.value: status.name for status in Status}
ROLE_NAMES: Final[Mapping[WriterRole, str]] = {role: role.name.lower() for role in WriterRole}

INSTANT_OUT_OF_RANGE: Final = "its time is out of range"
MICROSECONDS_MAX: Final = 253_402_300_800_000_000  # the end of the year 9999
INT_MAX: Final = (1 << 31) - 1
_SUM_MAX: Final = float(1 << 61)


def kind_name(number: int) -> str:
    """Return the name of a kind; `unknown:77` for one that this version does not know."""
    return KIND_NAMES.get(number) or f"unknown:{number}"


def unknown_kind(number: int) -> str:
    """Return the reason for which an event of an unknown kind counts as not decoded."""
    return f"unknown kind {number}"


def outcome_name(number: int) -> str | None:
    """Return the name of a `Status`; None for "no outcome"."""
    if number == NO_OUTCOME:
        return None
    return OUTCOME_NAMES.get(number) or f"unknown:{number}"


def text_of(string: bytes) -> str:
    """Return an interned string as text; bytes that are no UTF-8 are shown as escapes."""
    return string.decode(errors="backslashreplace")


def undefined_string(number: int) -> str:
    """Return the substitute for a string whose definition is damaged."""
    return f"unknown:{number}"


def wall_us(at: float, clock_offset_us: int) -> int | None:
    """Return the UTC instant of a row, in µs since 1970; None if it is not one before year 10000.

    Half microseconds are rounded to even, as numpy's `rint` does.
    """
    us = at * 1e6
    if not abs(us) < _SUM_MAX:  # not a number, infinite, or absurd
        return None
    wall = round(us) + clock_offset_us
    return wall if 0 <= wall < MICROSECONDS_MAX else None
