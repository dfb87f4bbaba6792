"""The report's charts: rows in, inline SVG out.

All charts are drawn 480 units wide with text of 13: side by side on a desk, below each other on a
phone, where they shrink by a quarter and stay legible. Colours tell apart for colour-blind eyes as
well, and dark on light prints.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from requite.spark.report.facts import Bar, Depth, Flow, Load, Pace, Span, WorkerLife
from requite.spark.report.markup import Markup, legible
from requite.spark.report.svg import inline_svg

if TYPE_CHECKING:
    import altair as alt

WIDTH: Final = 480
HEIGHT: Final = 240
ROW_HEIGHT: Final = 22
_FONT: Final = "Arial, Helvetica, sans-serif"
_INK: Final = "#22303c"
_FAINT: Final = "#e3e8ec"
_GREY: Final = "#a3adb7"
_RED: Final = "#c8372d"
_BLUE: Final = "#0072b2"
_SERVICES: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9")
_PERCENTILES: Final = {"median": "#56b4e9", "95 of 100": "#0072b2", "99 of 100": "#1b2f4b"}
_FAILED: Final = "failed"
_BARS_MAX: Final = 60
_DOTTED_MAX: Final = 30

_MILLISECONDS: Final = (
    "datum.value >= 1000 ? format(datum.value / 1000, ',~r') + ' s' : "
    "format(datum.value, '~r') + ' ms'"
)

Row = dict[str, Any]


def latency_over_time(
    pace: Sequence[Pace], span: Span, losses: Sequence[datetime], label: str
) -> Markup:
    """Draw percentiles over time; a step in which nothing ended leaves a gap."""
    import altair as alt

    known = {row.at: row for row in pace}
    rows: list[Row] = []
    for at in span.steps:
        row = known.get(at)
        for name, value in zip(_PERCENTILES, row[1:] if row else (None,) * 3, strict=True):
            rows.append({"at": _instant(at + span.step / 2), "percentile": name, "ms": value})
    ticks = round_values(min(row.p50_ms for row in pace), max(row.p99_ms for row in pace))
    scale = alt.Scale(type="log", domain=[ticks[0], ticks[-1]], nice=False)
    axis = alt.Axis(title=None, labelExpr=_MILLISECONDS, values=ticks)
    colour = _legend("percentile", _PERCENTILES)
    time = _time_axis(span)
    values = alt.Y("ms:Q", scale=scale, axis=axis)
    lines = _chart(rows).mark_line(strokeWidth=2, strokeJoin="round")
    dotted = rows if len(pace) <= _DOTTED_MAX else _isolated(rows)
    dots = _chart(dotted).mark_point(filled=True, size=24, opacity=1)
    layers = (mark.encode(x=time, y=values, color=colour) for mark in (lines, dots))
    return _draw(alt.layer(*_losses(losses, span), *layers), "pace", label)


def _isolated(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that no line reaches, since the steps before and after are empty."""
    n = len(_PERCENTILES)
    empty = {number for number, row in enumerate(rows) if row["ms"] is None}
    empty |= {*range(-n, 0), *range(len(rows), len(rows) + n)}
    return [row for at, row in enumerate(rows) if at not in empty and {at - n, at + n} <= empty]


def round_values(lowest: float, highest: float) -> list[float]:
    """Return 1, 2, 5, 10 … from below `lowest` to above `highest`; only tens where they are many.

    Both are positive; the values are the ticks of a logarithmic axis and its ends.
    """
    first, last = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))
    mantissas = (1, 2, 5) if last - first < 4 else (1,)
    decades = range(first - 1, last + 2)  # logarithms near a whole number may be rounded either way
    values = [mantissa * 10.0**decade for decade in decades for mantissa in mantissas]
    begin = max(number for number, value in enumerate(values) if value <= lowest)
    end = next(number for number, value in enumerate(values) if value > highest)
    return values[begin : end + 1]


