"""The report's last part: utilisation, recommendations, and failures."""

from __future__ import annotations

from functools import partial
from typing import Final

from markupsafe import Markup

from requite.spark.report import charts, words
from requite.spark.report.behaviour import charts_of, figure, group, section
from requite.spark.report.facts import Advice, Facts, Load, Span
from requite.spark.report.html_table import ids, table, text
from requite.spark.report.markup import fill, legible

_REASON_SIZE: Final = 600


def capacity(facts: Facts) -> Markup | None:
    """Return the section on the services' load, by Little's law."""
    if not facts.loads:
        return None
    lead = (
        "By Little's law: arrivals per second times seconds of work each give the mean number of "
        "busy handlers, of those that the workers can run at once."
    )
    return section("Capacity", lead, charts_of(_utilisation(facts), _loads(facts)))


def _utilisation(facts: Facts) -> Markup:
    busiest = max(facts.loads, key=lambda row: row.utilisation or 0)
    target = next((row.target_utilisation for row in facts.advice if row.target_utilisation), None)
    goal = f" The dashed line is the target of the advice, {words.share(target)}."
    caption = (
        f"{legible(busiest.service)} is the busiest: {words.share(busiest.utilisation)} of its "
        f"capacity on average, {words.share(busiest.peak_utilisation)} at its peak (the vertical "
        f"mark).{goal if target else ''}"
    )
    rows = [
        (legible(row.service), words.share(row.utilisation), words.share(row.peak_utilisation))
        for row in facts.loads
    ]
    data = table((text("service"), "average", "peak"), rows, label="Utilisation")
    draw = partial(charts.utilisation, facts.loads, target)
    return figure("Utilisation", caption, draw, data)


def _loads(facts: Facts) -> Markup:
    left_out = facts.loads_known - len(facts.loads)
    columns = (
        "arrivals",
        "work each",
        "busy",
        "of",
        "workers",
        "in system",
        "predicted wait",
        "gap",
    )
    more = f"The busiest; {words.counted(left_out, 'more service')} not shown."
    whole = table((text("service"), *columns), map(_load, facts.loads), label="Load by service")
    return fill("loads.html", table=whole, more=more if left_out else None)


def _load(row: Load) -> tuple[str, ...]:
    return (
        legible(row.service) or "no name",
        words.NOTHING if row.arrival_rate is None else words.rate(row.arrival_rate, 1),
        words.duration(row.service_s),
        words.figure(row.busy_servers),
        words.figure(row.servers),
        words.figure(row.workers),
        words.figure(row.in_system),
        words.milliseconds(row.predicted_wait_ms),
        words.share(row.littles_law_gap),
    )


def advice(facts: Facts) -> Markup | None:
    """Return the recommendations by the measured load."""
    if not facts.advice:
        return None
    left_out = facts.advice_known - len(facts.advice)
    return section(
        "Advice",
        f"{words.counted(left_out, 'more service')} in the table gold_rightsizing."
        if left_out
        else "Recommendations by the measured load.",
        group("advice", None, *map(_advice, facts.advice)),
    )


def _advice(row: Advice) -> Markup:
    known = (
        _workers(row),
        words.counted(row.slots, "slot") if row.slots is not None else None,
        f"timeout {words.milliseconds(row.timeout_ms)}" if row.timeout_ms is not None else None,
    )
    return fill(
        "advice.html",
        service=legible(row.service) or "no name",
        change=" · ".join(filter(None, known)),
        reason=legible(row.reason, _REASON_SIZE),
    )


def _workers(row: Advice) -> str | None:
    if row.recommended is None:
        return None
    wanted = words.counted(row.recommended, "worker")
    if row.current is None:
        return wanted
    return f"keep {wanted}" if row.current == row.recommended else f"{row.current:,} → {wanted}"


def failures(facts: Facts, span: Span) -> Markup | None:
    """Return the section on failed requests, by kind of error."""
    if not facts.failures:
        return None
    left_out = facts.failures_known - len(facts.failures)
    more = f" The {len(facts.failures)} most frequent of {facts.failures_known:,}."
    columns = (text("service"), text("error"), "times", text("first"), text("last"))
    rows = [
        (
            legible(row.service),
            legible(row.error_class),
            words.count(row.n),
            words.clock(row.first_seen, span),
            words.clock(row.last_seen, span),
            legible(row.sample_request_id),
        )
        for row in facts.failures
    ]
    whole = table((*columns, ids("such as request")), rows, label="Errors")
    lead = f"Requests that ended in an error, by kind.{more if left_out else ''}"
    return section("What failed", lead, group("card", None, whole))
