"""Tables of the report. Each scrolls inside itself where the page is narrow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from requite.spark.report.markup import Markup, join, tag


class Column(NamedTuple):
    """A column's heading; figures stand to the right, text and ids to the left."""

    title: str
    kind: str | None = None  # a class of the stylesheet


def text(title: str) -> Column:
    """Return a column of words."""
    return Column(title, "text")


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
    """Return a table; plain strings in `columns` head figures. `total` is a last, stressed row."""
    heads = [column if isinstance(column, Column) else Column(column) for column in columns]
    body = [_row(heads, row) for row in rows]
    if total is not None:
        body.append(_row(heads, total, "sum"))
    head = tag("tr", *(tag("th", head.title, class_=head.kind, scope="col") for head in heads))
    whole = tag("table", tag("thead", head), tag("tbody", *body))
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=label)


def _row(columns: Sequence[Column], cells: Sequence[str], class_: str | None = None) -> Markup:
    pairs = zip(columns, cells, strict=True)
    return tag(
        "tr", join(tag("td", cell, class_=column.kind) for column, cell in pairs), class_=class_
    )
