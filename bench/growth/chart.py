"""Chart of a curve: a panel for each of its first figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.charts import COLOURS, save
from bench.growth.curve import Curve, Shown
from bench.growth.point import Point

_PANELS: Final = 3
_WIDTH: Final = 260
_HEIGHT: Final = 220


def draw(curve: Curve, points: Sequence[Point], path: Path) -> None:
    """Draw the first three figures over the varied quantity, into an SVG."""
    import altair as alt

    panels = [_panel(curve, points, shown) for shown in curve.shown[:_PANELS]]
    save(alt.hconcat(*panels, spacing=24).resolve_legend(color="shared"), path)


def _panel(curve: Curve, points: Sequence[Point], shown: Shown) -> Any:
    import altair as alt

    rows = [
        {"at": at, "value": figures[shown.figure], "line": line}
        for line, at, figures in points
        if shown.figure in figures and (at or not curve.is_logarithmic)
    ]
    lines = list(dict.fromkeys(point.line for point in points))
    kind = "log" if curve.is_logarithmic else "linear"
    x = alt.X(
        "at:Q",
        scale=alt.Scale(type=kind, nice=False),
        axis=alt.Axis(title=curve.what, format="~s", tickCount=6),
    )
    y = alt.Y("value:Q", scale=alt.Scale(zero=True), axis=alt.Axis(title=None, format="~s"))
    colour = alt.Color(
        "line:N",
        scale=alt.Scale(domain=lines, range=[*COLOURS[: len(lines)]]),
        legend=alt.Legend(title=None, orient="bottom") if len(lines) > 1 else None,
    )
    chart = alt.Chart(alt.InlineData(values=rows))
    drawn = chart.mark_line(strokeWidth=2, point={"size": 40}).encode(x=x, y=y, color=colour)
    return drawn.properties(width=_WIDTH, height=_HEIGHT, title=shown.title)
