"""Converts an Altair chart to SVG for inlining in a page.

Only elements and attributes that charts need are copied from Vega's SVG: no script, link, image or
stylesheet passes, and attributes for Vega's runtime are dropped. Ids get a prefix, so those of two
charts do not collide. A chart takes 5 to 30 kB.
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
    """A chart contains an element that is not allowed in a page."""


def inline_svg(chart: altair.TopLevelMixin, *, name: str, label: str) -> Markup:
    """Draw a chart. `name` is unique in the page; `label` describes it for screen readers.

    The SVG has a `viewBox` and no size, so it takes the width of its container.
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
        raise UnsafeChart(f"a chart must not contain the element {element.tag!r}")
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
    """Remove empty groups and paths, of which Vega's SVG contains many."""
    for child in list(element):
        _drop_empty(child)
        is_empty_group = child.tag == "g" and not len(child)
        is_empty_path = child.tag == "path" and child.get("d") in {None, "", "M0,0h0v0h0Z"}
        if is_empty_group or is_empty_path:
            element.remove(child)
