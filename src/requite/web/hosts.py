"""The hosts and origins that a server accepts, against web pages of other sites.

See `requite.framing.web_hosts` for what such a page can do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers

from requite.framing.web_hosts import LOCALHOST, canonical, host_of, host_of_origin, is_loopback

if TYPE_CHECKING:
    from starlette.types import Scope

_SHOWN_MAX: Final = 100
_OTHER_SITES: Final = {"cross-site", "same-site"}
_FOLLOWED: Final = ("navigate", "document")  # a link, in a window of its own
_ANY: Final = {"0.0.0.0", "::"}  # no names: a browser that asks for them reaches its own machine


class Hosts:
    """The hosts of a server: `names` without wildcard addresses, the address of each connection,
    and on loopback addresses all names of the loopback interface."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names: Final = {canonical(each) for each in names} - _ANY - {None}

    def foreign_host(self, scope: Scope) -> str | None:
        """Return the `Host` of a request if it is another one, quoted and shortened."""
        host = Headers(scope=scope).get("host", "")
        return None if self._allows(host_of(host), scope) else _shown(host)

    def foreign_origin(self, scope: Scope) -> str | None:
        """Return the `Origin` of a request if it has another host, quoted and shortened."""
        origin = Headers(scope=scope).get("origin")
        if origin is None or self._allows(host_of_origin(origin), scope):
            return None
        return _shown(origin)

    def is_foreign_fetch(self, scope: Scope, *, is_entry: bool) -> bool:
        """Whether a page of another site or port sends a request, as the browser says, with or
        without `Origin`: an image, a script, a frame. `is_entry`: a link may lead here.

        Source: Fetch Metadata Request Headers (W3C).
        """
        headers = Headers(scope=scope)
        if headers.get("sec-fetch-site") not in _OTHER_SITES:
            return False
        followed = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == _FOLLOWED
        return not (is_entry and followed)

    def _allows(self, host: str | None, scope: Scope) -> bool:
        """Whether a host is this server's, at the address where the connection was accepted."""
        if host is None:
            return False
        own, port = scope["server"]
        local = LOCALHOST if port is None else canonical(own) or ""  # no port: a Unix socket
        return host in self._names or host == local or (is_loopback(local) and is_loopback(host))


def _shown(field: str) -> str:
    """Return a peer's text, quoted and shortened."""
    return ascii(field[:_SHOWN_MAX])
