"""Write results to the terminal, to a JSON file, and to a page of the documentation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable

from bench.results import Results
from bench.tables import Table, tables

BEGIN = "<!-- bench:begin (written by python -m bench: edits in here are lost) -->"
END = "<!-- bench:end -->"
NEW_PAGE = """\
# Performance

These figures are of one machine: its ratios travel to others, its absolute figures do not. A cell
holds the median over the rounds; behind it, in parentheses, the median of the ratios to the
contender that the heading names, each taken within one round. `python -m bench` makes them.
"""


def show(console: Console, results: Results) -> None:
    """Print the tables."""
    for table in tables(results):
        drawn = RichTable(title=table.title, title_justify="left")
        for number, name in enumerate(table.header):
            drawn.add_column(name, justify="left" if number == 0 else "right")
        for row in table.rows:
            drawn.add_row(*row)
        console.print(drawn)


def write_json(
    path: Path, results: Results, facts: Mapping[str, str], settings: Mapping[str, object]
) -> None:
    """Write all runs, for further analysis."""
    runs = [
        {
            **asdict(run.cell),
            "contender": run.contender.name,
            "round": run.round,
            "figures": run.figures,
            "failure": run.failure,
        }
        for run in results.runs()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": facts, "settings": settings, "runs": runs}, indent=1)
    path.write_text(text + "\n")


def write_page(path: Path, body: str) -> None:
    """Replace the text between the markers of a page; append the markers if it has none.

    Raises `ValueError` if the page has only one marker.
    """
    page = path.read_text() if path.exists() else NEW_PAGE
    begin, end = page.find(BEGIN), page.find(END)
    if (begin < 0) != (end < 0) or end < begin:
        raise ValueError(f"{path} needs the line {BEGIN} and after it the line {END}, or neither")
    section = f"{BEGIN}\n\n{body}\n{END}"
    if begin < 0:
        page = f"{page.rstrip()}\n\n{section}\n"
    else:
        page = page[:begin] + section + page[end + len(END) :]
    path.write_text(page)


def markdown(
    results: Results,
    facts: Mapping[str, str],
    settings: str,
    command: str,
    absent: Mapping[str, str],
) -> str:
    """Return the section of the page: the method, the tables, and missing contenders."""
    parts = [
        f"Made by `{command}`: {settings}.",
        "; ".join(f"{what} {value}" for what, value in facts.items()) + ".",
        *(_markdown_table(table) for table in tables(results)),
        *(f"Skipped: {name} ({why})." for name, why in absent.items()),
        *(
            f"Failed: {run.contender.name}, {run.cell}: {run.failure.splitlines()[0]}."
            for run in results.failures()
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _markdown_table(table: Table) -> str:
    def line(cells: list[str]) -> str:
        return f"| {' | '.join(cells)} |"

    rule = line(["---", *["---:"] * (len(table.header) - 1)])
    return "\n".join([f"## {table.title}", "", line(table.header), rule, *map(line, table.rows)])
