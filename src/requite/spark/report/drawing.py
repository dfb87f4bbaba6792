"""Size, colours, axes and legends of the report's charts.

Charts are 480 units wide with text of 13 units: side by side on a desktop, stacked on a phone,
where they shrink by a quarter and stay legible. The colours suit colour-blind readers and print
well.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from markupsafe import Markup

from requite.spark.report.facts import Span
from requite.spark.report.svg import inline_svg

if TYPE_CHECKING:
    import altair as alt

WIDTH: Final = 480
HEIGHT: Final = 240
ROW_HEIGHT: Final = 22
INK: Final = "#22303c"
FAINT: Final = "#e3e8ec"
GREY: Final = "#a3adb7"
RED: Final = "#c8372d"
BLUE: Final = "#0072b2"
_FONT: Final = "Arial, Helvetica, sans-serif"

MILLISECONDS: Final = (
    "datum.value >= 1000 ? format(datum.value / 1000, ',~r') + ' s' : "
    "format(datum.value, '~r') + ' ms'"
)
"""Labels of an axis of milliseconds, as a Vega expression."""

Row: TypeAlias = dict[str, Any]


def chart_of(rows: list[Row]) -> alt.Chart:
    """Return a chart of rows, to be encoded."""
    import altair as alt

    return alt.Chart(alt.InlineData(values=rows))


def time_axis(span: Span, field: str = "at") -> alt.X:
    """Return the time axis, UTC, of a span."""
    import altair as alt

    scale = alt.Scale(type="utc", domain=[instant(span.began), instant(span.ended)], nice=False)
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


def amount_axis() -> alt.Axis:
    """Return an axis of plain numbers."""
    import altair as alt

    return alt.Axis(format=",~r", tickCount=5)


def loss_lines(losses: Sequence[datetime], span: Span) -> list[alt.Chart]:
    """Return a dashed line at each loss of a worker."""
    rows: list[Row] = [{"at": instant(at)} for at in losses if span.began <= at <= span.ended]
    rules = chart_of(rows).mark_rule(color=RED, strokeDash=[2, 3], strokeWidth=1)
    return [rules.encode(x=time_axis(span))] if rows else []


def legend(field: str, colours: dict[str, str]) -> alt.Color:
    """Return colours by the values of a field, with a legend above the chart."""
    import altair as alt

    scale = alt.Scale(domain=[*colours], range=[*colours.values()])
    shown = alt.Legend(title=None, orient="top", direction="horizontal", columns=3)
    return alt.Color(f"{field}:N", scale=scale, legend=shown)


def draw(chart: Any, name: str, label: str, *, height: int = HEIGHT) -> Markup:
    """Set size and style of a chart, and return it as SVG."""
    sized = (
        chart.properties(
            width=WIDTH, height=height, autosize={"type": "fit", "contains": "padding"}
        )
        .configure(font=_FONT, background="transparent", padding=2, aria=False)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=INK,
            labelFontSize=13,
            gridColor=FAINT,
            domainColor=GREY,
            tickColor=GREY,
            labelLimit=190,
        )
        .configure_legend(
            labelColor=INK,
            labelFontSize=13,
            symbolType="square",
            symbolOpacity=1,
            labelLimit=150,
            padding=0,
        )
        .configure_text(font=_FONT, fontSize=13)
    )
    return inline_svg(sized, name=name, label=label)


def height_of(rows: int) -> int:
    """Return the height of a chart with a bar per row."""
    return 64 + ROW_HEIGHT * rows


def instant(at: datetime) -> int:
    """Return an instant in milliseconds since 1970, as Vega expects."""
    return round(at.timestamp() * 1000)
