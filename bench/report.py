"""Write results to the terminal, to a JSON file, and to a page of the documentation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable

from bench import page
from bench.results import Results
from bench.tables import Table, tables


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


def sections(results: Results, lead: str) -> dict[str, str]:
    """Return the sections of the page by kind: how they were measured, and their tables."""
    drawn = list(tables(results))
    return {
        kind: "\n\n".join([lead, *(_markdown(table) for table in drawn if table.kind == kind)])
        for kind in dict.fromkeys(table.kind for table in drawn)
    }


def lead(
    command: str, settings: str, facts: Mapping[str, str], quiet: str, absent: Mapping[str, str]
) -> str:
    """Return how the figures were measured, and which contenders are missing."""
    return "\n\n".join(
        [
            f"Made by `{command}`: {settings}. {quiet}",
            page.sentence(facts),
            *(f"Skipped: {name} ({why})." for name, why in absent.items()),
        ]
    )


def _markdown(table: Table) -> str:
    return f"**{table.title}**\n\n{page.table(table.header, table.rows)}"
