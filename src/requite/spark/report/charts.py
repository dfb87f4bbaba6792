"""The report's charts: rows to inline SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

from requite.spark.report.drawing import (
    BLUE,
    GREY,
    INK,
    MILLISECONDS,
    RED,
    ROW_HEIGHT,
    WIDTH,
    Row,
    amount_axis,
    chart_of,
    draw,
    height_of,
    instant,
    legend,
    loss_lines,
    time_axis,
)
from requite.spark.report.facts import Bar, Depth, Flow, Load, Pace, Span, WorkerLife
from requite.spark.report.markup import legible
from requite.spark.report.scales import log_of, merge_bars, round_values

if TYPE_CHECKING:
    import altair as alt

_SERVICES: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9")
_PERCENTILES: Final = {"p50": "#56b4e9", "p95": "#0072b2", "p99": "#1b2f4b"}
_FAILED: Final = "failed"
_DOTTED_MAX: Final = 30


def latency_over_time(
    pace: Sequence[Pace], span: Span, losses: Sequence[datetime], label: str
) -> Markup:
    """Draw percentiles over time; a step without ended requests leaves a gap."""
    import altair as alt

    known = {row.at: row for row in pace}
    rows: list[Row] = []
    for at in span.steps:
        row = known.get(at)
        for name, value in zip(_PERCENTILES, row[1:] if row else (None,) * 3, strict=True):
            rows.append({"at": instant(at + span.step / 2), "percentile": name, "ms": value})
    ticks = round_values(min(row.p50_ms for row in pace), max(row.p99_ms for row in pace))
    scale = alt.Scale(type="log", domain=[ticks[0], ticks[-1]], nice=False)
    axis = alt.Axis(title=None, labelExpr=MILLISECONDS, values=ticks)
    colour = legend("percentile", _PERCENTILES)
    time = time_axis(span)
    values = alt.Y("ms:Q", scale=scale, axis=axis)
    lines = chart_of(rows).mark_line(strokeWidth=2, strokeJoin="round")
    dotted = rows if len(pace) <= _DOTTED_MAX else _isolated(rows)
    dots = chart_of(dotted).mark_point(filled=True, size=24, opacity=1)
    layers = (mark.encode(x=time, y=values, color=colour) for mark in (lines, dots))
    return draw(alt.layer(*loss_lines(losses, span), *layers), "pace", label)


def _isolated(rows: Sequence[Row]) -> list[Row]:
    """Return the rows between two empty steps, which no line connects."""
    n = len(_PERCENTILES)
    empty = {number for number, row in enumerate(rows) if row["ms"] is None}
    empty |= {*range(-n, 0), *range(len(rows), len(rows) + n)}
    return [row for at, row in enumerate(rows) if at not in empty and {at - n, at + n} <= empty]


def latency_histogram(
    bars: Sequence[Bar], marks: Sequence[tuple[str, float]], label: str
) -> Markup:
    """Draw the distribution of latency, with percentiles as `marks` (name, milliseconds)."""
    import altair as alt

    rows = [{"from": lower, "to": upper, "n": n, "zero": 0} for lower, upper, n in merge_bars(bars)]
    domain = [rows[0]["from"], rows[-1]["to"]]
    scale = alt.Scale(type="log", domain=domain, nice=False)
    ticks = [value for value in round_values(*domain) if _in(value, domain)]
    axis = alt.Axis(title=None, labelExpr=MILLISECONDS, grid=False, values=ticks)
    height = alt.Scale(domain=[0, 1.15 * max(row["n"] for row in rows)], nice=False)
    base = (
        chart_of(rows)
        .mark_rect(color=BLUE, stroke="white", strokeWidth=0.5)
        .encode(
            x=alt.X("from:Q", scale=scale, axis=axis),
            x2="to:Q",
            y=alt.Y("zero:Q", title=None, scale=height, axis=alt.Axis(format=",d", tickCount=5)),
            y2="n:Q",
        )
    )
    return draw(alt.layer(base, *_marks(marks, domain, scale)), "histogram", label)


def _marks(
    marks: Sequence[tuple[str, float]], domain: list[float], scale: alt.Scale
) -> list[alt.Chart]:
    """Return dashed lines at some values, each with its name."""
    import altair as alt

    layers = []
    for name, ms in marks:
        if not _in(ms, domain):
            continue
        is_far_right = log_of(ms / domain[0], domain[1] / domain[0]) > 0.8
        side: Any = {"align": "right", "dx": -4} if is_far_right else {"align": "left", "dx": 4}
        chart = chart_of([{"ms": ms, "name": name}])
        at = alt.X("ms:Q", scale=scale)
        layers += [
            chart.mark_rule(color=RED, strokeDash=[4, 3]).encode(x=at),
            chart.mark_text(color=RED, baseline="top", dy=2, **side).encode(
                x=at, y=alt.value(0), text="name:N"
            ),
        ]
    return layers


def throughput(
    flow: Sequence[Flow],
    span: Span,
    losses: Sequence[datetime],
    rest: str,
    unit_s: float,
    label: str,
) -> Markup:
    """Draw ended requests per unit of time, stacked by service. `rest` names the other services."""
    import altair as alt

    names = [legible(name) or rest for name in drawn_services(flow)]
    colours = dict(zip(names, _SERVICES, strict=False)) | {rest: GREY}
    colours = {name: colours.get(name, GREY) for name in names}
    rows = [*_steps_of(flow, span, rest, unit_s)]
    if any(row.failed for row in flow):
        colours[_FAILED] = RED
    order = {name: number for number, name in enumerate(colours)}
    rows = [{**row, "order": order[row["series"]]} for row in rows if row["series"] in order]
    chart = (
        chart_of(rows)
        .mark_area(interpolate="step-after", line=False)
        .encode(
            x=time_axis(span),
            y=alt.Y("rate:Q", stack="zero", title=None, axis=amount_axis()),
            color=legend("series", colours),
            order="order:Q",
        )
    )
    return draw(alt.layer(chart, *loss_lines(losses, span)), "throughput", label)


def drawn_services(flow: Iterable[Flow]) -> list[str]:
    """Return the services of a flow, the busiest first, and "" (the sum of the others) last."""
    totals: dict[str, int] = {}
    for row in flow:
        totals[row.service] = totals.get(row.service, 0) + row.replied + row.failed
    return sorted(totals, key=lambda name: (not name, -totals[name], name))


def _steps_of(flow: Sequence[Flow], span: Span, rest: str, unit_s: float) -> Iterable[Row]:
    """Yield every series in every step, including zeros, and again at the end of the last step."""
    replied: dict[tuple[str, datetime], int] = {}
    for row in flow:
        for series, n in ((legible(row.service) or rest, row.replied), (_FAILED, row.failed)):
            replied[series, row.at] = replied.get((series, row.at), 0) + n
    for series in dict.fromkeys(series for series, _at in replied):  # in a stable order
        for at in span.steps:
            rate = replied.get((series, at), 0) / span.step_s * unit_s
            yield {"series": series, "at": instant(at), "rate": rate}
        yield {"series": series, "at": instant(span.ended), "rate": rate}


def queue_depth(
    queue: Sequence[Depth], span: Span, losses: Sequence[datetime], label: str
) -> Markup:
    """Draw the number of waiting requests: the average as an area, the maximum as a line."""
    import altair as alt

    known = {row.at: row for row in queue}
    steps = [*((at, known.get(at)) for at in span.steps)]
    steps.append((span.ended, steps[-1][1]))
    rows = [
        {"at": instant(at), "what": what, "n": n}
        for at, row in steps
        for what, n in (("average", row.average if row else 0), ("most", row.deepest if row else 0))
    ]
    colours = {"average": "#9ccbe6", "most": BLUE}
    base = chart_of(rows).encode(
        x=time_axis(span),
        y=alt.Y("n:Q", title=None, stack=None, axis=amount_axis()),
        color=legend("what", colours),
    )
    area = base.transform_filter("datum.what == 'average'").mark_area(interpolate="step-after")
    line = base.transform_filter("datum.what == 'most'").mark_line(
        interpolate="step-after", strokeWidth=1.5
    )
    return draw(alt.layer(area, line, *loss_lines(losses, span)), "queue", label)


def worker_lives(workers: Sequence[WorkerLife], span: Span, label: str) -> Markup:
    """Draw each worker's presence as a bar, coloured by its status.

    Workers may be present before the first request and after the last.
    """
    import altair as alt

    began = min(span.began, *(life.first_seen for life in workers))
    ended = max(span.ended, *(life.last_seen for life in workers))
    shortest = (ended - began) / WIDTH
    whole = Span(began, max(ended, *(life.first_seen + shortest for life in workers)), span.step)
    rows: list[Row] = [
        {
            "worker": f"{number + 1}  {legible(life.worker[:8])}",
            "from": instant(life.first_seen),
            "to": instant(max(life.last_seen, life.first_seen + shortest)),
            "status": legible(life.status, 16) or "unknown",
        }
        for number, life in enumerate(workers)
    ]
    colours = {
        status: status_colour(status) for status in sorted({str(row["status"]) for row in rows})
    }
    chart = (
        chart_of(rows)
        .mark_bar(height=ROW_HEIGHT / 2, cornerRadius=3)
        .encode(
            x=time_axis(whole, "from"),
            x2="to:T",
            y=alt.Y(
                "worker:N",
                title=None,
                sort=None,
                axis=alt.Axis(ticks=False, domain=False, grid=False),
            ),
            color=legend("status", colours),
        )
    )
    return draw(chart, "workers", label, height=height_of(len(rows)))


def status_colour(status: str) -> str:
    """Return the colour for a worker's status."""
    known = {"lost": RED, "drained": GREY, "left": GREY, "silent": "#e69f00"}
    return known.get(status.lower(), "#009e73")


