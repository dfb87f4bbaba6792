"""The points of a curve as CSV, as text, and as a part of a page."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench import page
from bench.growth.chart import draw
from bench.growth.curve import Curve
from bench.growth.point import Point

_ABSENT: Final = "-"


def text(curve: Curve, points: Sequence[Point]) -> str:
    """Return the table of a curve: a row per value, a column per figure and line."""
    lines = list(dict.fromkeys(point.line for point in points))
    found = {(point.line, point.at): point.figures for point in points}
    pairs = [(shown, line) for shown in curve.shown for line in lines]
    header = [curve.what, *(_heading(shown.title, line, lines) for shown, line in pairs)]
    rows = []
    for at in dict.fromkeys(point.at for point in points):
        cells = ((found.get((line, at), {}).get(shown.figure), shown.form) for shown, line in pairs)
        rows.append([f"{at:,g}" if at % 1 else f"{at:,.0f}", *map(_cell, cells)])
    return page.table(header, rows)


def _heading(title: str, line: str, lines: Sequence[str]) -> str:
    return title if len(lines) == 1 else f"{title}: {line}"


def _cell(given: tuple[float | None, str]) -> str:
    value, form = given
    return _ABSENT if value is None else format(value, form)


def write_csv(path: Path, curve: Curve, points: Sequence[Point]) -> None:
    """Write all figures of a curve, one per row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["curve", "line", "at", "figure", "value"])
        table.writerows(_rows(curve, points))


def _rows(curve: Curve, points: Sequence[Point]) -> Iterator[list[object]]:
    for line, at, figures in points:
        for figure, value in figures.items():
            yield [curve.name, line, at, figure, value]


def write_page(path: Path, curve: Curve, points: Sequence[Point], lead: str) -> None:
    """Write the table of a curve to a page, and its chart beside the page."""
    picture = path.with_name(f"growth-{curve.name}.svg")
    draw(curve, points, picture)
    titles = ", ".join(shown.title for shown in curve.shown[:3])
    parts = [
        lead,
        curve.how,
        f"![Over {curve.what}: {titles}]({picture.name})",
        text(curve, points),
    ]
    page.write(path, f"growth {curve.name}", "\n\n".join(parts), maker="bench")
