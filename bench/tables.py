"""Results as tables: one per figure, a row per cell, a column per contender."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench import goals
from bench.cells import KINDS, Cell, Kind
from bench.contenders import BASELINE
from bench.results import Results

ABSENT = "-"

Entry = Callable[[Results, Cell, str], str]


@dataclass(frozen=True, slots=True)
class Table:
    """A table: the kind of its cells, title, header and rows."""

    kind: Kind
    title: str
    header: list[str]
    rows: list[list[str]]


def tables(results: Results) -> Iterator[Table]:
    """Yield the tables that have measurements."""
    for title, kind, keep, entry in _SHAPES:
        cells = [cell for cell in results.cells(kind) if keep(cell)]
        names = results.contenders(kind)
        if cells and names:
            rows = [
                [*_condition(cell), *(entry(results, cell, name) for name in names)]
                for cell in cells
            ]
            header = ["in flight", "workers", "body", *names]
            yield Table(kind, title, header, rows)
    for kind in KINDS:
        if rows := results.goals(kind):
            yield Table(kind, "Goals", [*goals.HEADER], rows)


def _with_ratio(figure: str, form: str) -> Entry:
    def entry(results: Results, cell: Cell, name: str) -> str:
        value = results.median(cell, name, figure)
        if value is None:
            return ABSENT
        ratio = results.ratio(cell, name, figure)
        return format(value, form) + (f" ({ratio:.2f}x)" if ratio is not None else "")

    return entry


def _with_difference(figure: str, form: str) -> Entry:
    def entry(results: Results, cell: Cell, name: str) -> str:
        value = results.median(cell, name, figure)
        more = results.difference(cell, name, figure)
        if value is None:
            return ABSENT
        return format(value, form) + (f" ({more:+.2f})" if more is not None else "")

    return entry


def _latency(results: Results, cell: Cell, name: str) -> str:
    p50 = results.median(cell, name, "latency_p50_us")
    p99 = results.median(cell, name, "latency_p99_us")
    return ABSENT if p50 is None or p99 is None else f"{p50:.0f} / {p99:.0f}"


def _cpu(results: Results, cell: Cell, name: str) -> str:
    figures = [f"{who}_cpu_us" for who in ("client", "broker", "workers")]
    values = [results.median(cell, name, figure) for figure in figures]
    return " / ".join(ABSENT if value is None else f"{value:.0f}" for value in values)


def _condition(cell: Cell) -> list[str]:
    return [str(cell.window), str(cell.workers), cell.body]


def _always(_cell: Cell) -> bool:
    return True


def _synchronous(cell: Cell) -> bool:
    return cell.window == 1


_AGAINST = {kind: f"(x {name})" for kind, name in BASELINE.items()}

_SHAPES: list[tuple[str, Kind, Callable[[Cell], bool], Entry]] = [
    (
        f"Broker: CPU per request, µs {_AGAINST['broker']}",
        "broker",
        _always,
        _with_ratio("broker_cpu_us", ".1f"),
    ),
    (
        f"Broker: requests per second {_AGAINST['broker']}",
        "broker",
        _always,
        _with_ratio("requests_per_s", ",.0f"),
    ),
    (
        f"Broker with a load in C: CPU per request, µs {_AGAINST['native']}",
        "native",
        _always,
        _with_ratio("broker_cpu_us", ".1f"),
    ),
    (
        f"What a journal costs: the broker's CPU per request, µs {_AGAINST['journal']}",
        "journal",
        _always,
        _with_ratio("broker_cpu_us", ".1f"),
    ),
    (
        f"What TLS costs: the broker's CPU per request, µs (more than {BASELINE['tls']})",
        "tls",
        _always,
        _with_difference("broker_cpu_us", ".1f"),
    ),
    (
        f"What CURVE costs: the broker's CPU per request, µs (more than {BASELINE['curve']})",
        "curve",
        _always,
        _with_difference("broker_cpu_us", ".1f"),
    ),
    (
        "What rights and quotas cost: the broker's CPU per request, µs (more than"
        f" {BASELINE['access']})",
        "access",
        _always,
        _with_difference("broker_cpu_us", ".1f"),
    ),
    ("Broker: latency p50 / p99 of a synchronous call, µs", "broker", _synchronous, _latency),
    (
        f"End to end: requests per second {_AGAINST['end-to-end']}",
        "end-to-end",
        _always,
        _with_ratio("requests_per_s", ",.0f"),
    ),
    (
        "End to end: latency p50 / p99 of a synchronous call, µs",
        "end-to-end",
        _synchronous,
        _latency,
    ),
    (
        "End to end: CPU per request of client / broker / workers, µs",
        "end-to-end",
        _always,
        _cpu,
    ),
]
