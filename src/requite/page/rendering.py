"""Templates, and the words and figures in them.

Every text is escaped by the templates. What comes from outside, such as a name or a reason, goes
through `text`, which shortens it, and shows what is not printable.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import datetime
from math import nan
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from requite.metrics import formats
from requite.page import charts
from requite.story import words
from requite.web.policy import page_headers

HEADERS: Final = page_headers(forms="'self'", cache="no-store")
TEXT_SIZE: Final = 200
"""Characters of a text that is shown, such as a name."""

_REPLACED: Final = "\N{REPLACEMENT CHARACTER}"
_DOTS: Final = (".", "..")


def text(value: object, size: int = TEXT_SIZE) -> str:
    """Return a text for the page: printable, and with at most `size` characters."""
    shown = str(value)
    cut = shown[:size]
    printed = "".join(each if each.isprintable() else _REPLACED for each in cut)
    return f"{printed}…" if len(shown) > size else printed


def duration(seconds: float) -> str:
    """Return a duration with its unit; a dash for none (NaN, 0)."""
    return _unbroken(formats.duration(seconds or nan))


def percentile(seconds: float) -> str:
    """Return a percentile of durations; a dash for none (NaN)."""
    return _unbroken(formats.percentile(seconds))


def size(n: int) -> str:
    """Return a number of bytes with its unit."""
    return _unbroken(formats.size(n))


def _unbroken(figure: str) -> str:
    return figure.replace(" ", "\N{NO-BREAK SPACE}")


def age(seconds: float) -> str:
    """Return for how long something has been so, in whole seconds if it is more than one."""
    rounded = float(round(seconds)) if seconds >= 1 else max(seconds, 0.0)
    return words.duration(rounded, "\N{NO-BREAK SPACE}")


def since(seconds: float | None) -> str:
    """Return the time since the first event, with its sign; "" for that event."""
    if not seconds:
        return ""
    sign = "+" if seconds > 0 else "\N{MINUS SIGN}"
    return sign + words.duration(abs(seconds), "\N{NO-BREAK SPACE}")


def moment(at: datetime | None) -> str:
    """Return a time, to milliseconds (UTC)."""
    return formats.NONE if at is None else f"{at:%Y-%m-%d %H:%M:%S.%f}"[:-3]


def as_json(event: Mapping[str, Any]) -> str:
    """Return an event in lines of JSON, each text shortened."""
    cut = {name: text(each) if isinstance(each, str) else each for name, each in event.items()}
    return json.dumps(cut, indent=1, ensure_ascii=False)


def service_url(name: str) -> str:
    """Return the address of a service's page. A browser would take `.` and `..` out of a path."""
    if name in _DOTS:
        return f"/services?name={name}"
    return f"/services/{quote(name, safe='')}"


def request_url(request_id: str) -> str:
    """Return the address of a request's page."""
    return f"/requests/{quote(request_id, safe='')}"


def act_url(verb: str, of: str = "", service: str = "") -> str:
    """Return the address of an act on `of`, which is asked for at the page of a `service`."""
    query = urlencode({name: each for name, each in {"of": of, "from": service}.items() if each})
    return f"/acts/{verb}" + (f"?{query}" if query else "")


_templates: Final = Environment(
    loader=PackageLoader("requite.page"),
    autoescape=True,
    auto_reload=False,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters |= {
    "text": text,
    "rate": formats.rate,
    "count": formats.count,
    "duration": duration,
    "percentile": percentile,
    "size": size,
    "age": age,
    "since": since,
    "moment": moment,
    "json": as_json,
}
_templates.globals |= {
    "service_url": service_url,
    "request_url": request_url,
    "act_url": act_url,
    "counted": words.counted,
    "charts_width": charts.WIDTH,
    "charts_height": charts.HEIGHT,
    "lanes_left": charts.LANES_LEFT,
    "dash": formats.NONE,
}


async def compile_templates() -> None:
    """Compile all templates, one in each turn of the loop, so that no visit does it."""
    for name in _templates.list_templates():
        _templates.get_template(name)
        await asyncio.sleep(0)


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return the text of a template."""
    return _templates.get_template(template).render(values)


def answer(
    template: str,
    values: Mapping[str, Any],
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> HTMLResponse:
    """Return a page."""
    return HTMLResponse(render(template, values), status, {**HEADERS, **(headers or {})})
