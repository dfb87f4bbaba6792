"""Tables: which columns fit, the order of rows, and what a cell says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from math import isnan
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from requite.cli.live.fitting import fitted

T = TypeVar("T")

Value: TypeAlias = float | str

GAP: Final = 1
_UP, _DOWN = "▲", "▼"
_NAME_WIDTH_MIN: Final = 14
_NAME_WIDTH_MAX: Final = 48


class Tone(Enum):
    """How a text stands out."""

    PLAIN = auto()
    QUIET = auto()
    STRONG = auto()
    GOOD = auto()
    WARNING = auto()
    ERROR = auto()


class Cell(NamedTuple):
    """A text, and how it stands out. `suffix` is never cut off."""

    text: str
    tone: Tone = Tone.PLAIN
    suffix: str = ""


class Column(NamedTuple, Generic[T]):
    """A column of a table. `width` is in terminal cells, without the gap before it.

    Columns of a higher `rank` are left out first where there is no room. `value` is what rows are
    sorted by, and `cell` what they show. `is_text`: aligned to the left, and sorted from A to Z.
    """

    title: str
    width: int
    rank: int
    value: Callable[[T], Value]
    cell: Callable[[T], Cell]
    is_text: bool = False


def count_cell(n: int, tone: Tone = Tone.PLAIN) -> Cell:
    """Return a count, quiet if it is 0."""
    return Cell(f"{n:,}", tone if n else Tone.QUIET)


def figure_cell(value: float, text: Callable[[float], str], tone: Tone = Tone.PLAIN) -> Cell:
    """Return a figure, quiet if it is 0 or not known."""
    return Cell(text(value), Tone.QUIET if not value or isnan(value) else tone)


def fitting(columns: Sequence[Column[T]], width: int) -> list[tuple[Column[T], int]]:
    """Return the columns that fit into `width` terminal cells, with their widths. Each has a gap
    before it.

    The first one, the name, always stays, and takes what the others leave, up to 48 cells.
    """
    name, *others = columns
    kept = sorted(others, key=lambda column: column.rank)
    while kept and GAP + _NAME_WIDTH_MIN + sum(GAP + each.width for each in kept) > width:
        kept.pop()
    left = width - GAP - sum(GAP + each.width for each in kept)
    names = [each.title for each in kept]
    widths = [(each, each.width) for each in others if each.title in names]
    return [(name, max(1, min(left, _NAME_WIDTH_MAX))), *widths]


def titles(
    shown: Iterable[tuple[Column[T], int]], sorted_by: str, *, is_reversed: bool
) -> list[Cell]:
    """Return the line of titles; an arrow shows the order."""
    line: list[Cell] = []
    for column, width in shown:
        if column.title != sorted_by:
            title, tone = column.title, Tone.QUIET
        else:
            arrow = _UP if is_reversed is not column.is_text else _DOWN
            title = f"{column.title}{arrow}" if column.is_text else f"{arrow}{column.title}"
            tone = Tone.STRONG
        text = f" {title:<{width}}" if column.is_text else f"{title:>{width + GAP}}"
        line.append(Cell(text[: width + GAP], tone))
    return line


def line_of(row: T, shown: Iterable[tuple[Column[T], int]]) -> list[Cell]:
    """Return a row as a line of these columns."""
    line: list[Cell] = []
    for column, width in shown:
        text, tone, suffix = column.cell(row)
        to_right = not column.is_text
        line.append(Cell(" " + fitted(text, width, suffix, to_right=to_right), tone))
    return line


def ordered(
    rows: Iterable[T], columns: Sequence[Column[T]], by: int, *, is_reversed: bool
) -> list[T]:
    """Return the rows in the order of a column: texts from A to Z, numbers from the highest, what
    is not known last. Rows of equal values are in the order of the first column."""
    value = columns[by].value
    unknown: list[T] = []
    known: list[T] = []
    for row in sorted(rows, key=columns[0].value):
        (unknown if _is_unknown(value(row)) else known).append(row)
    known.sort(key=value, reverse=columns[by].is_text is is_reversed)
    return known + unknown


def _is_unknown(value: Value) -> bool:
    return isinstance(value, float) and isnan(value)
