"""Chart of the throughput law: calls per second over slots, measured and predicted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.amqp.law_point import HANDLERS, Point
from bench.charts import save

_WIDTH: Final = 330
_HEIGHT: Final = 300
_COLOURS: Final = ("#56b4e9", "#0072b2", "#1b2f4b")
_LAW: Final = "#c8372d"


def draw(points: Sequence[Point], path: Path) -> None:
    """Draw a panel per handler, into an SVG."""
    import altair as alt

    ceiling = 1.6 * max(point.calls_per_s for point in points)
    floor = 0.8 * min(point.calls_per_s for point in points)
    panels = [
        _panel([point for point in points if point.handler == handler], what, [floor, ceiling])
        for handler, what in HANDLERS.items()
    ]
    save(alt.hconcat(*panels, spacing=24), path)


def _panel(points: Sequence[Point], title: str, domain: list[float]) -> Any:
    import altair as alt

    x = alt.X(
        "slots:Q",
        scale=alt.Scale(type="log", base=2),
        axis=alt.Axis(title="slots C", values=sorted({point.slots for point in points})),
    )
    scale = alt.Scale(type="log", domain=domain, nice=False)
    y = alt.Y("calls:Q", scale=scale, axis=alt.Axis(title="calls per second P", format=",~s"))
    servants = sorted({point.servants for point in points})
    colour = alt.Color(
        "servants:N",
        scale=alt.Scale(domain=servants, range=[*_COLOURS[: len(servants)]]),
        legend=alt.Legend(title="servants", orient="right"),
    )
    measured = alt.Chart(alt.InlineData(values=[_row(point) for point in points]))
    lines = measured.mark_line(strokeWidth=2, point={"size": 40}).encode(x=x, y=y, color=colour)
    rule = alt.Chart(alt.InlineData(values=_law(points))).encode(x=x, y=y)
    dashes = rule.mark_line(strokeDash=[5, 4], color=_LAW, strokeWidth=1.5, clip=True)
    return alt.layer(dashes, lines).properties(width=_WIDTH, height=_HEIGHT, title=title)


def _row(point: Point) -> dict[str, Any]:
    return {"slots": point.slots, "calls": point.calls_per_s, "servants": point.servants}


def _law(points: Sequence[Point]) -> list[dict[str, Any]]:
    """Return C / L, with the latency of a single slot at one servant."""
    [single] = [point for point in points if point.slots == 1 and point.servants == 1]
    ends = 1, max(point.slots for point in points)
    return [{"slots": slots, "calls": slots / single.latency_s} for slots in ends]
