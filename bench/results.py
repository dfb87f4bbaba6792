"""Medians and ratios of runs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from statistics import median

from bench import goals
from bench.cells import Cell, Kind
from bench.contenders import BASELINE
from bench.runner import Run


class Results:
    """All runs of a session, by cell and contender."""

    def __init__(self) -> None:
        self._runs: dict[tuple[Cell, str], dict[int, Run]] = {}

    def add(self, run: Run) -> None:
        """Add a run."""
        self._runs.setdefault((run.cell, run.contender.name), {})[run.round] = run

    def cells(self, kind: Kind) -> list[Cell]:
        """Return the cells of a kind that were measured, in order."""
        return list(dict.fromkeys(cell for cell, _ in self._runs if cell.kind == kind))

    def contenders(self, kind: Kind) -> list[str]:
        """Return the names of the measured contenders, in order."""
        return list(dict.fromkeys(name for cell, name in self._runs if cell.kind == kind))

    def runs(self) -> Iterable[Run]:
        """Yield every run, failed ones included."""
        for rounds in self._runs.values():
            yield from rounds.values()

    def failures(self) -> list[Run]:
        """Return the runs without figures."""
        return [run for run in self.runs() if run.failure]

    def median(self, cell: Cell, name: str, figure: str) -> float | None:
        """Return the median of a figure over the rounds, or None if there is none."""
        values = self._figures(cell, name, figure).values()
        return median(values) if values else None

    def ratio(self, cell: Cell, name: str, figure: str) -> float | None:
        """Return the median over the rounds of a figure divided by the baseline's in that round.

        Runs of the same round are compared, so that a slow minute of the machine affects both.
        """
        mine = self._figures(cell, name, figure)
        base = self._figures(cell, BASELINE[cell.kind], figure)
        ratios = [mine[n] / base[n] for n in mine.keys() & base.keys() if base[n]]
        return median(ratios) if ratios else None

    def difference(self, cell: Cell, name: str, figure: str) -> float | None:
        """Return the median over the rounds of a figure minus the baseline's in that round."""
        mine = self._figures(cell, name, figure)
        base = self._figures(cell, BASELINE[cell.kind], figure)
        differences = [mine[n] - base[n] for n in mine.keys() & base.keys()]
        return median(differences) if differences else None

    def goals(self, kind: Kind) -> list[list[str]]:
        """Return the rows of the goals of a measured kind."""
        return goals.rows(kind, partial(self._figures_of, kind)) if self.cells(kind) else []

    def _figures_of(self, kind: Kind, text: str, name: str, figure: str) -> dict[int, float]:
        cells = [cell for cell in self.cells(kind) if str(cell) == text]
        return self._figures(cells[0], name, figure) if cells else {}

    def _figures(self, cell: Cell, name: str, figure: str) -> dict[int, float]:
        rounds = self._runs.get((cell, name), {})
        return {
            number: run.figures[figure]
            for number, run in rounds.items()
            if run.figures is not None and figure in run.figures
        }
