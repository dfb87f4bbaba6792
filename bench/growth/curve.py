"""A curve: the values of the varied quantity, the lines, and the figures to show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from bench.growth.point import Point, Settings


class Shown(NamedTuple):
    """A figure as a column of the table and a panel of the chart."""

    figure: str
    title: str
    form: str


CPU: Final = Shown("broker_cpu_us", "broker's CPU per request, µs", ".1f")
MEMORY: Final = Shown("broker_memory_mib", "broker's memory, MiB", ",.0f")
REST: Final = Shown("rest_cores", "cores used at rest", ".2f")


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve. `what` names the varied quantity, `how` says in a sentence what is measured.

    `run` yields the points of the given values as they are measured; `long_values` are measured
    with `--long` only. With `is_logarithmic`, each step of the axis is a factor. `lack`
    returns what is missing to measure it.
    """

    name: str
    what: str
    how: str
    values: Sequence[float]
    shown: Sequence[Shown]
    run: Callable[[Settings, Sequence[float]], Iterator[Point]]
    long_values: Sequence[float] = ()
    is_logarithmic: bool = True
    lack: Callable[[], str | None] = lambda: None

    def points(self, settings: Settings) -> Iterator[Point]:
        """Measure the curve."""
        values = [*self.values, *(self.long_values if settings.is_long else ())]
        return self.run(settings, values[: settings.points])
