"""Medians and ratios of runs."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from bench import goals
from bench.sp.cells import Cell
from bench.sp.runner import Run


class Results:
    """All runs, by cell and line."""

    def __init__(self) -> None:
        self._runs: dict[tuple[Cell, str], dict[int, Run]] = {}

    def add(self, run: Run) -> None:
        """Add a run."""
        self._runs.setdefault((run.cell, run.line.name), {})[run.round] = run

    def cells(self) -> list[Cell]:
        """Return the cells that were measured, in order."""
        return list(dict.fromkeys(cell for cell, _ in self._runs))

    def lines(self, cell: Cell) -> list[str]:
        """Return the names of the lines that were measured in a cell, in order."""
        return [name for known, name in self._runs if known == cell]

    def goals(self) -> list[list[str]]:
        """Return the rows of the goals."""
        return goals.rows("sp", self._figures_of)

    def _figures_of(self, text: str, name: str, figure: str) -> dict[int, float]:
        cells = [cell for cell in self.cells() if str(cell) == text]
        return self.figures(cells[0], name, figure) if cells else {}

    def runs(self) -> Iterable[Run]:
        """Yield every run, failed ones included."""
        for rounds in self._runs.values():
            yield from rounds.values()

    def failures(self) -> list[Run]:
        """Return the runs without figures."""
        return [run for run in self.runs() if run.failure]

    def figures(self, cell: Cell, name: str, figure: str) -> dict[int, float]:
        """Return a figure by round."""
        rounds = self._runs.get((cell, name), {})
        return {
            number: run.figures[figure]
            for number, run in rounds.items()
            if run.figures is not None and figure in run.figures
        }

    def median(self, cell: Cell, name: str, figure: str) -> float | None:
        """Return the median of a figure over the rounds, or None if there is none."""
        values = self.figures(cell, name, figure).values()
        return median(values) if values else None

    def ratio(self, cell: Cell, name: str, against: str) -> float | None:
        """Return the median over the rounds of a line's rate divided by another's in that round.

        Runs of the same round are compared, so that a slow minute of the machine affects both.
        """
        mine = self.figures(cell, name, "requests_per_s")
        base = self.figures(cell, against, "requests_per_s")
        ratios = [mine[number] / base[number] for number in mine.keys() & base.keys()]
        return median(ratios) if ratios else None
