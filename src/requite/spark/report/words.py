"""Formats counts, durations, rates, shares and instants for readers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from requite.spark.audit import Summary
from requite.spark.report.facts import Mood, Span, mood_of
from requite.story import words
from requite.story.words import counted as counted

_DAY: Final = timedelta(days=1)
_FAULTS_SHOWN: Final = 3
NOTHING: Final = "–"
GAP: Final = "\N{NO-BREAK SPACE}"  # keeps a number and its unit on one line


def count(n: float | None) -> str:
    """Return a number with separators: 12,345."""
    return NOTHING if n is None else f"{n:,.0f}"


def figure(value: float | None) -> str:
    """Return a measured value with about three digits."""
    return NOTHING if value is None else words.figure(value)


def share(value: float | None) -> str:
    """Return a fraction as a percentage."""
    return NOTHING if value is None else f"{100 * value:.{1 if abs(value) < 0.1 else 0}f}{GAP}%"


def milliseconds(ms: float | None) -> str:
    """Format a duration in milliseconds in a suitable unit."""
    return NOTHING if ms is None else duration(ms / 1000)


def duration(seconds: float | None) -> str:
    """Format a duration in a suitable unit: 3.25 ms, 42 s, 2 h 5 min."""
    return NOTHING if seconds is None else words.duration(seconds, GAP)


class Unit(NamedTuple):
    """The unit of a rate: `name` in a sentence, `sign` after a number."""

    name: str
    sign: str
    seconds: float


_UNITS: Final = (
    Unit("second", "s", 1.0),
    Unit("minute", "min", 60.0),
    Unit("hour", "h", 3_600.0),
    Unit("day", "day", 86_400.0),
)


def unit_of(per_second: float) -> Unit:
    """Return the smallest unit of time in which a rate is at least 1, else the largest."""
    return next((unit for unit in _UNITS if per_second * unit.seconds >= 1), _UNITS[-1])


def rate(n: float, seconds: float, unit: Unit | None = None) -> str:
    """Format a rate in a unit; None: a suitable one."""
    unit = unit or unit_of(n / seconds)
    return f"{figure(n / seconds * unit.seconds)}/{unit.sign}"


def day(at: datetime) -> str:
    """Return a date: 21 November 2026."""
    return f"{at.day} {at:%B %Y}"


def clock(at: datetime, span: Span) -> str:
    """Format an instant with the precision of the span's steps."""
    if span.step_s >= _DAY.total_seconds():
        return f"{at:%Y-%m-%d}"
    time = f"{at:%H:%M}" if span.step_s >= 60 else f"{at:%H:%M:%S}"
    if span.step_s < 1:
        time += f".{at.microsecond // 100_000}"
    return time if span.ended - span.began < _DAY else f"{at:%m-%d} {time}"


def period(span: Span) -> str:
    """Format a span: day, begin, end and length."""
    began, ended = span.began, span.ended
    length = duration((ended - began).total_seconds())
    pattern = "%H:%M:%S" if ended - began < timedelta(hours=1) else "%H:%M"
    if began.date() == ended.date():
        return f"{day(began)}, {began:{pattern}} to {ended:{pattern}} UTC ({length})"
    return f"{day(began)}, {began:{pattern}} to {day(ended)}, {ended:{pattern}} UTC ({length})"


def verdict(audit: Summary) -> str:
    """Return the verdict in one sentence."""
    if mood_of(audit) is Mood.EMPTY:
        return "The journal contains no requests."
    parts = [f"{audit.accepted:,} accepted", f"{audit.exactly_one:,} ended exactly once"]
    if audit.in_flight:
        parts.append(f"{audit.in_flight:,} still in flight")
    if audit.one_sided:
        parts.append(f"{audit.one_sided:,} seen from one side, not counted")
    return f"{', '.join([*parts, *breaches(audit), *contradicted(audit)])}."


def breaches(audit: Summary) -> list[str]:
    """Return a phrase for each kind of violation."""
    phrases = (
        (audit.late, "ended too late"),
        (audit.missing, "never ended"),
        (audit.duplicate, "ended more than once"),
        (audit.orphan, "ended without being accepted"),
        (audit.accepted_twice, "accepted twice"),
    )
    return [f"{n:,} {phrase}" for n, phrase in phrases if n]


def contradicted(audit: Summary) -> list[str]:
    """Return a phrase with the number of contradictions, if any."""
    n = audit.contradictions
    return [counted(n, "contradiction")] if n else []


def explanation(audit: Summary) -> str:
    """Return the explanation of the verdict: evidence, and holes in the journal."""
    if audit.faults:
        return f"The journal is incomplete: {'; '.join(audit.faults[:_FAULTS_SHOWN])}."
    if audit.undecided and not (audit.dropped_events or audit.damaged):
        n = counted(audit.undecided, "request")
        return f"{n} cannot be judged: a clock was set meanwhile, or a request's id is unknown."
    if not audit.complete:
        return (
            f"The journal is incomplete: {counted(audit.dropped_events, 'event')} could not be "
            f"written, {counted(audit.damaged, 'record')} cannot be read. Nothing can be proven "
            "about the requests that these belonged to."
        )
    if mood_of(audit) is Mood.BAD:
        return "The journal is complete, so these are violations of the guarantee; evidence below."
    if mood_of(audit) is Mood.EMPTY:
        return "Processes write a journal when they are started with --journal."
    waiting = "Those in flight still have time. " if audit.in_flight else ""
    return (
        f"{waiting}None late, missing, ended twice or unaccepted; no contradictions; "
        "the journal is complete."
    )
