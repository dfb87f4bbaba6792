"""The goals of all benchmarks, and how far they are reached. Reported, never asserted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final, Literal

from bench import page
from bench.builds import COMPILED, PURE, named

Figures = Callable[[str, str, str], Mapping[int, float]]
"""Returns, by round, a figure of a contender in a cell: `figures(cell, contender, figure)`."""

HEADER: Final = (
    "",
    "goal: compiled (pure)",
    "measured: compiled (pure)",
    "compiled (pure)",
)
NOT_MEASURED: Final = "not measured"
_SECTION: Final = "goals"


@dataclass(frozen=True, slots=True)
class Goal:
    """A ratio of a figure to that of a baseline, taken within a round.

    Among several baselines, each round has the better one. `pure` is the goal of the pure build, if
    it has one.
    """

    part: str
    what: str
    contender: str
    against: tuple[str, ...]
    cell: str
    figure: str
    relation: Literal["at most", "at least"]
    compiled: float
    pure: float | None = None

    @property
    def title(self) -> str:
        """What is compared, and under which condition."""
        return f"{self.what}: {self.cell}"

    @property
    def words(self) -> str:
        """The goal, with that of the pure build in parentheses."""
        pure = "" if self.pure is None else f" ({self.pure:g})"
        return f"{self.relation} {self.compiled:g}{pure} x {' or '.join(self.against)}"

    def ratio(self, figures: Figures, kind: str) -> float | None:
        """Return the median of the ratios of a build."""
        mine = figures(self.cell, named(self.contender, kind), self.figure)
        theirs = [figures(self.cell, name, self.figure) for name in self.against]
        theirs = [rounds for rounds in theirs if rounds]
        best = max if self.relation == "at least" else min
        ratios = [
            value / best(rounds[number] for rounds in theirs if number in rounds)
            for number, value in mine.items()
            if any(number in rounds for rounds in theirs)
        ]
        return median(ratios) if ratios else None

    def verdict(self, ratio: float, goal: float) -> str:
        """Return whether a ratio reaches a goal."""
        reached = ratio <= goal if self.relation == "at most" else ratio >= goal
        return "reached" if reached else "missed"

    def row(self, figures: Figures) -> list[str]:
        """Return the row of the table."""
        compiled, pure = (self.ratio(figures, kind) for kind in (COMPILED, PURE))
        if compiled is None and pure is None:
            return [self.title, self.words, NOT_MEASURED, "-"]
        measured = "-" if compiled is None else f"{compiled:.2f}x"
        verdict = "-" if compiled is None else self.verdict(compiled, self.compiled)
        if pure is not None:
            measured += f" ({pure:.2f}x)"
            if self.pure is not None:
                verdict += f" ({self.verdict(pure, self.pure)})"
        return [self.title, self.words, measured, verdict]


def rows(part: str, figures: Figures) -> list[list[str]]:
    """Return the rows of the goals of a part."""
    return [goal.row(figures) for goal in GOALS if goal.part == part]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a table."""
    return page.table(HEADER, rows)


def write(path: Path, measured: Sequence[Sequence[str]]) -> None:
    """Write the table of all goals to a page; rows that are not `measured` stay as they are."""
    lines = page.read(path, _SECTION, maker="bench").splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    known = {tuple(row[:2]): row for row in [*cells, *measured] if row[2] != NOT_MEASURED}
    all_rows = [
        known.get((goal.title, goal.words), [goal.title, goal.words, NOT_MEASURED, "-"])
        for goal in GOALS
    ]
    page.write(path, _SECTION, table(all_rows), maker="bench")


_END_TO_END: Final = ("end-to-end", "end to end", "requite", ("nats-py",))
_IN_FLIGHT: Final = "64 in flight, 4 workers, 11 B"
_RABBIT: Final = ("RabbitMQ, pika", "RabbitMQ, aio-pika")

GOALS: Final = (
    Goal(*_END_TO_END, _IN_FLIGHT, "requests_per_s", "at least", 2.5, 1.7),
    Goal(*_END_TO_END, "256 in flight, 4 workers, 11 B", "requests_per_s", "at least", 3, 2),
    Goal(
        "end-to-end",
        "end to end, latency p50",
        "requite",
        ("nats-py",),
        "1 in flight, 4 workers, 11 B",
        "latency_p50_us",
        "at most",
        0.75,
    ),
    *(
        Goal(
            "broker",
            f"broker's CPU per request, {dialect}",
            f"requite {dialect}",
            ("pyzmq poller",),
            _IN_FLIGHT,
            "broker_cpu_us",
            "at most",
            ratio,
        )
        for dialect, ratio in (("0.3", 0.08), ("0.2", 0.33))
    ),
    *(
        Goal(
            "native",
            "broker's CPU per request, 0.2, load in C",
            "0.2, load in C",
            ("libzmq in C",),
            cell,
            "broker_cpu_us",
            "at most",
            ratio,
        )
        for cell, ratio in ((_IN_FLIGHT, 0.5), ("256 in flight, 64 workers, 11 B", 0.8))
    ),
    Goal(
        "sp",
        "SP",
        "AsyncClient, Worker",
        ("nng in C",),
        "64 in flight, 11 B",
        "requests_per_s",
        "at least",
        4.5,
        3.3,
    ),
    Goal(
        "sp",
        "SP",
        "AsyncClient, Worker",
        ("pynng",),
        "One at a time, 11 B",
        "requests_per_s",
        "at least",
        1.6,
    ),
    *(
        Goal(
            "amqp",
            "AMQP",
            "AsyncClient, Worker",
            (library,),
            "64 in flight, 11 B",
            "requests_per_s",
            "at least",
            ratio,
        )
        for library, ratio in (("aio-pika", 4.5), ("pika", 1.6))
    ),
    *(
        Goal("durable", what, what, _RABBIT, "64 clients", "requests_per_s", "at least", ratio)
        for what, ratio in (
            ("requite, a connection per client", 4.5),
            ("requite, one connection", 7),
        )
    ),
)
