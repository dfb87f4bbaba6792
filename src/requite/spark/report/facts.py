"""The content of a report, as plain values: read from a lake in `lake`, drawn in `page`.

Every list has a maximum length; further items are counted. Instants are UTC, aware. Names
(services, workers, errors) come from peers and may contain any characters.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple

from requite.spark.audit import Summary

SERVICES_SHOWN: Final = 12
SERVICES_DRAWN: Final = 5
WORKERS_SHOWN: Final = 24
VIOLATIONS_SHOWN: Final = 5
EVENTS_SHOWN: Final = 20
STEPS_DRAWN: Final = 60
ADVICE_SHOWN: Final = 24
FAILURES_SHOWN: Final = 12
DENIALS_SHOWN: Final = 12
GUESSES_SHOWN: Final = 12
CHANGES_SHOWN: Final = 12
USERS_SHOWN: Final = 24


class Mood(Enum):
    """The verdict as one word."""

    GOOD = "good"
    DOUBTFUL = "doubtful"
    BAD = "bad"
    EMPTY = "empty"


def mood_of(audit: Summary) -> Mood:
    """Return the verdict as one word; an incomplete journal cannot prove a good one."""
    if not audit.ok:
        return Mood.BAD
    if not audit.complete:
        return Mood.DOUBTFUL
    return Mood.GOOD if audit.accepted else Mood.EMPTY


class Evidence(NamedTuple):
    """An event in the evidence of a violation."""

    at: str
    log: str
    kind: str
    attempt: int | None
    outcome: str | None
    worker: str | None
    reason: str | None


class Violation(NamedTuple):
    """A request in violation: its first `events`, and the number of events `left_out`."""

    request_id: str
    service: str
    verdict: str
    events: tuple[Evidence, ...]
    left_out: int


class Contradicted(NamedTuple):
    """A kind of contradiction: its number `n`, and the first request with its events."""

    kind: str
    n: int
    request_id: str
    service: str
    events: tuple[Evidence, ...]
    left_out: int


class Service(NamedTuple):
    """A service over the whole time. Latencies are milliseconds, None without replies."""

    name: str
    accepted: int
    replied: int
    failed: int
    retries: int
    duplicates: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    mean_ms: float | None


class Pace(NamedTuple):
    """Latency percentiles of the requests of one step of time, over all services."""

    at: datetime
    p50_ms: float
    p95_ms: float
    p99_ms: float


class Bar(NamedTuple):
    """Number of replies that took up to `upper_ms`, and longer than the bar before."""

    upper_ms: float
    n: int


class Flow(NamedTuple):
    """Ended requests in a step of time. `service` is "" for the sum of unnamed services."""

    at: datetime
    service: str
    replied: int
    failed: int


class Depth(NamedTuple):
    """Number of waiting requests in a step of time."""

    at: datetime
    deepest: float
    average: float
    oldest_age_s: float | None


class WorkerLife(NamedTuple):
    """A worker's presence. `service`: comma-separated names; `busy_fraction`: 0 to 1."""

    worker: str
    service: str
    first_seen: datetime
    last_seen: datetime
    gaps: int
    longest_gap_s: float | None
    busy_fraction: float | None
    status: str


class Load(NamedTuple):
    """A service's load by Little's law: means over the time, and the peak utilisation."""

    service: str
    arrival_rate: float | None
    service_s: float | None
    busy_servers: float | None
    in_system: float | None
    workers: float | None
    servers: float | None
    utilisation: float | None
    peak_utilisation: float | None
    predicted_wait_ms: float | None
    littles_law_gap: float | None


class Advice(NamedTuple):
    """Recommended number of workers and slots, and timeout, of a service, with the reason."""

    service: str
    current: int | None
    recommended: int | None
    target_utilisation: float | None
    slots: int | None
    timeout_ms: int | None
    reason: str


class Failure(NamedTuple):
    """A kind of failure, with its number of requests."""

    service: str
    error_class: str
    n: int
    first_seen: datetime
    last_seen: datetime
    sample_request_id: str


class Denial(NamedTuple):
    """What a principal was denied `n` times, with the reason of the last time."""

    principal: str
    verb: str
    object: str | None
    n: int
    first_seen: datetime
    last_seen: datetime
    reason: str | None


class Guesses(NamedTuple):
    """Refused passwords from an address ("": unknown) in an hour, for `names` user names."""

    address: str
    hour: datetime
    n: int
    names: int


class RightsChange(NamedTuple):
    """A change of a user's rights."""

    at: datetime
    principal: str
    what: str | None


class User(NamedTuple):
    """A user's requests; `principal` is "" for requests of unknown users."""

    principal: str
    accepted: int
    replied: int
    failed: int


class Access(NamedTuple):
    """The brokers' access decisions: `denied` in all, `guessed` of them refused passwords."""

    denied: int
    guessed: int
    denials: tuple[Denial, ...] = ()
    denials_known: int = 0
    guesses: tuple[Guesses, ...] = ()
    guesses_known: int = 0
    changes: tuple[RightsChange, ...] = ()
    changes_known: int = 0
    users: tuple[User, ...] = ()
    users_known: int = 0


class Span(NamedTuple):
    """The time that the report covers, in steps of equal length; both ends are step borders."""

    began: datetime
    ended: datetime
    step: timedelta

    @property
    def step_s(self) -> float:
        """Seconds in a step."""
        return self.step.total_seconds()

    @property
    def steps(self) -> list[datetime]:
        """The beginnings of all steps."""
        count = round((self.ended - self.began) / self.step)
        return [self.began + number * self.step for number in range(count)]


class Facts(NamedTuple):
    """The content of a report. `span` is None for a lake without requests."""

    lake: str
    made_at: datetime
    audit: Summary
    span: Span | None = None
    violations: tuple[Violation, ...] = ()
    contradictions: tuple[Contradicted, ...] = ()
    total: Service | None = None
    services: tuple[Service, ...] = ()
    services_known: int = 0
    rest: Service | None = None  # the sum of the services beyond those listed
    pace: tuple[Pace, ...] = ()
    histogram: tuple[Bar, ...] = ()
    flow: tuple[Flow, ...] = ()
    queue: tuple[Depth, ...] = ()
    workers: tuple[WorkerLife, ...] = ()
    workers_known: int = 0
    workers_lost: int = 0
    loads: tuple[Load, ...] = ()
    loads_known: int = 0
    advice: tuple[Advice, ...] = ()
    advice_known: int = 0
    failures: tuple[Failure, ...] = ()
    failures_known: int = 0
    access: Access | None = None  # None: no decisions
