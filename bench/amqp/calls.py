"""Calls per second and processor time per call, by contender."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final, NamedTuple

from bench.amqp.contenders import (
    AIO_PIKA,
    AIO_PIKA_BARE,
    BASELINE,
    CONTENDERS,
    REQUITE,
    REQUITE_BARE,
    Contender,
)
from bench.amqp.turns import (
    Figures,
    Settings,
    facts,
    make_job,
    publish,
    settings_of,
    take_turn,
)
from bench.spark.page import table
from requite.testing.processes import ProcessFailed
from requite.testing.rabbitmq import RabbitServer

GOAL: Final = 2.0  # times aio-pika's calls per second, 64 in flight
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
_GOALS: Final = ((REQUITE, AIO_PIKA), (REQUITE_BARE, AIO_PIKA_BARE))


class Calls:
    """All turns, by cell and contender."""

    def __init__(self, rabbit: RabbitServer, settings: Settings, only: Sequence[str]) -> None:
        self._rabbit = rabbit
        self._settings = settings
        wanted = [each for each in CONTENDERS if any(text in each.name for text in only or [""])]
        self._absent = {each.name: why for each in wanted if (why := each.lack()) is not None}
        self._present = [each for each in wanted if each.name not in self._absent]
        self._turns: dict[tuple[Cell, str], dict[int, Figures]] = {}
        self.failures: list[str] = []

    # --- measuring --------------------------------------------------------------------------------
    def measure(self, cells: Sequence[Cell]) -> None:
        """Run all contenders in each round; skip a contender in a cell where it failed."""
        for cell in cells:
            taking_part = list(self._present)
            for number in range(self._settings.rounds):
                for contender in list(taking_part):
                    if not self._turn(cell, contender, number):
                        taking_part.remove(contender)

    def _turn(self, cell: Cell, contender: Contender, number: int) -> bool:
        job = make_job(self._rabbit, self._settings, *cell, contender.queue)
        try:
            figures = take_turn(self._rabbit, contender, job)
        except ProcessFailed as failure:
            self.failures.append(f"{contender.name}, {cell}: {failure}")
            return False
        self._turns.setdefault((cell, contender.name), {})[number] = figures
        pace = figures["requests_per_s"]
        place = f"{number + 1}/{self._settings.rounds} {cell!s:20}"
        print(f"{place} {contender.name:26} {pace:8,.0f}/s", flush=True)
        return True

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

    # --- the report -------------------------------------------------------------------------------
    def report(self) -> str:
        """Return the tables and the goals."""
        cells = list(dict.fromkeys(cell for cell, _ in self._turns))
        parts = [part for cell in cells for part in self._table(cell)]
        return "\n\n".join(
            [
                *parts,
                *(line for cell in cells if cell.window > 1 for line in self._verdicts(cell)),
                *(f"Skipped: {name}: {why}." for name, why in self._absent.items()),
            ]
        )

    def _table(self, cell: Cell) -> Iterator[str]:
        header = ["client, servant", "calls per second", "CPU of client / servant / RabbitMQ, µs"]
        if cell.window == 1:
            header.append("latency p50 / p99, µs")
        rows = [
            list(self._row(cell, each.name))
            for each in self._present
            if (cell, each.name) in self._turns
        ]
        yield f"**{cell}**"
        yield table(header, rows)

    def _row(self, cell: Cell, name: str) -> Iterator[str]:
        yield name
        ratio = self.ratio(cell, name, BASELINE[name])
        yield f"{self.median(cell, name, 'requests_per_s'):,.0f}" + (
            "" if ratio is None else f" ({ratio:.2f}x)"
        )
        yield " / ".join(f"{self.median(cell, name, f'{who}_cpu_us'):.0f}" for who in _WHO)
        if cell.window == 1:
            latencies = (self.median(cell, name, f"latency_p{n}_us") for n in (50, 99))
            yield " / ".join(f"{latency:,.0f}" for latency in latencies)

    def _verdicts(self, cell: Cell) -> Iterator[str]:
        for mine, theirs in _GOALS:
            ratio = self.ratio(cell, mine, theirs)
            if ratio is not None:
                verdict = "reached" if ratio >= GOAL else "not reached"
                yield (
                    f"{cell}: {mine} makes {ratio:.2f} times the calls of {theirs} (goal: at"
                    f" least {GOAL:g}): {verdict}."
                )


def run(rabbit: RabbitServer, given: Namespace, how: str) -> list[str]:
    """Measure and report; return what failed."""
    settings = settings_of(given)
    calls = Calls(rabbit, settings, given.only)
    calls.measure(QUICK if given.quick else CELLS)
    lead = (
        f"{how}: medians of {settings.rounds} interleaved rounds, each turn of"
        f" {settings.seconds:g} s. Behind calls per second their ratio to aio-pika's, of bare lines"
        " to aio-pika's bare line, each taken within a round."
    )
    if not calls.failures:
        publish(given, "amqp calls", "\n\n".join([lead, facts(rabbit), calls.report()]))
    return calls.failures
