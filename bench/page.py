"""Tables in Markdown, and the generated parts of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; all columns but the first are right-aligned."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def sentence(facts: Mapping[str, str]) -> str:
    """Return facts in one sentence."""
    return "; ".join(f"{what} {value}" for what, value in facts.items()) + "."


def read(page: Path, name: str, *, maker: str = "bench.spark") -> str:
    """Return the text of measurement `name` between its markers; empty if there is none."""
    begin, end = _markers(name, maker)
    return page.read_text().partition(begin)[2].partition(end)[0].strip()


def write(page: Path, name: str, text: str, *, maker: str = "bench.spark") -> None:
    """Write the text of measurement `name` between its markers in a page, or append both."""
    begin, end = _markers(name, maker)
    old = page.read_text()
    if begin not in old:
        old = f"{old.rstrip()}\n\n{begin}\n{end}\n"
    before, _, rest = old.partition(begin)
    after = rest.partition(end)[2]
    page.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}")


def _markers(name: str, maker: str) -> tuple[str, str]:
    return f"<!-- {maker} {name}:begin (edits in here are lost) -->", f"<!-- {maker} {name}:end -->"
