"""HTML from the templates of this package: every value that is not `Markup` is escaped.

Templates give well-formed XML as well, since tests parse it strictly.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_HIDDEN: Final = frozenset({"Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp"})
_NAME_SIZE: Final = 48
_TEMPLATES: Final = Environment(
    loader=PackageLoader("requite.spark.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def fill(template: str, **values: object) -> Markup:
    """Render a template. None values are left out."""
    return Markup(_TEMPLATES.get_template(template).render(values))


def legible(name: str | None, size: int = _NAME_SIZE) -> str:
    """Return a peer's name as one short line, with invisible characters as escapes."""
    shown = "".join(map(_visible, (name or "")[: size + 1]))
    return shown if len(shown) <= size else f"{shown[: size - 1]}…"


def _visible(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
