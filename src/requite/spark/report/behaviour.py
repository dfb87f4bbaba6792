"""The report's middle part: latency, throughput, queue depth, and workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from markupsafe import Markup

from requite.spark.report import charts, words
from requite.spark.report.facts import Facts, Flow, Service, Span, WorkerLife
from requite.spark.report.html_table import Column, ids, table, text
from requite.spark.report.markup import fill, legible
from requite.spark.report.scales import merge_bars
from requite.spark.report.steps import is_fine

_ROWS: Final = 12
_WAITING: Final = {
    True: "Requests that were accepted, and not yet begun by a worker.",
    False: "Requests in the brokers' queues.",
}

Row = TypeVar("Row")


def latency(facts: Facts, span: Span) -> Markup:
    """Return the section on latency: over time, and its distribution."""
    return section(
        "Latency",
        f"From acceptance to the end of a request, by its client's journal, or else by the "
        f"broker's.{_dashes(facts)}",
        charts_of(_pace(facts, span), _histogram(facts)),
        _services(facts),
    )


def flow(facts: Facts, span: Span) -> Markup:
    """Return the section on throughput and queue depth."""
    figures = charts_of(_throughput(facts, span), _queue(facts, span))
    return section("Throughput and queue", _dashes(facts).strip(), figures)


def workers(facts: Facts, span: Span) -> Markup:
    """Return the section on workers."""
    if not facts.workers:
        return section("Workers", "The journal contains no events of workers.")
    lead = "From a broker's first message from a worker to its last."
    return section("Workers", lead, charts_of(_lives(facts, span), _worker_table(facts, span)))


def section(title: str, lead: str, *parts: Markup | None, id: str | None = None) -> Markup:
    """Return a section of the page with a heading."""
    return fill("section.html", title=title, lead=lead, parts=parts, id=id)


def group(kind: str, title: str | None, *parts: Markup) -> Markup:
    """Return parts in one box; `kind` is a CSS class."""
    return fill("group.html", kind=kind, title=title, parts=parts)


def charts_of(*figures: Markup | None) -> Markup | None:
    """Return figures side by side, as the width permits."""
    shown = [figure for figure in figures if figure is not None]
    return group("charts", None, *shown) if shown else None


def figure(
    title: str, caption: str, draw: Callable[[str], Markup], data: Markup | None = None
) -> Markup:
    """Return a chart with a caption, and a table for readers who cannot see it.

    `data` is None if a table of the same values is next to it.
    """
    drawing = draw(f"{title}. {caption}")
    return fill("figure.html", title=title, drawing=drawing, caption=caption, data=data)


def _pace(facts: Facts, span: Span) -> Markup | None:
    if not facts.pace:
        return None
    worst = max(facts.pace, key=lambda row: row.p99_ms)
    silent = len(span.steps) - len(facts.pace)
    gaps = f" In {words.counted(silent, 'step')} of {len(span.steps)} there were none."
    caption = (
        f"By when requests were accepted, in steps of {words.duration(span.step_s)}. It was worst "
        f"at {words.clock(worst.at, span)}: p50 {words.milliseconds(worst.p50_ms)}, "
        f"p99 {words.milliseconds(worst.p99_ms)}.{gaps if silent else ''}"
    )
    columns = (text("from"), "p50", "p95", "p99")
    rows = [
        (words.clock(row.at, span), *map(words.milliseconds, row[1:]))
        for row in _every(facts.pace, worst)
    ]
    draw = partial(charts.latency_over_time, facts.pace, span, _losses(facts))
    return figure("Latency over time", caption, draw, table(columns, rows, label="Latency"))


def _dashes(facts: Facts) -> str:
    return " Dashed lines: a worker was lost." if _losses(facts) else ""


def _losses(facts: Facts) -> list[datetime]:
    return [life.last_seen for life in facts.workers if life.status.lower() == "lost"]


def _histogram(facts: Facts) -> Markup | None:
    total = facts.total
    if not facts.histogram or total is None:
        return None
    marks = [("p50", total.p50_ms), ("p99", total.p99_ms)]
    known = [(name, ms) for name, ms in marks if ms is not None]
    slowest = max(bar.upper_ms for bar in facts.histogram)
    caption = (
        f"{words.counted(sum(bar.n for bar in facts.histogram), 'reply', 'replies')}: p50 "
        f"{words.milliseconds(total.p50_ms)}, p95 {words.milliseconds(total.p95_ms)}, "
        f"p99 {words.milliseconds(total.p99_ms)}, the slowest {words.milliseconds(slowest)}."
    )
    draw = partial(charts.latency_histogram, facts.histogram, known)
    return figure("Distribution of latency", caption, draw, _histogram_table(facts))


def _histogram_table(facts: Facts) -> Markup:
    rows = [
        (words.milliseconds(lower), words.milliseconds(upper), words.count(n))
        for lower, upper, n in merge_bars(facts.histogram, _ROWS)
    ]
    return table(("longer than", "up to", "replies"), rows, label="Distribution of latency")


def _services(facts: Facts) -> Markup | None:
    total = facts.total
    if total is None:
        return None
    left_out = facts.services_known - len(facts.services)
    rows = [(legible(row.name) or "no name", *_figures(row)) for row in facts.services]
    if facts.rest is not None:
        rows.append((_others(left_out), *_figures(facts.rest)))
    columns = (
        "accepted",
        "replied",
        "failed",
        "retried",
        "duplicates",
        "p50",
        "p95",
        "p99",
        "mean",
    )
    whole = table(
        (text("service"), *columns),
        rows,
        total=("all", *_figures(total)) if facts.services_known > 1 else None,
        label="By service",
    )
    return group("card", "By service", whole)


def _figures(row: Service) -> tuple[str, ...]:
    amounts = (row.accepted, row.replied, row.failed, row.retries, row.duplicates)
    times = (row.p50_ms, row.p95_ms, row.p99_ms, row.mean_ms)
    return (*map(words.count, amounts), *map(words.milliseconds, times))


def _others(n: int) -> str:
    return words.counted(n, "other service")


def _throughput(facts: Facts, span: Span) -> Markup | None:
    if not facts.flow:
        return None
    sums = _sums(facts.flow)
    ended = sum(replied + failed for replied, failed in sums.values())
    failed = sum(failed for _, failed in sums.values())
    best = max(sums, key=lambda at: sum(sums[at]))
    unit = words.unit_of(sum(sums[best]) / span.step_s)
    rest = _others(
        facts.services_known - sum(bool(name) for name in charts.drawn_services(facts.flow))
    )
    caption = (
        f"Requests per {unit.name}, by when they {'ended' if is_fine(span) else 'were accepted'}. "
        f"On average {words.rate(ended, (span.ended - span.began).total_seconds(), unit)}; most, "
        f"{words.rate(sum(sums[best]), span.step_s, unit)}, at {words.clock(best, span)}. "
        f"{words.count(failed) if failed else 'None'} of {ended:,} failed."
    )
    rows = [
        (words.clock(at, span), words.count(replied), words.count(failed))
        for at, replied, failed in _grouped(sums, span)
    ]
    data = table((text("from"), "replied", "failed"), rows, label="Throughput")
    draw = partial(charts.throughput, facts.flow, span, _losses(facts), rest, unit.seconds)
    return figure("Throughput", caption, draw, data)


def _sums(flow: Iterable[Flow]) -> dict[datetime, tuple[int, int]]:
    sums: dict[datetime, tuple[int, int]] = {}
    for row in flow:
        replied, failed = sums.get(row.at, (0, 0))
        sums[row.at] = (replied + row.replied, failed + row.failed)
    return sums


def _grouped(
    sums: dict[datetime, tuple[int, int]], span: Span
) -> Iterable[tuple[datetime, int, int]]:
    """Yield sums over groups of adjacent steps, few enough for a small table."""
    steps = span.steps
    size = -(-len(steps) // _ROWS)
    for start in range(0, len(steps), size):
        group = [sums.get(at, (0, 0)) for at in steps[start : start + size]]
        yield steps[start], sum(row[0] for row in group), sum(row[1] for row in group)


def _queue(facts: Facts, span: Span) -> Markup | None:
    if not facts.queue:
        return None
    worst = max(facts.queue, key=lambda row: row.deepest)
    mean = sum(row.average for row in facts.queue) / len(facts.queue)
    ages = [row.oldest_age_s for row in facts.queue if row.oldest_age_s is not None]
    oldest = f" The longest wait was {words.duration(max(ages))}." if ages else ""
    caption = (
        f"{_WAITING[is_fine(span)]} At most {words.count(worst.deepest)}, at "
        f"{words.clock(worst.at, span)}; on average {words.figure(mean)}.{oldest}"
    )
    columns = (text("from"), "most", "average", "oldest")
    rows = [
        (
            words.clock(row.at, span),
            words.count(row.deepest),
            words.figure(row.average),
            words.duration(row.oldest_age_s),
        )
        for row in _every(facts.queue, worst)
    ]
    draw = partial(charts.queue_depth, facts.queue, span, _losses(facts))
    return figure("Queue depth", caption, draw, table(columns, rows, label="Queue depth"))


def _every(rows: Sequence[Row], extreme: Row) -> Iterable[Row]:
    """Return evenly spaced rows, few enough for a small table, and the extreme one."""
    step = -(-len(rows) // (_ROWS - 1))
    at = rows.index(extreme)
    chosen = sorted({*range(0, len(rows), step), at})
    return [rows[number] for number in chosen]


def _lives(facts: Facts, span: Span) -> Markup:
    statuses: dict[str, int] = {}
    for life in facts.workers:
        status = legible(life.status).lower()
        statuses[status] = statuses.get(status, 0) + 1
    tally = ", ".join(f"{n} {status}" for status, n in statuses.items())
    left_out = facts.workers_known - len(facts.workers)
    more = f" {words.counted(left_out, 'more worker')} not shown."
    silences = [life.longest_gap_s for life in facts.workers if life.longest_gap_s is not None]
    silence = f" The longest silence was {words.duration(max(silences))}." if silences else ""
    what = words.counted(len(facts.workers), "worker")
    caption = f"{what}: {tally}.{silence}{more if left_out else ''}"
    return figure("Presence", caption, partial(charts.worker_lives, facts.workers, span))


def _worker_table(facts: Facts, span: Span) -> Markup:
    columns: tuple[str | Column, ...] = (
        *("no.", ids("worker"), text("status"), "busy", "silences", "longest"),
        *(text("from"), text("to"), text("service")),
    )
    rows = [_life(number, life, span) for number, life in enumerate(facts.workers, 1)]
    whole = table(columns, rows, label="Workers in figures")
    return group("card", "In figures", whole)


def _life(number: int, life: WorkerLife, span: Span) -> tuple[str, ...]:
    return (
        str(number),
        legible(life.worker),
        legible(life.status),
        words.share(life.busy_fraction),
        words.count(life.gaps),
        words.duration(life.longest_gap_s),
        words.clock(life.first_seen, span),
        words.clock(life.last_seen, span),
        legible(life.service) or words.NOTHING,
    )
