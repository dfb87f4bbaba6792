"""The page to try methods, and that of the kinds of failures; nothing comes from other hosts."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from requite.gateway.problems import KINDS
from requite.web.policy import page_headers

_HEADERS: Final = page_headers()
_FILES: Final = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
_PROBLEMS: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Problems</title>
<link rel="stylesheet" href="page.css">
<main>
<h1>Problems</h1>
<p>The kinds of failures of a call, by the fragment of <code>type</code>.</p>
<table>
<tr><th>error</th><th>status</th><th>what happened</th></tr>
{rows}
</table>
</main>
</html>
"""


def page_routes() -> list[Route]:
    """Return the routes of the pages."""
    folder = files("requite.gateway") / "page"
    contents = {
        path: ((folder / name).read_text(encoding="utf-8"), kind)
        for path, (name, kind) in _FILES.items()
    }
    contents["/problems"] = (_problems(), "text/html")
    return [_route(path, *content) for path, content in contents.items()]


def _route(path: str, text: str, kind: str) -> Route:
    async def page(_request: Request) -> Response:
        return Response(text, headers=_HEADERS, media_type=kind)

    return Route(path, page, methods=["GET"])


def _problems() -> str:
    rows = (
        f'<tr id="{name}"><td><code>{name}</code></td><td>{kind.status}</td>'
        f"<td>{escape(kind.title)}</td></tr>"
        for name, kind in KINDS.items()
    )
    return _PROBLEMS.format(rows="\n".join(rows))
