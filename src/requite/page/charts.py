"""Curves and timelines as SVG, in the colours of the page: styles are classes of its style sheet.

The policy of the page forbids styles in elements; presentation attributes of SVG are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from math import floor, inf, isnan, log10
from typing import Final, NamedTuple

from requite.page.history import EVERY_S, KEPT_S, Sample

WIDTH: Final = 600
HEIGHT: Final = 120
_GAP_S: Final = 2.5 * EVERY_S  # a curve is broken where samples are missing for so long
_SPANS_S: Final = (300.0, 900.0, KEPT_S)  # of the axis of time
_STEPS: Final = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


class Line(NamedTuple):
    """A curve: its name, its style, and its points, each run of samples by itself."""

    name: str
    style: str
    runs: tuple[str, ...]


class Chart(NamedTuple):
    """Curves over the last `minutes`; their common axis ends at `top_text`, a value as text."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    top_text: str
    minutes: int


class Curve(NamedTuple):
    """What a line shows: its name, its style, and the value of a sample."""

    name: str
    style: str
    value: Callable[[Sample], float]


def chart(
    title: str,
    unit: str,
    samples: Sequence[Sample],
    curves: Sequence[Curve],
    in_words: Callable[[float], str],
) -> Chart:
    """Return the curves of the hour before the newest sample; of less, if there are fewer samples.
    `in_words` returns a value as text."""
    aged = [((samples[-1].at - each.at).total_seconds(), each) for each in samples]
    shown = [(age_s, each) for age_s, each in aged if age_s <= KEPT_S]
    oldest_s = max((age_s for age_s, _ in shown), default=0.0)
    span_s = next(each for each in _SPANS_S if oldest_s <= each)
    values = [curve.value(each) for curve in curves for _, each in shown]
    top = _round_up(max((each for each in values if not isnan(each)), default=0.0))
    lines = (
        Line(curve.name, curve.style, tuple(_runs(shown, span_s, curve.value, top)))
        for curve in curves
    )
    return Chart(title, unit, tuple(lines), in_words(top), round(span_s / 60))


def _runs(
    samples: Sequence[tuple[float, Sample]],
    span_s: float,
    value: Callable[[Sample], float],
    top: float,
) -> Iterator[str]:
    """Yield the points of each run of samples, which have their ages, without a gap."""
    points: list[str] = []
    before_s = inf
    for age_s, each in samples:
        if before_s - age_s > _GAP_S and points:
            yield " ".join(points)
            points = []
        before_s = age_s
        figure = value(each)
        if not isnan(figure):
            x, y = WIDTH * (1 - age_s / span_s), HEIGHT * (1 - figure / top)
            points.append(f"{x:.1f},{y:.1f}")
    if points:
        yield " ".join(points)


def _round_up(value: float) -> float:
    """Return a round number that is not less; 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in _STEPS if value <= step * power * (1 + 1e-9))


# --- the timeline of a request --------------------------------------------------------------------
LANES_MAX: Final = 12
LANE_HEIGHT: Final = 26
LANES_LEFT: Final = 130
_MARKS_MAX: Final = 200
_MARGIN: Final = 12


class Mark(NamedTuple):
    """An event in a lane."""

    x: float
    style: str
    title: str


class Lane(NamedTuple):
    """The events of one process; `y` is the middle of the lane."""

    who: str
    y: float
    marks: tuple[Mark, ...]


class Timeline(NamedTuple):
    """The events of a request by time, a lane for each process."""

    lanes: tuple[Lane, ...]
    height: int
    span: timedelta


class Moment(NamedTuple):
    """An event to draw: when, who, what, and its style."""

    at: datetime
    who: str
    what: str
    style: str


def timeline(moments: Sequence[Moment]) -> Timeline | None:
    """Return the timeline of the first events of a request; None without two different times."""
    shown = moments[:_MARKS_MAX]
    if not shown:
        return None
    first, last = min(each.at for each in shown), max(each.at for each in shown)
    span = last - first
    if not span:
        return None
    width = WIDTH - LANES_LEFT - _MARGIN

    def mark(each: Moment) -> Mark:
        share = (each.at - first) / span
        return Mark(round(LANES_LEFT + width * share, 1), each.style, each.what)

    names = list(dict.fromkeys(each.who for each in shown))[:LANES_MAX]
    lanes = (
        Lane(
            name,
            LANE_HEIGHT * (number + 0.5),
            tuple(mark(each) for each in shown if each.who == name),
        )
        for number, name in enumerate(names)
    )
    return Timeline(tuple(lanes), LANE_HEIGHT * len(names), span)
