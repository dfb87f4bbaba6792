"""How texts stand out: by the terminal's own colours, which fit its background, and by weight,
which remains where there is no colour."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich.style import Style
from rich.text import Text

from requite.cli.live.columns import Cell, Tone
from requite.shell.warnings import printable

STYLES: Final = {
    Tone.PLAIN: Style(),
    Tone.QUIET: Style(dim=True),
    Tone.STRONG: Style(bold=True),
    Tone.GOOD: Style(color="green"),
    Tone.WARNING: Style(color="yellow", bold=True),
    Tone.ERROR: Style(color="red", bold=True),
}


SHOWN_LENGTH_MAX: Final = 1000
"""How many characters of a cell are shown at most."""


def shown_text(cell: Cell) -> str:
    """Return what a display shows of a cell, which may have texts of a peer: control characters are
    escaped, and a text that is too long loses its end."""
    text = cell.text
    if len(text) > SHOWN_LENGTH_MAX:
        text = text[: SHOWN_LENGTH_MAX - 1] + "…"
    return printable(text + cell.suffix)


def text_of(lines: Iterable[Iterable[Cell]]) -> Text:
    """Return lines as a text. Nothing in them is markup, or controls the terminal."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for nth, line in enumerate(lines):
        if nth:
            text.append("\n")
        for cell in line:
            text.append(shown_text(cell), STYLES[cell.tone])
    return text
