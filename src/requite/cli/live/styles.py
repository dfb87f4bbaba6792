"""How texts stand out: by the terminal's own colours, which fit its background, and by weight,
which remains where there is no colour."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich.style import Style
from rich.text import Text

from requite.cli.live.columns import Cell, Tone

STYLES: Final = {
    Tone.PLAIN: Style(),
    Tone.QUIET: Style(dim=True),
    Tone.STRONG: Style(bold=True),
    Tone.GOOD: Style(color="green"),
    Tone.WARNING: Style(color="yellow", bold=True),
    Tone.ERROR: Style(color="red", bold=True),
}


def text_of(lines: Iterable[Iterable[Cell]]) -> Text:
    """Return lines as a text. Nothing in them is markup."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for nth, line in enumerate(lines):
        if nth:
            text.append("\n")
        for cell in line:
            text.append(cell.text + cell.suffix, STYLES[cell.tone])
    return text
