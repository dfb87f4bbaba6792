"""`Socket`: the base of `Req` and `Rep`; dials and listens any number of times until closed."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Final, Self, Unpack

from requite.access.exposure import check_exposure
from requite.client.call_arguments import frames_of
from requite.engine import Drain, Engine
from requite.errors import Cancelled, ConfigurationError
from requite.framing import Limits
from requite.shell.aio import AioShell
from requite.shell.connections import Connections
from requite.shell.uses import Uses
from requite.speaks.endpoints import Endpoints, Urls, bound_at
from requite.speaks.registry import read_endpoints
from requite.speaks.sp import (
    LINK_LIMITS,
    SpRole,
    check_whole,
    refuse_unused,
    to_dial,
    to_listen,
)
from requite.transport.address import Address

MESSAGE_SIZE_MAX: Final = Limits().message_size_bytes_max
CLOSED: Final = "the socket was closed"


class Socket:
    """An SP socket, bound to the event loop on which it is first used."""

    _role: SpRole

    def __init__(
        self, engine: Engine, message_size_max: int, insecure: bool, **uses: Unpack[Uses]
    ) -> None:
        check_whole(message_size_max=message_size_max)
        if message_size_max < 1:
            raise ConfigurationError(f"message_size_max must be at least 1, not {message_size_max}")
        self._size_max = message_size_max
        self._insecure = insecure
        self._limits = Limits.for_bodies(message_size_max)
        self._shell = AioShell(
            engine, Connections(limits=LINK_LIMITS.for_messages(message_size_max)), **uses
        )
        self._closed = False
        self._queries: dict[Address, str] = {}  # by bound address: the query of the peers' URLs
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {len(self._shell.host.links)} connections>"

    async def dial(self, url: str) -> None:
        """Dial every address in `url`, and reconnect whenever a connection is lost.

        The socket connects in the background. Raises `ConfigurationError` for a URL that cannot
        work.
        """
        self._check_usable()
        for endpoint in to_dial(self._read(url).dials, self._role, self._limits):
            self._shell.keep(endpoint)

    async def listen(self, url: str) -> list[str]:
        """Listen at every address in `url`; return the URLs by which peers dial them.

        Raises `TransportError` if it cannot bind an address, `ConfigurationError` for a URL that
        cannot work.
        """
        self._check_usable()
        endpoints = self._read((), url)
        listen = to_listen(endpoints.binds, self._role, self._limits)
        check_exposure(listen, is_guarded=False, insecure=self._insecure)
        addresses = [await self._shell.listen(endpoint) for endpoint in listen]
        self._queries.update(zip(addresses, endpoints.peer_queries, strict=True))
        return self._urls_of(addresses)

    @property
    def addresses(self) -> list[str]:
        """URLs at which the socket listens, with actual ports."""
        return self._urls_of(self._shell.addresses)

    async def close(self) -> None:
        """Close all connections; queued messages are still sent."""
        if not self._closed:
            self._closed = True
            self._shell.submit(Drain())
            await self._shell.close()

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Cancelled(CLOSED, may_have_executed=False)

    def _check_usable(self) -> None:
        """Refuse a closed socket, and another event loop than the first: it could not wake waiting
        tasks."""
        self._check_open()
        if asyncio.get_running_loop() is not self._loop:
            self._shell.start()
            self._loop = asyncio.get_running_loop()

    def _read(self, url: Urls, bind: Urls = ()) -> Endpoints:
        endpoints = read_endpoints(url, bind)
        if endpoints.protocol != "sp":
            raise ConfigurationError(
                f"a socket supports only SP, not {endpoints.protocol.upper()}; use an sp+tcp:// URL"
            )
        refuse_unused(endpoints.dials + endpoints.binds, self._role)
        return endpoints

    def _urls_of(self, addresses: list[Address]) -> list[str]:
        return bound_at(addresses, [self._queries.get(address, "") for address in addresses])

    def _body(self, body: Any) -> bytes:
        """Return a body as one byte string. Raises `ConfigurationError` for a body that is too
        large or has several frames, `TypeError` for one that is not bytes."""
        frames = frames_of(body)
        if len(frames) != 1:
            raise ConfigurationError(
                f"the body has {len(frames)} frames, but SP carries only one; join them"
            )
        if len(frames[0]) > self._size_max:
            raise ConfigurationError(
                f"the body has more than the {self._size_max} bytes of message_size_max;"
                " raise it here and at the peers"
            )
        return frames[0]
