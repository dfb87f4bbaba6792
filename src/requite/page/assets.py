"""The style sheet and the script of the pages, at /page.css and /page.js."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from requite.page.rendering import HEADERS

_KINDS: Final = {"page.css": "text/css", "page.js": "text/javascript"}


def file_routes() -> list[Route]:
    """Return what answers requests for the files: everybody may have them."""
    return [_file(name, kind) for name, kind in _KINDS.items()]


def _file(name: str, kind: str) -> Route:
    content = (files("requite.page") / "files" / name).read_text(encoding="utf-8")
    headers = {**HEADERS, "Cache-Control": "no-cache"}

    async def file(_request: Request) -> Response:
        return Response(content, headers=headers, media_type=kind)

    return Route(f"/{name}", file, methods=["GET"])