def latency_histogram(
    bars: Sequence[Bar], marks: Sequence[tuple[str, float]], label: str
) -> Markup:
    """Draw how many replies took how long, with percentiles as `marks` (name, milliseconds)."""
    import altair as alt

    rows = [{"from": lower, "to": upper, "n": n, "zero": 0} for lower, upper, n in merge_bars(bars)]
    domain = [rows[0]["from"], rows[-1]["to"]]
    scale = alt.Scale(type="log", domain=domain, nice=False)
    ticks = [value for value in round_values(*domain) if _in(value, domain)]
    axis = alt.Axis(title=None, labelExpr=_MILLISECONDS, grid=False, values=ticks)
    height = alt.Scale(domain=[0, 1.15 * max(row["n"] for row in rows)], nice=False)
    base = (
        _chart(rows)
        .mark_rect(color=_BLUE, stroke="white", strokeWidth=0.5)
        .encode(
            x=alt.X("from:Q", scale=scale, axis=axis),
            x2="to:Q",
            y=alt.Y("zero:Q", title=None, scale=height, axis=alt.Axis(format=",d", tickCount=5)),
            y2="n:Q",
        )
    )
    return _draw(alt.layer(base, *_marks(marks, domain, scale)), "histogram", label)


def _marks(
    marks: Sequence[tuple[str, float]], domain: list[float], scale: alt.Scale
) -> list[alt.Chart]:
    """Return dashed lines at some values, each with its name beside it."""
    import altair as alt

    layers = []
    for name, ms in marks:
        if not _in(ms, domain):
            continue
        is_far_right = _log(ms / domain[0], domain[1] / domain[0]) > 0.8
        side: Any = {"align": "right", "dx": -4} if is_far_right else {"align": "left", "dx": 4}
        chart = _chart([{"ms": ms, "name": name}])
        at = alt.X("ms:Q", scale=scale)
        layers += [
            chart.mark_rule(color=_RED, strokeDash=[4, 3]).encode(x=at),
            chart.mark_text(color=_RED, baseline="top", dy=2, **side).encode(
                x=at, y=alt.value(0), text="name:N"
            ),
        ]
    return layers


