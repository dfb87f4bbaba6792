"""The constants in the columns of the tables, and groups of them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from requite.chronicle import ENDS, Kind, WriterRole
from requite.request import Status


def kind(of: Kind) -> str:
    """Return a kind of event in the form of the column `kind`."""
    return of.name.lower()


ACCEPTED: Final = kind(Kind.ACCEPTED)
QUEUED: Final = kind(Kind.QUEUED)
DISPATCHED: Final = kind(Kind.DISPATCHED)
PARTIAL: Final = kind(Kind.PARTIAL)
REDELIVERED: Final = kind(Kind.REDELIVERED)
REFUSED: Final = kind(Kind.REFUSED)
SENT: Final = kind(Kind.SENT)
DELIVERED: Final = kind(Kind.DELIVERED)
STARTED: Final = kind(Kind.STARTED)
FINISHED: Final = kind(Kind.FINISHED)
ABANDONED: Final = kind(Kind.ABANDONED)
WORKER_JOINED: Final = kind(Kind.WORKER_JOINED)
WORKER_LOST: Final = kind(Kind.WORKER_LOST)
WORKER_DRAINED: Final = kind(Kind.WORKER_DRAINED)
HEARTBEAT: Final = kind(Kind.HEARTBEAT)
DROPPED: Final = kind(Kind.DROPPED)
CLOSED: Final = kind(Kind.CLOSED)
ADMITTED: Final = kind(Kind.ADMITTED)
DENIED: Final = kind(Kind.DENIED)
RIGHTS: Final = kind(Kind.RIGHTS)

OUTCOMES: Final = tuple(sorted(kind(end) for end in ENDS))
"""Kinds that end a request: its acceptor has informed the caller, or has no caller to inform."""

PRESENCE: Final = (HEARTBEAT, WORKER_JOINED, WORKER_LOST, WORKER_DRAINED)
"""Kinds about a worker rather than a request."""

DECISIONS: Final = {ADMITTED: "admitted", DENIED: "denied", RIGHTS: "changed"}
"""Kinds of access decisions, with the verdict of each. They belong to no request."""

CONNECT: Final = "connect"
CALL_ID: Final = "call id"
"""Verbs of decisions: on a connection, and on the owner of a client's call ids."""

UNKNOWN_PREFIX: Final = "unknown:"

BROKER: Final = WriterRole.BROKER.name.lower()
CLIENT: Final = WriterRole.CLIENT.name.lower()
WORKER: Final = WriterRole.WORKER.name.lower()

OK: Final = Status.OK.name

MANAGEMENT: Final = "mmi."
"""Prefix of the names of a broker's own services (8/MMI), which tools call."""


class Verdict(StrEnum):
    """The audit's verdict on one request."""

    EXACTLY_ONE = "EXACTLY_ONE"
    LATE = "LATE"
    ONE_SIDED = "ONE_SIDED"
    UNDECIDED = "UNDECIDED"
    IN_FLIGHT = "IN_FLIGHT"
    MISSING = "MISSING"
    DUPLICATE_OUTCOME = "DUPLICATE_OUTCOME"
    ORPHAN = "ORPHAN"
    ACCEPTED_TWICE = "ACCEPTED_TWICE"


class Contradiction(StrEnum):
    """Kind of contradiction between logs, or of a violated rule: the column `kind`."""

    OUTCOMES_DIFFER = "OUTCOMES_DIFFER"
    BROKER_ENDED_TWICE = "BROKER_ENDED_TWICE"
    TWO_OWNERS = "TWO_OWNERS"
    FORMER_OWNER = "FORMER_OWNER"
    RAN_UNDISPATCHED = "RAN_UNDISPATCHED"
    RAN_UNASKED = "RAN_UNASKED"
    RAN_AGAIN = "RAN_AGAIN"
    BEGUN_LATE = "BEGUN_LATE"
    SHARED_CALL_ID = "SHARED_CALL_ID"
