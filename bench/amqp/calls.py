"""Calls per second and processor time per call, by contender."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median
from typing import Final, NamedTuple

from bench import builds, goals
from bench.amqp.contenders import CONTENDERS, Contender, baseline_of
from bench.amqp.turns import (
    Figures,
    Settings,
    facts,
    make_job,
    publish,
    settings_of,
    take_turn,
)
from bench.page import table
from bench.quiet import Quiet
from requite.testing.processes import ProcessFailed
from requite.testing.rabbitmq import RabbitServer

_WHO: Final = ("client", "workers", "broker")


class Cell(NamedTuple):
    """Number of calls in flight, and the size of their bodies."""

    window: int
    size_bytes: int

    def __str__(self) -> str:
        size = (
            f"{self.size_bytes // 1024} KiB" if self.size_bytes >= 1024 else f"{self.size_bytes} B"
        )
        return f"{self.window} in flight, {size}"


CELLS: Final = tuple(Cell(window, size) for window in (1, 64) for size in (11, 1024))
QUICK: Final = (Cell(1, 11), Cell(64, 11))


class Calls:
    """All turns, by cell and contender."""

    def __init__(self, rabbit: RabbitServer, settings: Settings, given: Namespace) -> None:
        self._rabbit = rabbit
        self._settings = settings
        measured = builds.all_of(given)
        everybody = [each for plain in CONTENDERS for each in plain.in_builds(measured)]
        texts = given.only or [""]
        wanted = [each for each in everybody if any(text in each.name for text in texts)]
        self._absent = {each.name: why for each in wanted if (why := each.lack()) is not None}
        self._present = [each for each in wanted if each.name not in self._absent]
        self._turns: dict[tuple[Cell, str], dict[int, Figures]] = {}
        self.failures: list[str] = []

    # --- measuring --------------------------------------------------------------------------------
    def measure(self, cells: Sequence[Cell], quiet: Quiet) -> None:
        """Run all contenders in each round; skip a contender in a cell where it failed."""
        for cell in cells:
            taking_part = list(self._present)
            for number in range(self._settings.rounds):
                turns = quiet.take(partial(self._round, cell, taking_part, number))
                taking_part = [each for each in taking_part if each.name in turns]
                for name, figures in turns.items():
                    self._turns.setdefault((cell, name), {})[number] = figures

    def _round(
        self, cell: Cell, contenders: Sequence[Contender], number: int
    ) -> dict[str, Figures]:
        """Return the figures of the contenders that did not fail."""
        turns = {}
        for contender in contenders:
            job = make_job(self._rabbit, self._settings, *cell, contender.queue)
            try:
                figures = take_turn(self._rabbit, contender, job)
            except ProcessFailed as failure:
                self.failures.append(f"{contender.name}, {cell}: {failure}")
                continue
            turns[contender.name] = figures
            pace = figures["requests_per_s"]
            place = f"{number + 1}/{self._settings.rounds} {cell!s:20}"
            print(f"{place} {contender.name:32} {pace:8,.0f}/s", flush=True)
        return turns

    # --- figures ----------------------------------------------------------------------------------
    def median(self, cell: Cell, name: str, figure: str) -> float | None:
        """Return the median of a figure over the rounds."""
        values = [figures[figure] for figures in self._turns.get((cell, name), {}).values()]
        return median(values) if values else None

    def ratio(self, cell: Cell, name: str, base: str) -> float | None:
        """Return the median over the rounds of the ratio of its calls to those of `base`."""
        mine, theirs = self._turns.get((cell, name), {}), self._turns.get((cell, base), {})
        paces = [
            mine[number]["requests_per_s"] / theirs[number]["requests_per_s"]
            for number in mine.keys() & theirs.keys()
        ]
        return median(paces) if paces else None

    def goals(self) -> list[list[str]]:
        """Return the rows of the goals."""
        return goals.rows("amqp", self._figures)

    def _figures(self, text: str, name: str, figure: str) -> dict[int, float]:
        turns = [
            rounds
            for (cell, known), rounds in self._turns.items()
            if (str(cell), known) == (text, name)
        ]
        return {number: each[figure] for number, each in turns[0].items()} if turns else {}

    # --- the report -------------------------------------------------------------------------------
    def report(self) -> str:
        """Return the tables and the goals."""
        cells = list(dict.fromkeys(cell for cell, _ in self._turns))
        parts = [part for cell in cells for part in self._table(cell)]
        return "\n\n".join(
            [
                *parts,
                "**Goals**",
                goals.table(self.goals()),
                *(f"Skipped: {name}: {why}." for name, why in self._absent.items()),
            ]
        )

    def _table(self, cell: Cell) -> Iterator[str]:
        header = ["client, servant", "calls per second", "CPU of client / servant / RabbitMQ, µs"]
        if cell.window == 1:
            header.append("latency p50 / p99, µs")
        rows = [
            list(self._row(cell, each))
            for each in self._present
            if (cell, each.name) in self._turns
        ]
        yield f"**{cell}**"
        yield table(header, rows)

    def _row(self, cell: Cell, contender: Contender) -> Iterator[str]:
        name = contender.name
        yield name
        ratio = self.ratio(cell, name, baseline_of(contender))
        yield f"{self.median(cell, name, 'requests_per_s'):,.0f}" + (
            "" if ratio is None else f" ({ratio:.2f}x)"
        )
        yield " / ".join(f"{self.median(cell, name, f'{who}_cpu_us'):.0f}" for who in _WHO)
        if cell.window == 1:
            latencies = (self.median(cell, name, f"latency_p{n}_us") for n in (50, 99))
            yield " / ".join(f"{latency:,.0f}" for latency in latencies)


def run(rabbit: RabbitServer, given: Namespace, how: str) -> list[str]:
    """Measure and report; return what failed."""
    settings = settings_of(given)
    calls = Calls(rabbit, settings, given)
    quiet = Quiet(given.busy)
    calls.measure(QUICK if given.quick else CELLS, quiet)
    lead = (
        f"{how}: medians of {settings.rounds} interleaved rounds, each turn of"
        f" {settings.seconds:g} s. Behind calls per second their ratio to aio-pika's, of bare lines"
        f" to aio-pika's bare line, each taken within a round. {quiet.words()}"
    )
    if not calls.failures:
        found = facts(rabbit, builds.all_of(given))
        publish(given, "amqp calls", "\n\n".join([lead, found, calls.report()]))
        if given.docs is not None:
            goals.write(given.docs / "performance.md", calls.goals())
    return calls.failures
