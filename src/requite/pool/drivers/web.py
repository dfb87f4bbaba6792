"""HTTP client of drivers: requests to one service, with JSON answers.

aiohttp supports Unix sockets and TLS. The APIs of Docker and Kubernetes are called directly: five
calls per driver do not justify their client libraries.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
from yarl import URL

from requite.pool.drivers.base import DriverError

_TIMEOUT_S: Final = 30.0


class Answer:
    """An answer of the service."""

    def __init__(self, status: int, content: Any, headers: Mapping[str, str]) -> None:
        self.status = status
        self.content = content
        self.headers = headers


class Web:
    """Client of the service at `root`, over the Unix socket `socket` if it is given.

    `what` and `setting` name the service in errors.
    """

    def __init__(
        self,
        what: str,
        setting: str,
        root: str,
        *,
        socket: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._what: Final = what
        self._setting: Final = setting
        self._root: Final = root.rstrip("/")
        self._socket: Final = socket
        self._tls: Final = tls
        self._session: aiohttp.ClientSession | None = None

    async def ask(
        self,
        method: str,
        path: str,
        *,
        expect: tuple[int, ...],
        params: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> Answer:
        """Send a request; return an answer with an expected status. Raises `DriverError`."""
        try:
            async with self._opened().request(
                method,
                URL(self._root + path, encoded=True),
                params=params,
                json=body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
            ) as response:
                content = await _content_of(response)
                answer = Answer(response.status, content, response.headers)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            why = _reason(error, timeout_s)
            raise DriverError(f"{self._setting}: no answer from {self._what}: {why}") from error
        if answer.status not in expect:
            said = f"{answer.status} {message_of(answer.content)}"
            raise DriverError(f"{self._what} refused {method} {path}: {said} ({self._setting})")
        return answer

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector: aiohttp.BaseConnector
            if self._socket:
                connector = aiohttp.UnixConnector(self._socket)
            else:
                connector = aiohttp.TCPConnector(ssl=self._tls if self._tls else True)
            self._session = aiohttp.ClientSession(connector=connector)
        return self._session


def _reason(error: Exception, timeout_s: float) -> str:
    """Return a failure on one line; its `repr` would show headers, including the password."""
    if isinstance(error, TimeoutError):
        return f"none within {timeout_s:g} s"
    return " ".join(f"{type(error).__name__}: {error}".split())


async def _content_of(response: aiohttp.ClientResponse) -> Any:
    if response.content_type == "application/json":
        return await response.json()
    return await response.text()


def message_of(content: Any) -> str:
    """Return the error message of Docker or Kubernetes."""
    if isinstance(content, dict):
        return str(content.get("message", content))[:300]
    return str(content).strip()[:300]
