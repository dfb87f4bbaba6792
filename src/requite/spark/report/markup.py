"""HTML that is escaped by construction: whatever is not `Markup` is text.

Elements are written so that the page is well-formed XML as well: tests read it strictly.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable
from typing import Final

_VOID: Final = frozenset({"br", "meta"})
_HIDDEN: Final = frozenset({"Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp"})
_NAME_SIZE: Final = 48


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: str | None) -> Markup:
    """Return an element; None stands for nothing. `class_` and `data_x` mean `class`, `data-x`."""
    opening = name + "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{opening}/>")
    return Markup(f"<{opening}>{join(children)}</{name}>")


def join(children: Iterable[str | None]) -> Markup:
    """Return children one after the other, escaped where they are text."""
    return Markup("".join(map(_escape, filter(None, children))))


def _escape(child: str) -> str:
    return child if isinstance(child, Markup) else html.escape(child)


def legible(name: str | None, size: int = _NAME_SIZE) -> str:
    """Return a name that a peer chose as one short line: what cannot be seen is spelt out."""
    shown = "".join(map(_visible, (name or "")[: size + 1]))
    return shown if len(shown) <= size else f"{shown[: size - 1]}…"


def _visible(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
