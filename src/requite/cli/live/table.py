"""A table of any number of rows. Only the rows on the screen are drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final, Generic, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click, Resize
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from requite.cli.live.columns import GAP, Column, fitting, line_of, ordered, titles
from requite.cli.live.styles import STYLES, shown_text

T = TypeVar("T")

_CURSOR: Final = Style(reverse=True)


class Table(ScrollView, Generic[T], can_focus=True):
    """Rows in the order of a column, with a cursor. `key` tells rows apart.

    The cursor stays at its row when others overtake it, unless it is at the top and has never been
    moved.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "row up"),
        Binding("down,j", "move(1)", "row down"),
        Binding("pageup", "move_page(-1)", "page up"),
        Binding("pagedown", "move_page(1)", "page down"),
        Binding("home,g", "move_to(0)", "first row"),
        Binding("end,G", "move_to(-1)", "last row"),
        Binding("left,less_than_sign", "sort_beside(-1)", "sort by the column to the left"),
        Binding("right,greater_than_sign", "sort_beside(1)", "sort by the column to the right"),
        Binding("r", "reverse", "reverse the order"),
        Binding("enter", "choose", "open"),
    ]

    class Chosen(Message):
        """A row was chosen, by its key."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key: Final = key

    def __init__(self, columns: Sequence[Column[T]], key: Callable[[T], str], by: int) -> None:
        super().__init__()
        self._columns: Final = columns
        self._key: Final = key
        self._by = by
        self._is_reversed = False
        self._rows: list[T] = []
        self._at = 0
        self._at_key: str | None = None

    # --- rows -------------------------------------------------------------------------------------
    def show(self, rows: Iterable[T]) -> None:
        """Show these rows in place of the earlier ones."""
        self._rows = ordered(rows, self._columns, self._by, is_reversed=self._is_reversed)
        if self._at_key is not None:
            keys = [self._key(row) for row in self._rows]
            self._at = keys.index(self._at_key) if self._at_key in keys else self._at
        self._place(self._at, is_moved=False)
        self.virtual_size = Size(self.size.width, len(self._rows) + 1)
        self.refresh()

    @property
    def rows(self) -> list[T]:
        """The rows, from the top."""
        return self._rows

    @property
    def cursor(self) -> T | None:
        """The row with the cursor; None: there are no rows."""
        return self._rows[self._at] if self._rows else None

    @property
    def sorted_by(self) -> str:
        """The title of the column that rows are sorted by."""
        return self._columns[self._by].title

    def reset(self) -> None:
        """Remove all rows, and put the cursor at the top."""
        self._at, self._at_key = 0, None
        self.show(())

    def _place(self, at: int, *, is_moved: bool = True) -> None:
        self._at = max(0, min(at, len(self._rows) - 1))
        if is_moved:
            row = self.cursor
            self._at_key = None if row is None else self._key(row)
            self._scroll_to_cursor()
            self.refresh()

    def _scroll_to_cursor(self) -> None:
        shown = max(1, self.size.height - 1)
        first = round(self.scroll_y)
        if self._at < first:
            self.scroll_to(y=self._at, animate=False)
        elif self._at >= first + shown:
            self.scroll_to(y=self._at - shown + 1, animate=False)

    # --- drawing ----------------------------------------------------------------------------------
    def _shown(self) -> list[tuple[Column[T], int]]:
        return fitting(self._columns, self.scrollable_content_region.width - GAP)

    def render_line(self, y: int) -> Strip:
        """Return the titles, or a row."""
        width, at = self.scrollable_content_region.width, round(self.scroll_y) + y - 1
        if y == 0:
            line = titles(self._shown(), self.sorted_by, is_reversed=self._is_reversed)
        elif at < len(self._rows):
            line = line_of(self._rows[at], self._shown())
        else:
            return Strip.blank(width)
        styles = [_CURSOR if y and at == self._at else STYLES[cell.tone] for cell in line]
        texts = [Segment(shown_text(cell), style) for cell, style in zip(line, styles, strict=True)]
        return Strip(texts).adjust_cell_length(width, styles[0])

    # --- keys and the mouse -----------------------------------------------------------------------
    def action_move(self, by: int) -> None:
        """Move the cursor by rows."""
        self._place(self._at + by)

    def action_move_page(self, pages: int) -> None:
        """Move the cursor by pages."""
        self._place(self._at + pages * max(1, self.size.height - 2))

    def action_move_to(self, at: int) -> None:
        """Move the cursor to a row; -1: the last one."""
        self._place(at if at >= 0 else len(self._rows) - 1)

    def action_sort_beside(self, by: int) -> None:
        """Sort by the next column in a direction, among those on the screen."""
        titles = [column.title for column, _ in self._shown()]
        at = titles.index(self.sorted_by) if self.sorted_by in titles else 0
        self.sort_by(titles[(at + by) % len(titles)])

    def action_reverse(self) -> None:
        """Reverse the order."""
        self._is_reversed = not self._is_reversed
        self.show(self._rows)

    def action_choose(self) -> None:
        """Open the row with the cursor."""
        row = self.cursor
        if row is not None:
            self.post_message(self.Chosen(self._key(row)))

    def sort_by(self, title: str) -> None:
        """Sort by a column; reverse the order if it is that one already."""
        self._is_reversed = title == self.sorted_by and not self._is_reversed
        self._by = [column.title for column in self._columns].index(title)
        self.show(self._rows)

    def on_click(self, event: Click) -> None:
        """Sort by a title, or move the cursor to a row; a second click opens it."""
        if event.y == 0:
            end = 0
            for column, width in self._shown():
                end += width + GAP
                if event.x < end:
                    self.sort_by(column.title)
                    return
        elif (at := round(self.scroll_y) + event.y - 1) < len(self._rows):
            self._place(at)
            if event.chain > 1:
                self.action_choose()

    def on_resize(self, _event: Resize) -> None:
        """Draw the columns that fit now."""
        self.virtual_size = Size(self.size.width, len(self._rows) + 1)
        self.refresh()