def utilisation(loads: Sequence[Load], target: float | None, label: str) -> Markup:
    """Draw the utilisation of each service's workers: the mean as a bar, the peak as a mark."""
    import altair as alt

    rows = [
        {"service": f"{number + 1}  {legible(row.service, 22)}", "mean": row.utilisation or 0}
        | {"peak": row.peak_utilisation or row.utilisation or 0}
        for number, row in enumerate(loads)
    ]
    top = max(1.0, *(row["peak"] for row in rows))
    scale = alt.Scale(domain=[0, top], nice=False)
    names = alt.Y(
        "service:N", title=None, sort=None, axis=alt.Axis(ticks=False, domain=False, grid=False)
    )
    base = chart_of(rows).encode(y=names)
    axis = alt.Axis(format=".0%", tickCount=5, title=None)
    bars = base.mark_bar(height=ROW_HEIGHT / 2, color=BLUE, cornerRadius=2).encode(
        x=alt.X("mean:Q", scale=scale, axis=axis)
    )
    peaks = base.mark_tick(color=INK, thickness=2, height=ROW_HEIGHT * 0.8).encode(
        x=alt.X("peak:Q", scale=scale)
    )
    layers = [bars, peaks]
    if target:
        goal = chart_of([{"target": target}]).mark_rule(color=RED, strokeDash=[4, 3])
        layers.append(goal.encode(x=alt.X("target:Q", scale=scale)))
    return draw(alt.layer(*layers), "utilisation", label, height=height_of(len(rows)) - 24)


def _in(value: float, domain: list[float]) -> bool:
    return domain[0] <= value <= domain[1]
