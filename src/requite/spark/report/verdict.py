"""The report's first part: the result of the audit, and the evidence of violations."""

from __future__ import annotations

from typing import Final, NamedTuple

from markupsafe import Markup

from requite.spark.audit import Summary
from requite.spark.report import words
from requite.spark.report.behaviour import section
from requite.spark.report.facts import Contradicted, Facts, Violation, mood_of
from requite.spark.report.html_table import ids, table, text
from requite.spark.report.markup import fill, legible
from requite.story.words import contradiction, meaning

_REASON_SIZE: Final = 160


class _Tile(NamedTuple):
    value: str
    name: str
    is_alarming: bool = False


def verdict(facts: Facts) -> Markup:
    """Return the verdict in a sentence, with an explanation."""
    audit = facts.audit
    return fill(
        "verdict.html",
        mood=mood_of(audit).value,
        verdict=words.verdict(audit),
        explanation=words.explanation(audit),
    )


def tiles(facts: Facts) -> Markup:
    """Return the key figures."""
    total, span = facts.total, facts.span
    if total is None or span is None:
        return Markup("")
    seconds = (span.ended - span.began).total_seconds()
    lost = f"{facts.workers_lost:,} of {facts.workers_known:,}"
    shown = [
        _Tile(words.milliseconds(total.p50_ms), "p50 latency"),
        _Tile(words.milliseconds(total.p99_ms), "p99 latency"),
        _Tile(words.rate(total.replied + total.failed, seconds), "ended"),
        _Tile(words.count(total.failed), "failed", is_alarming=total.failed > 0),
        _Tile(words.count(total.retries), "retried"),
    ]
    if facts.workers:
        shown.append(_Tile(lost, "workers lost"))
    return fill("tiles.html", tiles=shown)


def breaches(facts: Facts) -> Markup:
    """Return the violations, the first of them with their events."""
    audit = facts.audit
    if not audit.violations:
        return Markup("")
    shown = len(facts.violations)
    cards = map(_breach, facts.violations)
    return section("What is wrong", _how_many(audit, shown), *cards, id="breaches")


def contradictions(facts: Facts) -> Markup:
    """Return each kind of contradiction, with its number and its first request."""
    audit = facts.audit
    if not audit.contradictions:
        return Markup("")
    lead = (
        f"{words.counted(audit.contradictions, 'contradiction')} between clients, brokers and "
        "workers. The first request of each kind is below; the table audit_contradictions holds "
        "all."
    )
    kinds = [
        (legible(each.kind), words.count(each.n), contradiction(each.kind))
        for each in facts.contradictions
    ]
    return section(
        "Contradictions",
        lead,
        table((text("kind"), "requests", text("meaning")), kinds, label="Contradictions"),
        *map(_contradicted, facts.contradictions),
        id="contradictions",
    )


def _contradicted(found: Contradicted) -> Markup:
    return _card(found, found.kind, contradiction(found.kind))


def _how_many(audit: Summary, shown: int) -> str:
    what = f"{words.counted(audit.violations, 'request')} in breach: "
    rest = audit.violations - shown
    seen = f" The first {shown} are below; the table audit_verdicts holds all." if rest else ""
    return f"{what}{', '.join(words.breaches(audit))}.{seen}"


def _breach(violation: Violation) -> Markup:
    return _card(violation, violation.verdict, meaning(violation.verdict))


def _card(found: Violation | Contradicted, name: str, meaning: str) -> Markup:
    """Return a request with its events."""
    columns = (text("time"), text("event"), "attempt", text("outcome"), ids("worker"))
    rows = [
        (
            legible(event.at),
            legible(event.kind),
            words.count(event.attempt),
            legible(event.outcome) or words.NOTHING,
            legible(event.worker) or words.NOTHING,
            legible(event.reason, _REASON_SIZE) or words.NOTHING,
            legible(event.log),
        )
        for event in found.events
    ]
    left_out = f"{words.counted(found.left_out, 'more event')}, not shown."
    return fill(
        "request.html",
        service=legible(found.service) or "no service",
        request_id=legible(found.request_id),
        name=legible(name),
        meaning=meaning,
        events=table((*columns, text("reason"), ids("log")), rows, label="Events in order"),
        more=left_out if found.left_out else None,
    )
