"""Table declarations with a description of each table and column."""

from __future__ import annotations

from collections.abc import Mapping


class Table(str):
    """The columns of a table as Spark's DDL; `about` describes a row, `comments` each column.

    Parsed from text with one column per line, `NAME TYPE: COMMENT`; a line with deeper indentation
    continues the comment above it.
    """

    about: str
    comments: Mapping[str, str]

    def __new__(cls, about: str, text: str) -> Table:
        """Parse the columns. Raises `ValueError` for a column without a type or a comment."""
        columns = [line.split(None, 1) for line in _joined(text)]
        kinds = {name: rest.partition(": ") for name, rest in columns}
        if bare := [name for name, (kind, _, comment) in kinds.items() if not (kind and comment)]:
            raise ValueError(f"columns without a type or a comment: {', '.join(bare)}")
        table = super().__new__(cls, ", ".join(f"{name} {kinds[name][0]}" for name in kinds))
        table.about = about
        table.comments = {name: comment for name, (_, _, comment) in kinds.items()}
        table._text = text
        return table

    _text: str

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        """Support pickling, for Spark's processes."""
        return self.about, self._text

    def and_also(self, about: str, text: str) -> Table:
        """Return a table with these columns and those in `text`."""
        return Table(about, f"{self._text.rstrip()}\n{text.lstrip(chr(10))}")


def _joined(text: str) -> list[str]:
    """Return one line per column, with continuation lines joined."""
    lines = [line for line in text.splitlines() if line.strip()]
    depths = [len(line) - len(line.lstrip()) for line in lines]
    joined: list[str] = []
    for line, depth in zip(lines, depths, strict=True):
        if depth > depths[0]:
            joined[-1] += f" {line.strip()}"
        else:
            joined.append(line.strip())
    return joined
