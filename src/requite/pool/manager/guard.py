"""Refuses HTTP requests of foreign web pages, and changes without the token.

| status | request |
|---|---|
| 421 | a `Host` that is not the address of the connection, a loopback name or in `http.hosts` |
| 403 | an `Origin` with another host than these: a page of another site |
| 403 | what a browser says to send for a page of another site, other than a link that it follows |
| 401 | a POST without the token of `http.token_file` |
| 415 | a POST whose body is not JSON: pages may send other types without the server's consent |
"""

from __future__ import annotations

from hmac import compare_digest
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response

from requite.pool.config import HttpSection
from requite.pool.token import read_token
from requite.web.answers import answer_early
from requite.web.hosts import Hosts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

_JSON: Final = "application/json"
BODY_SIZE_MAX: Final = 1 << 16


class Guard:
    """Passes the requests to `app` that the settings allow; answers the others.

    Raises `ConfigurationError` if the token cannot be read.
    """

    def __init__(self, app: ASGIApp, http: HttpSection) -> None:
        self._app: Final = app
        self._hosts: Final = Hosts((http.host, *http.hosts))
        token = read_token(http.token_file, "http.token_file") if http.token_file else ""
        self._token: Final = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI)."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await answer_early(refusal, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that is not allowed."""
        headers = Headers(scope=scope)
        if (host := self._hosts.foreign_host(scope)) is not None:
            return _refuse(421, f"{host} is not a host of this manager; {_ADD_HOST}")
        if (origin := self._hosts.foreign_origin(scope)) is not None:
            return _refuse(403, f"web pages of {origin} may not use this manager; {_ADD_HOST}")
        is_change = scope["method"] == "POST"
        if self._hosts.is_foreign_fetch(scope, is_entry=not is_change):
            return _refuse(403, "web pages of other sites may not use this manager")
        if not is_change:
            return None
        if self._token and not self._is_authorised(headers.get("authorization", "")):
            return _refuse(401, _NO_TOKEN, {"WWW-Authenticate": "Bearer"})
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != _JSON:
            return _refuse(415, f"the body must be JSON; send Content-Type: {_JSON}")
        return None

    def _is_authorised(self, field: str) -> bool:
        scheme, _, token = field.partition(" ")
        is_equal = compare_digest(token.strip().encode(), self._token)  # in constant time
        return scheme.lower() == "bearer" and is_equal


_ADD_HOST: Final = "the request was not performed. To allow the host, add it to http.hosts"
_NO_TOKEN: Final = (
    "this manager requires its token for changes, and the request was not performed: send"
    " Authorization: Bearer TOKEN, or give --token-file"
)


def _refuse(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": text}, status, headers=headers)
