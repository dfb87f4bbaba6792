"""Tables of a measurement on Spark, for the terminal and the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; all columns but the first are right-aligned."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write(page: Path, name: str, text: str, *, maker: str = "bench.spark") -> None:
    """Write the text of measurement `name` between its markers in a page, or append both."""
    begin = f"<!-- {maker} {name}:begin (edits in here are lost) -->"
    end = f"<!-- {maker} {name}:end -->"
    old = page.read_text()
    if begin not in old:
        old = f"{old.rstrip()}\n\n{begin}\n{end}\n"
    before, _, rest = old.partition(begin)
    after = rest.partition(end)[2]
    page.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}")
