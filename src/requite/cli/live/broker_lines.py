"""The lines above the table: the broker as a whole, or one of its services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan, nan
from typing import Any, Final, NamedTuple, TypeAlias

from requite.cli.live.columns import Cell, Tone, count_cell, figure_cell
from requite.cli.live.fitting import fitted
from requite.cli.live.service_rows import (
    by_name,
    failed_in,
    oldest_cell,
    queued_cell,
    workers_cell,
)
from requite.metrics import formats
from requite.metrics.figures import BrokerFigures, Figures, ServiceFigures
from requite.shell.warnings import printable

Line: TypeAlias = list[Cell]

_LABEL_WIDTH: Final = 11
_FACT_WIDTH_MIN: Final = 20
_FACT_WIDTH_MAX: Final = 25
_FACTS: Final = 8
_BAR_WIDTH: Final = 20
_FULL_WARNING: Final = 0.8
_MARGIN: Final = Cell(" ")
_LOST: Final = [Cell("does not answer: these are its last figures", Tone.ERROR)]


class Fact(NamedTuple):
    """A number with its label."""

    label: str
    cell: Cell


def lines_of(
    figures: BrokerFigures, place: str, width: int, *, is_lost: bool = False
) -> list[Line]:
    """Return the lines about a broker at `place` (its URL), for a display of `width` cells.
    `is_lost`: it does not answer any more."""
    reading, happened = figures.now, figures.happened
    facts = [
        Fact("clients", count_cell(reading.clients)),
        Fact("workers", count_cell(reading.workers)),
        Fact("services", count_cell(reading.services_count)),
        Fact("pending", count_cell(reading.pending)),
        *_traffic(happened),
    ]
    refused, denied = figures.refused, figures.denied
    troubles = [
        ("failed/s", failed_in(happened), by_name(happened.failed), Tone.ERROR),
        ("refused/s", _sum(happened, refused), by_name(refused), Tone.WARNING),
        ("denied/s", _sum(happened, denied), by_name(denied), Tone.WARNING),
    ]
    memory = [*_memory(reading.pending_bytes, reading.pending_bytes_max), *_unread(reading.unread)]
    return [
        [_MARGIN, Cell(place, Tone.STRONG), Cell("  "), *(_LOST if is_lost else standing(figures))],
        *_grid(facts, width),
        memory,
        _troubles(troubles, width),
    ]


def service_lines_of(row: ServiceFigures, place: str, width: int) -> list[Line]:
    """Return the lines about a service of the broker at `place`."""
    seen, happened = row.seen, row.happened
    facts = [
        Fact("workers", workers_cell(row)),
        Fact("queued", queued_cell(row)),
        Fact("oldest", oldest_cell(row)),
        Fact("running", count_cell(seen.in_progress)),
        *_traffic(happened),
    ]
    states = {
        "idle": seen.idle,
        "busy": seen.busy,
        "draining": seen.draining,
        "blocked": seen.blocked,
    }
    state = ", ".join(f"{count:,} {name}" for name, count in states.items() if count)
    bytes_line = [
        *_label("bodies"),
        Cell(f"{formats.size(happened.received)}/s in, {formats.size(happened.sent)}/s out"),
    ]
    redelivered = happened.redelivered
    troubles = [
        ("failed/s", failed_in(happened), by_name(happened.failed), Tone.ERROR),
        ("redelivered/s", redelivered, formats.rate(redelivered), Tone.WARNING),
    ]
    title = [
        _MARGIN,
        Cell(place, Tone.QUIET),
        Cell("  service ", Tone.QUIET),
        Cell(printable(seen.name), Tone.STRONG),
        Cell(f"  {state or 'no workers'}", Tone.PLAIN if row.seen.workers else Tone.WARNING),
    ]
    if seen.paused:
        title.append(Cell("  paused", Tone.WARNING))
    return [title, *_grid(facts, width), bytes_line, _troubles(troubles, width)]


def standing(figures: BrokerFigures) -> Line:
    """Return the state of the broker: draining, or what it is in its pair."""
    reading = figures.now
    found: Line = []
    if reading.draining:
        found.append(Cell("draining: it finishes its requests, then ends  ", Tone.WARNING))
    if reading.pair is not None:
        found += _pair(reading.pair)
    return found or [Cell("serving", Tone.GOOD)]


def _pair(pair: Mapping[str, Any]) -> Line:
    role, state = printable(str(pair.get("role"))), printable(str(pair.get("state")))
    other = "backup" if role == "primary" else "primary"
    peer, is_silent = pair.get("peer"), pair.get("peer_is_silent")
    if peer is None:
        heard = Cell(f"the {other} has not been heard yet", Tone.WARNING)
    elif is_silent:
        heard = Cell(f"the {other} is silent", Tone.WARNING)
    else:
        heard = Cell(f"the {other} is {printable(str(peer))}", Tone.GOOD)
    return [Cell(f"{role} of a pair, {state}; ", Tone.GOOD), heard]


def _traffic(happened: Figures) -> list[Fact]:
    return [
        Fact("requests/s", figure_cell(happened.accepted, formats.rate, Tone.STRONG)),
        Fact("replies/s", figure_cell(happened.answered, formats.rate, Tone.STRONG)),
        Fact("p50", figure_cell(happened.p50_s, formats.percentile, Tone.STRONG)),
        Fact("p99", figure_cell(happened.p99_s, formats.percentile, Tone.STRONG)),
    ]


def _grid(facts: Sequence[Fact], width: int) -> list[Line]:
    """Return facts in lines, in columns of equal width."""
    columns, each = _columns(len(facts), width)
    lines: list[Line] = []
    for start in range(0, len(facts), columns):
        line: Line = []
        for label, cell in facts[start : start + columns]:
            room = each - 1 - _LABEL_WIDTH
            line += [*_label(label), Cell(fitted(cell.text, room), cell.tone)]
        lines.append(line)
    return lines


def _label(text: str) -> Line:
    return [_MARGIN, Cell(f"{text + ' ':<{_LABEL_WIDTH}}", Tone.QUIET)]


def _memory(used: int, limit: int) -> Line:
    share = used / limit if limit else 0.0
    full = min(_BAR_WIDTH, round(share * _BAR_WIDTH)) or int(used > 0)
    tone = Tone.ERROR if share >= 1 else Tone.WARNING if share >= _FULL_WARNING else Tone.GOOD
    percent = "<1%" if 0 < share < 0.01 else f"{share:.0%}"
    return [
        *_label("memory"),
        Cell("━" * full, tone),
        Cell("─" * (_BAR_WIDTH - full), Tone.QUIET),
        Cell(f" {formats.size(used)} of {formats.size(limit)} ({percent})"),
    ]


def _unread(clients: int) -> Line:
    if not clients:
        return []
    text = f"   {clients:,} {'client' if clients == 1 else 'clients'} not read from: a limit"
    return [Cell(text, Tone.WARNING)]


def _troubles(kinds: Sequence[tuple[str, float, str, Tone]], width: int) -> Line:
    """Return what goes wrong: `failed/s` and its rates, or a quiet 0."""
    _, each = _columns(_FACTS, width)
    line: Line = []
    for label, per_s, text, tone in kinds:
        value = Cell(text, tone) if per_s > 0 else Cell(formats.rate(per_s), Tone.QUIET)
        room = each - 1 - _LABEL_WIDTH
        line += [*_label(label), Cell(f"{value.text:<{room}}", value.tone)]
    return line


def _columns(count: int, width: int) -> tuple[int, int]:
    """Return how many facts fit into a line, and the width of each."""
    fit = max(1, width // _FACT_WIDTH_MIN)
    columns = count if fit >= count else min(_FACTS // 2, fit)
    return columns, min(_FACT_WIDTH_MAX, max(_FACT_WIDTH_MIN, width // columns))


def _sum(happened: Figures, rates: Mapping[str, float]) -> float:
    """Return the sum of rates; NaN while no rate is known."""
    return nan if isnan(happened.accepted) else sum(rates.values())
