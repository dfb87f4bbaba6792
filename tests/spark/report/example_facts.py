"""Facts of example runs, for tests of the page."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from requite.spark.audit import Summary
from requite.spark.report.facts import (
    DENIALS_SHOWN,
    SERVICES_DRAWN,
    SERVICES_SHOWN,
    Access,
    Advice,
    Bar,
    Contradicted,
    Denial,
    Depth,
    Evidence,
    Facts,
    Failure,
    Flow,
    Guesses,
    Load,
    Pace,
    RightsChange,
    Service,
    Span,
    User,
    Violation,
    WorkerLife,
)
from requite.story.vocabulary import Contradiction

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
NASTY = "<script>'\"&amp;]]>\x00\x1b[2J\u202e\ud800</style>"
EMPTY = Facts("lake", NOON, Summary())

GOOD = Summary(accepted=12_345, exactly_one=12_345)
BAD = Summary(
    accepted=12_345,
    exactly_one=12_336,
    late=2,
    missing=3,
    duplicate=2,
    in_flight=1,
    orphan=1,
    accepted_twice=1,
    contradictions=3,
    dropped_events=7,
    damaged=2,
)


def span(steps: int = 30, step: timedelta = timedelta(seconds=1)) -> Span:
    return Span(NOON, NOON + steps * step, step)


def service(name: str, n: int = 1000) -> Service:
    return Service(name, n, n - 3, 3, 17, 0, 41.0, 92.0, 240.0, 50.5)


def good_run(names: list[str], *, over: Span | None = None, audit: Summary = GOOD) -> Facts:
    """Return the facts of a run of these services in which no request ended in the third step."""
    over = over or span()
    drawn = [*names[:SERVICES_DRAWN], *([""] if len(names) > SERVICES_DRAWN else [])]
    shown = names[:SERVICES_SHOWN]
    busy = [at for number, at in enumerate(over.steps) if number != 2]
    return Facts(
        "lake",
        NOON,
        audit,
        span=over,
        total=service("", 1000 * len(names)),
        services=tuple(map(service, shown)),
        services_known=len(names),
        rest=service("") if len(names) > SERVICES_SHOWN else None,
        pace=tuple(Pace(at, 40.0 + n, 90.0, 240.0 * (1 + n % 7)) for n, at in enumerate(busy)),
        histogram=tuple(
            Bar(0.001 * 1.02**b, round(2000 * math.exp(-(((b - 540) / 40) ** 2))) + 1)
            for b in range(400, 700)
        ),
        flow=tuple(Flow(at, name, 900, 2) for at in busy for name in drawn),
        queue=tuple(Depth(at, 96, 41.5, 0.25) for at in over.steps),
        workers=tuple(worker(n, over) for n in range(6)),
        workers_known=6,
        workers_lost=2,
        loads=tuple(load(name) for name in shown),
        loads_known=len(names),
        advice=(Advice(names[0], 4, 3, 0.7, 64, 1250, "Three suffice."),),
        advice_known=1,
    )


def worker(number: int, over: Span) -> WorkerLife:
    status = "lost" if number < 2 else "alive"
    began = over.began + number * over.step / 4
    return WorkerLife(f"{number:016x}", "nearest", began, over.ended, 1, 0.8, 0.45, status)


def load(name: str) -> Load:
    return Load(name, 1050.0, 0.003, 3.1, 52.0, 4.0, 32.0, 0.097, 0.31, 0.21, 0.02)


def in_breach(name: str = "nearest") -> Facts:
    """Return the facts of a run with every kind of violation and contradiction."""
    event = Evidence("2026-03-02T12:00:00.25Z", "broker-00ff", "dispatched", 1, None, "ab12", None)
    violations = tuple(
        Violation(f"{number:032x}", name, verdict, (event, event), left_out=number)
        for number, verdict in enumerate(["MISSING", "DUPLICATE_OUTCOME", "ORPHAN", "OTHER"])
    )
    contradictions = tuple(
        Contradicted(kind.value, 1 + number, f"{number:032x}", name, (event, event), number)
        for number, kind in enumerate(Contradiction)
    )
    error = Failure(name, "RemoteFailure", 12, NOON, NOON, "ab" * 16)
    found = good_run([name], audit=BAD)
    found = found._replace(contradictions=contradictions)
    return found._replace(violations=violations, failures=(error,), failures_known=3)


def with_denials(name: str = "shop", *, kinds: int = 2) -> Facts:
    """Return the facts of a run of users; `kinds` different things were denied."""
    why = f"{name} has no right to call 'pay'; the broker's operator can grant it"
    later = NOON + timedelta(minutes=5)
    denials = tuple(Denial(name, "call", f"pay-{n}", 7, NOON, later, why) for n in range(kinds))
    access = Access(
        denied=7 * kinds + 41,
        guessed=41,
        denials=denials[:DENIALS_SHOWN],
        denials_known=kinds,
        guesses=(Guesses("192.0.2.7", NOON, 40, 12), Guesses("", NOON, 1, 1)),
        guesses_known=2,
        changes=(RightsChange(later, name, "changed"),),
        changes_known=1,
        users=(User(name, 12_000, 11_990, 10), User("", 345, 345, 0)),
        users_known=2,
    )
    return good_run([name])._replace(access=access)
