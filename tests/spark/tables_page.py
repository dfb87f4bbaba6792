"""Writes docs/reference/tables.md: every table and column of `requite.spark.schemas`.

python -m tests.spark.tables_page        writes the page
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from requite.spark import schemas
from requite.spark.described_tables import Table

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "tables.md"

_INTRODUCTION: Final = """\
# Tables

What [`requite spark run`](cli.md#requite-spark) makes of journals, column by column. Delta's
log has the same words as comments, and `requite spark sql "DESCRIBE silver_requests" --lake lake`
prints them. What verdicts and advice rest on is in [the audit](../topics/audit.md).
"""

_OUTSIDE: Final = {
    "alerts": "`alerts`, of `requite spark watch --to DIR`",
    "sim_runs": "`sim_runs`, of `requite spark sweep --to DIR`",
    "sim_violations": "`sim_violations`, of `requite spark sweep --to DIR`",
    "source": '`spark.read.format("requite")`',
    "titanic": '`spark.read.format("requite").option("log", "titanic")`',
}


def render() -> str:
    """Return the page."""
    lines = [_INTRODUCTION, *(f"- {sentence}" for sentence in schemas.CONVENTIONS), ""]
    lines += ["## Tables of a lake", ""]
    for name, table in schemas.LAKE.items():
        lines += _section(f"`{name}`", table)
    lines += ["## Tables outside of lakes", ""]
    for name, title in _OUTSIDE.items():
        lines += _section(title, schemas.TABLES[name])
    return "\n".join(lines)


def _section(title: str, table: Table) -> list[str]:
    rows = [
        f"| `{name}` | {kind} | {table.comments[name].replace('|', chr(92) + '|')} |"
        for name, kind in schemas.columns_of(table).items()
    ]
    return [
        f"### {title}", "", table.about, "", "| column | type | meaning |", "|---|---|---|",
        *rows, "",
    ]  # fmt: skip


def main(page: Path = PAGE) -> int:
    """Write the page; return the exit status."""
    page.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
