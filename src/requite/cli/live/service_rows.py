"""The table of services."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import nan
from typing import Final, TypeAlias

from requite.cli.live.columns import Cell, Column, Tone, count_cell, figure_cell
from requite.metrics import formats
from requite.metrics.figures import Figures, ServiceFigures

Row: TypeAlias = ServiceFigures

_LONG_WAIT_S: Final = 1.0


def failed_in(happened: Figures) -> float:
    """Return how many requests failed per second, of all statuses; NaN: not known."""
    return nan if happened.accepted != happened.accepted else sum(happened.failed.values())


def by_name(rates: Mapping[str, float]) -> str:
    """Return rates per second by name, the highest first: `failed 2.0, expired 0.1`."""
    most = sorted(rates.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{name} {formats.rate(per_s)}" for name, per_s in most)


def oldest_cell(row: Row) -> Cell:
    """Return how long the oldest request has waited."""
    tone = Tone.WARNING if row.oldest_s > _LONG_WAIT_S else Tone.PLAIN
    return figure_cell(row.oldest_s or nan, formats.duration, tone)


def queued_cell(row: Row) -> Cell:
    """Return how many requests wait; an error if no worker could take them."""
    return count_cell(row.seen.queued, Tone.ERROR if row.seen.unserved else Tone.PLAIN)


def workers_cell(row: Row) -> Cell:
    """Return the number of workers; an error if requests wait for one."""
    count = row.seen.workers
    return Cell(f"{count:,}", Tone.ERROR if row.seen.unserved else Tone.PLAIN)


def _name_cell(row: Row) -> Cell:
    if row.seen.paused:
        return Cell(row.seen.name, Tone.WARNING, " (paused)")
    return Cell(row.seen.name, Tone.STRONG)


def _counted(
    title: str, width: int, rank: int, count: Callable[[Row], int], tone: Tone = Tone.PLAIN
) -> Column[Row]:
    return Column(title, width, rank, count, lambda row: count_cell(count(row), tone))


def _measured(
    title: str,
    rank: int,
    value: Callable[[Figures], float],
    text: Callable[[float], str],
    tone: Tone = Tone.PLAIN,
    width: int = 7,
) -> Column[Row]:
    def of_row(row: Row) -> float:
        return value(row.happened)

    return Column(title, width, rank, of_row, lambda row: figure_cell(of_row(row), text, tone))


def _failed_as(row: Row) -> Cell:
    return Cell(by_name(row.happened.failed), Tone.ERROR)


SERVICES: Final[tuple[Column[Row], ...]] = (
    Column("SERVICE", 0, 0, lambda row: row.seen.name, _name_cell, is_text=True),
    Column("WORKERS", 7, 3, lambda row: row.seen.workers, workers_cell),
    _counted("IDLE", 5, 9, lambda row: row.seen.idle),
    _counted("BUSY", 5, 9, lambda row: row.seen.busy),
    _counted("DRAINING", 8, 11, lambda row: row.seen.draining, Tone.WARNING),
    _counted("BLOCKED", 7, 11, lambda row: row.seen.blocked, Tone.WARNING),
    Column("QUEUED", 7, 2, lambda row: row.seen.queued, queued_cell),
    Column("OLDEST", 7, 5, lambda row: row.oldest_s, oldest_cell),
    _counted("RUNNING", 7, 6, lambda row: row.seen.in_progress),
    _measured("REQ/S", 1, lambda it: it.accepted, formats.rate),
    _measured("P50", 7, lambda it: it.p50_s, formats.percentile),
    _measured("P99", 3, lambda it: it.p99_s, formats.percentile),
    _measured("FAIL/S", 4, failed_in, formats.rate, Tone.ERROR, width=6),
    _measured("REDEL/S", 8, lambda it: it.redelivered, formats.rate, Tone.WARNING),
    _measured("IN/S", 10, lambda it: it.received, formats.size, width=9),
    _measured("OUT/S", 10, lambda it: it.sent, formats.size, width=9),
    Column("FAILED AS", 30, 12, lambda row: failed_in(row.happened), _failed_as, is_text=True),
)
BUSIEST: Final = [column.title for column in SERVICES].index("REQ/S")
"""The column by which services are sorted at first."""
