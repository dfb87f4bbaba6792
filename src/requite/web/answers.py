"""Answers to requests that are refused before their bodies are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Receive, Send

UNREAD_MAX: Final = 1 << 16
"""Bytes of a body that are read after the answer to its request."""


async def answer_early(response: Response, receive: Receive, send: Send) -> None:
    """Answer at once, and end the response after the body of the request, unless that is large: a
    client that still writes when its connection is closed may not see the answer."""
    start = {"status": response.status_code, "headers": response.raw_headers}
    await send({"type": "http.response.start", **start})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    size = 0
    while size <= UNREAD_MAX:
        message = await receive()
        size += len(message.get("body", b""))
        if not message.get("more_body"):  # the end, or the client has disconnected
            break
    await send({"type": "http.response.body"})
