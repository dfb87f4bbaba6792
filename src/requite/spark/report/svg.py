"""From an Altair chart to SVG that may stand inside a page.

Vega's SVG is taken apart and put together again from the elements and attributes that charts are
made of: no script, link, image or stylesheet can pass, ids of two charts cannot collide, and what
only matters to Vega's own runtime goes. That leaves 5 to 30 kB a chart.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree

from markupsafe import Markup

if TYPE_CHECKING:
    import altair

_ELEMENTS: Final = frozenset({"svg", "g", "path", "rect", "line", "text", "clipPath", "defs"})
_ATTRIBUTES: Final = frozenset(
    {
        *("clip-path", "d", "dx", "dy", "fill", "fill-opacity", "font-family", "font-size"),
        *("font-style", "font-weight", "height", "id", "opacity", "stroke", "stroke-dasharray"),
        *("stroke-dashoffset", "stroke-linecap", "stroke-linejoin", "stroke-miterlimit"),
        *("stroke-opacity", "stroke-width", "text-anchor", "transform", "viewBox", "width"),
        *("x", "x1", "x2", "y", "y1", "y2"),
    }
)
_LONG_NUMBER: Final = re.compile(r"-?\d+\.\d{2,}")
_ID: Final = re.compile(r"url\(#([^)]*)\)")


class UnsafeChart(ValueError):
    """A chart came out with something that must not be in a page."""


def inline_svg(chart: altair.TopLevelMixin, *, name: str, label: str) -> Markup:
    """Draw a chart. `name` is unique in the page; `label` says what it shows, for screen readers.

    It has a `viewBox` and no size, so that it takes the width of its place.
    """
    import vl_convert

    drawn = ElementTree.fromstring(vl_convert.vegalite_to_svg(chart.to_dict()))
    for element in drawn.iter():
        _clean(element, name)
    _drop_empty(drawn)
    drawn.attrib.pop("width", None)
    drawn.attrib.pop("height", None)
    drawn.attrib.update({"role": "img", "aria-label": label})
    return Markup(ElementTree.tostring(drawn, encoding="unicode"))


def _clean(element: ElementTree.Element, name: str) -> None:
    element.tag = element.tag.rpartition("}")[2]
    if element.tag not in _ELEMENTS:
        raise UnsafeChart(f"a chart may not hold the element {element.tag!r}")
    kept = {key: value for key, value in element.attrib.items() if key in _ATTRIBUTES}
    if "id" in kept:
        kept["id"] = f"{name}-{kept['id']}"
    element.attrib.clear()
    element.attrib.update({key: _tidy(key, value, name) for key, value in kept.items()})


def _tidy(key: str, value: str, name: str) -> str:
    if key in {"d", "transform", "x", "y", "x2", "y2", "width", "height"}:
        return _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.1f}", value)
    return _ID.sub(rf"url(#{name}-\1)", value)


def _drop_empty(element: ElementTree.Element) -> None:
    """Remove groups without content and paths without a line: Vega leaves many."""
    for child in list(element):
        _drop_empty(child)
        is_empty_group = child.tag == "g" and not len(child)
        is_empty_path = child.tag == "path" and child.get("d") in {None, "", "M0,0h0v0h0Z"}
        if is_empty_group or is_empty_path:
            element.remove(child)
