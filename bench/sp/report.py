"""The tables in Markdown, for the terminal and the documentation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bench import goals
from bench.page import sentence, table
from bench.sp.cells import Cell, Section, size_text
from bench.sp.results import Results

_ABSENT = "-"


def report(
    results: Results, how: str, facts: Mapping[str, str], absent: Mapping[str, Sequence[str]]
) -> str:
    """Return the report: the method, a table per section, the goals, missing contenders."""
    parts = [
        how,
        sentence(facts),
        *(part for section in _sections(results) for part in _section(results, section)),
        "### Goals",
        goals.table(results.goals()),
        *(f"Skipped: {'; '.join(names)} ({why})." for why, names in absent.items()),
        *(
            f"Failed: {run.line.name}, {run.cell}: {run.failure.splitlines()[0]}."
            for run in results.failures()
        ),
    ]
    return "\n\n".join(parts)


# --- one table per section ------------------------------------------------------------------------
def _sections(results: Results) -> list[Section]:
    return list(dict.fromkeys(cell.section for cell in results.cells()))


def _section(results: Results, section: Section) -> Iterator[str]:
    cells = [cell for cell in results.cells() if cell.section is section]
    header = ["client, service", *(head for cell in cells for head in _heads(cell))]
    names = dict.fromkeys(name for cell in cells for name in results.lines(cell))
    yield f"### {section.title}"
    yield table(header, [[name, *_row(results, cells, name)] for name in names])


def _heads(cell: Cell) -> list[str]:
    section = cell.section
    who = "client / device / service" if section.has_device else "client / service"
    latency = ["latency p50 / p99, µs"] if section.window == 1 else []
    heads = [f"requests per second (x {section.baseline})", f"CPU of {who}, µs", *latency]
    return [f"{size_text(cell.body_size_bytes)}: {head}" for head in heads]


def _row(results: Results, cells: Sequence[Cell], name: str) -> Iterator[str]:
    for cell in cells:
        yield _pace(results, cell, name)
        who = ("client", "broker", "workers") if cell.section.has_device else ("client", "workers")
        yield _several(results, cell, name, [f"{each}_cpu_us" for each in who], ".1f")
        if cell.section.window == 1:
            yield _several(results, cell, name, ["latency_p50_us", "latency_p99_us"], ".0f")


def _pace(results: Results, cell: Cell, name: str) -> str:
    pace = results.median(cell, name, "requests_per_s")
    if pace is None:
        return _ABSENT
    ratio = results.ratio(cell, name, cell.section.baseline)
    return f"{pace:,.0f}" + (f" ({ratio:.2f}x)" if ratio is not None else "")


def _several(results: Results, cell: Cell, name: str, figures: Sequence[str], form: str) -> str:
    values = [results.median(cell, name, figure) for figure in figures]
    return " / ".join(_ABSENT if value is None else format(value, form) for value in values)
