"""Tables of the report. On narrow pages each scrolls separately."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from requite.spark.report.markup import fill


class Column(NamedTuple):
    """A column's heading; figures are aligned right, text and ids left."""

    title: str
    kind: str | None = None  # a CSS class


class _Row(NamedTuple):
    kind: str | None  # a CSS class
    cells: list[tuple[Column, str]]


def text(title: str) -> Column:
    """Return a column of text."""
    return Column(title, "text")


def sentence(title: str) -> Column:
    """Return a column of sentences, which wrap."""
    return Column(title, "text sentence")


def ids(title: str) -> Column:
    """Return a column of identifiers."""
    return Column(title, "text id")


def table(
    columns: Sequence[str | Column],
    rows: Iterable[Sequence[str]],
    *,
    total: Sequence[str] | None = None,
    label: str,
) -> Markup:
    """Return a table; plain strings in `columns` are headings of figures, `total` the last row."""
    heads = [column if isinstance(column, Column) else Column(column) for column in columns]
    body = [_row(None, heads, row) for row in rows]
    if total is not None:
        body.append(_row("sum", heads, total))
    return fill("table.html", columns=heads, rows=body, label=label)


def _row(kind: str | None, columns: Sequence[Column], cells: Sequence[str]) -> _Row:
    return _Row(kind, list(zip(columns, cells, strict=True)))