def merge_bars(bars: Sequence[Bar], at_most: int = _BARS_MAX) -> list[tuple[float, float, int]]:
    """Join neighbouring buckets until there are few: (lower, upper, n), equally wide as logarithms.

    Buckets grow by a constant factor, so a bar of `width` of them does, too. The factor is read
    from the closest two.
    """
    uppers = sorted({bar.upper_ms for bar in bars if bar.upper_ms > 0})
    ratios = [after / before for before, after in pairwise(uppers)]
    factor = max(min(ratios, default=1.02), 1.001)
    steps = _log(uppers[-1] / uppers[0], factor)
    width = factor ** max(1, -(-round(steps + 1) // at_most))
    lowest = uppers[0] / factor
    counts: dict[int, int] = {}
    for bar in bars:
        place = int(_log(max(bar.upper_ms, uppers[0]) / lowest, width) - 1e-6)
        counts[place] = counts.get(place, 0) + bar.n
    return [(lowest * width**k, lowest * width ** (k + 1), n) for k, n in sorted(counts.items())]


def throughput(
    flow: Sequence[Flow],
    span: Span,
    losses: Sequence[datetime],
    rest: str,
    unit_s: float,
    label: str,
) -> Markup:
    """Draw what ended per unit of time, services on top of each other. `rest` names the others."""
    import altair as alt

    names = [legible(name) or rest for name in drawn_services(flow)]
    colours = dict(zip(names, _SERVICES, strict=False)) | {rest: _GREY}
    colours = {name: colours.get(name, _GREY) for name in names}
    rows = [*_steps_of(flow, span, rest, unit_s)]
    if any(row.failed for row in flow):
        colours[_FAILED] = _RED
    order = {name: number for number, name in enumerate(colours)}
    rows = [{**row, "order": order[row["series"]]} for row in rows if row["series"] in order]
    chart = (
        _chart(rows)
        .mark_area(interpolate="step-after", line=False)
        .encode(
            x=_time_axis(span),
            y=alt.Y("rate:Q", stack="zero", title=None, axis=_amounts()),
            color=_legend("series", colours),
            order="order:Q",
        )
    )
    return _draw(alt.layer(chart, *_losses(losses, span)), "throughput", label)


def drawn_services(flow: Iterable[Flow]) -> list[str]:
    """Return the services of a flow, the busiest first, and "" (the others' sum) last."""
    totals: dict[str, int] = {}
    for row in flow:
        totals[row.service] = totals.get(row.service, 0) + row.replied + row.failed
    return sorted(totals, key=lambda name: (not name, -totals[name], name))


def _steps_of(flow: Sequence[Flow], span: Span, rest: str, unit_s: float) -> Iterable[Row]:
    """Yield every series in every step, zeros as well, and once more at the end of the last."""
    replied: dict[tuple[str, datetime], int] = {}
    for row in flow:
        for series, n in ((legible(row.service) or rest, row.replied), (_FAILED, row.failed)):
            replied[series, row.at] = replied.get((series, row.at), 0) + n
    for series in {series for series, _at in replied}:
        for at in span.steps:
            rate = replied.get((series, at), 0) / span.step_s * unit_s
            yield {"series": series, "at": _instant(at), "rate": rate}
        yield {"series": series, "at": _instant(span.ended), "rate": rate}


def queue_depth(
    queue: Sequence[Depth], span: Span, losses: Sequence[datetime], label: str
) -> Markup:
    """Draw how many requests waited: the average as an area, the most as a line above it."""
    import altair as alt

    known = {row.at: row for row in queue}
    steps = [*((at, known.get(at)) for at in span.steps)]
    steps.append((span.ended, steps[-1][1]))
    rows = [
        {"at": _instant(at), "what": what, "n": n}
        for at, row in steps
        for what, n in (("average", row.average if row else 0), ("most", row.deepest if row else 0))
    ]
    colours = {"average": "#9ccbe6", "most": _BLUE}
    base = _chart(rows).encode(
        x=_time_axis(span),
        y=alt.Y("n:Q", title=None, stack=None, axis=_amounts()),
        color=_legend("what", colours),
    )
    area = base.transform_filter("datum.what == 'average'").mark_area(interpolate="step-after")
    line = base.transform_filter("datum.what == 'most'").mark_line(
        interpolate="step-after", strokeWidth=1.5
    )
    return _draw(alt.layer(area, line, *_losses(losses, span)), "queue", label)


def worker_lives(workers: Sequence[WorkerLife], span: Span, label: str) -> Markup:
    """Draw each worker's time on stage as a bar, coloured by what became of it.

    Workers may have come before the first request, and left after the last.
    """
    import altair as alt

    began = min(span.began, *(life.first_seen for life in workers))
    ended = max(span.ended, *(life.last_seen for life in workers))
    shortest = (ended - began) / WIDTH
    whole = Span(began, max(ended, *(life.first_seen + shortest for life in workers)), span.step)
    rows: list[Row] = [
        {
            "worker": f"{number + 1}  {legible(life.worker[:8])}",
            "from": _instant(life.first_seen),
            "to": _instant(max(life.last_seen, life.first_seen + shortest)),
            "status": legible(life.status, 16) or "unknown",
        }
        for number, life in enumerate(workers)
    ]
    colours = {
        status: status_colour(status) for status in sorted({str(row["status"]) for row in rows})
    }
    chart = (
        _chart(rows)
        .mark_bar(height=ROW_HEIGHT / 2, cornerRadius=3)
        .encode(
            x=_time_axis(whole, "from"),
            x2="to:T",
            y=alt.Y(
                "worker:N",
                title=None,
                sort=None,
                axis=alt.Axis(ticks=False, domain=False, grid=False),
            ),
            color=_legend("status", colours),
        )
    )
    return _draw(chart, "workers", label, height=_height_of(len(rows)))


def status_colour(status: str) -> str:
    """Return what stands for the status of a worker."""
    known = {"lost": _RED, "drained": _GREY, "left": _GREY, "silent": "#e69f00"}
    return known.get(status.lower(), "#009e73")


def utilisation(loads: Sequence[Load], target: float | None, label: str) -> Markup:
    """Draw how busy each service's workers are: on average a bar, at most a stroke."""
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
    base = _chart(rows).encode(y=names)
    axis = alt.Axis(format=".0%", tickCount=5, title=None)
    bars = base.mark_bar(height=ROW_HEIGHT / 2, color=_BLUE, cornerRadius=2).encode(
        x=alt.X("mean:Q", scale=scale, axis=axis)
    )
    peaks = base.mark_tick(color=_INK, thickness=2, height=ROW_HEIGHT * 0.8).encode(
        x=alt.X("peak:Q", scale=scale)
    )
    layers = [bars, peaks]
    if target:
        goal = _chart([{"target": target}]).mark_rule(color=_RED, strokeDash=[4, 3])
        layers.append(goal.encode(x=alt.X("target:Q", scale=scale)))
    return _draw(alt.layer(*layers), "utilisation", label, height=_height_of(len(rows)) - 24)


def _chart(rows: list[Row]) -> alt.Chart:
    import altair as alt

    return alt.Chart(alt.InlineData(values=rows))


def _time_axis(span: Span, field: str = "at") -> alt.X:
    import altair as alt

    scale = alt.Scale(type="utc", domain=[_instant(span.began), _instant(span.ended)], nice=False)
    axis = alt.Axis(
        title=None,
        format=_time_format(span),
        tickCount=5,
        labelFlush=True,
        labelOverlap=True,
        grid=False,
    )
    return alt.X(f"{field}:T", scale=scale, axis=axis)


def _time_format(span: Span) -> str:
    length = span.ended - span.began
    if length <= timedelta(seconds=5):
        return "%H:%M:%S.%L"
    if length <= timedelta(minutes=10):
        return "%H:%M:%S"
    if length <= timedelta(days=1):
        return "%H:%M"
    return "%d %b %H:%M" if length <= timedelta(days=4) else "%d %b"


def _amounts() -> alt.Axis:
    import altair as alt

    return alt.Axis(format=",~r", tickCount=5)


def _losses(losses: Sequence[datetime], span: Span) -> list[alt.Chart]:
    """Return a dashed line wherever a worker was lost."""
    rows: list[Row] = [{"at": _instant(at)} for at in losses if span.began <= at <= span.ended]
    rules = _chart(rows).mark_rule(color=_RED, strokeDash=[2, 3], strokeWidth=1)
    return [rules.encode(x=_time_axis(span))] if rows else []


def _legend(field: str, colours: dict[str, str]) -> alt.Color:
    import altair as alt

    scale = alt.Scale(domain=[*colours], range=[*colours.values()])
    legend = alt.Legend(title=None, orient="top", direction="horizontal", columns=3)
    return alt.Color(f"{field}:N", scale=scale, legend=legend)


def _draw(chart: Any, name: str, label: str, *, height: int = HEIGHT) -> Markup:
    """Give a chart its size and looks, and draw it."""
    sized = (
        chart.properties(
            width=WIDTH, height=height, autosize={"type": "fit", "contains": "padding"}
        )
        .configure(font=_FONT, background="transparent", padding=2, aria=False)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=_INK,
            labelFontSize=13,
            gridColor=_FAINT,
            domainColor=_GREY,
            tickColor=_GREY,
            labelLimit=190,
        )
        .configure_legend(
            labelColor=_INK,
            labelFontSize=13,
            symbolType="square",
            symbolOpacity=1,
            labelLimit=150,
            padding=0,
        )
        .configure_text(font=_FONT, fontSize=13)
    )
    return inline_svg(sized, name=name, label=label)


def _height_of(rows: int) -> int:
    return 64 + ROW_HEIGHT * rows


def _instant(at: datetime) -> int:
    """Milliseconds since 1970, as Vega counts."""
    return round(at.timestamp() * 1000)


def _in(value: float, domain: list[float]) -> bool:
    return domain[0] <= value <= domain[1]


def _log(value: float, base: float) -> float:
    return math.log(value) / math.log(base)
