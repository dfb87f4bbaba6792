"""Texts of peers that fit into a terminal, and cannot damage it."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

from requite.shell.warnings import printable


def fitted(text: str, width: int, suffix: str = "", *, to_right: bool = False) -> str:
    """Return a text of a peer in exactly `width` terminal cells, control characters escaped; one
    that is too long loses its end, but not the `suffix`."""
    text = printable(text)
    left = max(1, width - cell_len(suffix))
    if cell_len(text) > left:
        text = set_cell_size(text, left - 1).rstrip() + "…"
    text += suffix
    if to_right:
        text = " " * (width - cell_len(text)) + text
    return set_cell_size(text, width)
