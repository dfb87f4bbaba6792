"""HTTP server for an ASGI application: uvicorn in the running event loop.

`uvicorn.Server.serve` installs signal handlers, wakes ten times a second, and exits the process if
it cannot bind. This class accepts connections itself, as all listeners do, and calls only
`shutdown`. uvicorn's own TLS reads its files once, and waits a minute for any number of handshakes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from functools import partial
from typing import TYPE_CHECKING, Final

import uvicorn
from starlette.responses import PlainTextResponse

from requite.errors import TransportError
from requite.shell import clock
from requite.shell.warnings import Warnings
from requite.transport.accept import Closable, serve
from requite.transport.address import Address, TcpAddress, TlsAddress, parse_ipc
from requite.transport.sockets import BACKLOG, bind_ipc, remove_socket_file, socket_file_id, why
from requite.transport.stream import SocketStream
from requite.transport.tls import TlsSettings
from requite.transport.tls_listener import TlsListener
from requite.web.connection import HttpConnection, HttpProtocol

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp

_KEEP_ALIVE_S: Final = 75
_SHUTDOWN_S: Final = 60

UNSENT_MAX: Final = 256 << 20
"""Bytes of answers that clients have not read, of all connections."""

CONNECTIONS_MAX: Final = 64
"""Open connections."""


class HttpServer:
    """Serves `app` where one of `listen`, `listen_unix` and `serve` opens it.

    `url` has the bound port, or the path of the Unix socket; it is empty before. `logger` gets a
    warning, at most once a second, of failed handshakes and of peers that do not speak HTTP. Beyond
    `connections_max` open connections (default: `CONNECTIONS_MAX`) the one that has been idle for
    longest is closed. Beyond `UNSENT_MAX` bytes of answers that wait for their clients, those with
    most of them are closed. `late` answers a request whose body does not arrive in time (default:
    408 with a text).
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        logger: str = "requite.web",
        connections_max: int | None = None,
        late: Response | None = None,
    ) -> None:
        self._listening: list[Closable] = []
        self._is_closed = False
        self._socket_file: tuple[str, tuple[int, int]] | None = None  # its path and id
        self._tls: TlsListener | None = None
        self._open: dict[HttpConnection, None] = {}  # the oldest first
        self._warnings: Final = Warnings(logging.getLogger(logger), clock.now)
        self._connections_max: Final = connections_max
        self.url = ""
        # `access_log=False` would silence the access log of all uvicorn servers of the process.
        config = uvicorn.Config(
            app,
            interface="asgi3",
            http=HttpProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_SHUTDOWN_S,
        )
        config.load()
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        self._server.servers = []  # this class has them
        uvicorns = logging.getLogger(f"{logger}.uvicorn")
        uvicorns.setLevel(logging.ERROR)  # its warnings have no limit and do not name the peer
        self._make_protocol = partial(
            HttpProtocol,
            config,
            self._server.server_state,
            self._server.lifespan.state,
            logger=uvicorns,
            warn=self._warnings.warn,
            late=late or PlainTextResponse("the body did not arrive in time", 408),
        )

    async def listen(
        self, host: str, port: int, setting: str, tls: TlsSettings | None = None
    ) -> None:
        """Serve at every address of `host`, over TLS if there are settings; `setting` names the
        port in errors.

        Raises `TransportError` if an address cannot be bound, and `ConfigurationError` for files of
        `tls` that cannot be used.
        """
        if tls is not None:
            self._tls = TlsListener(tls, asyncio.get_running_loop().call_soon)
        try:
            sockets = await _bind(host, port)
        except OSError as error:
            raise _cannot_listen(setting, f"{host}:{port}", str(error.strerror)) from error
        bound = (TcpAddress if tls is None else TlsAddress)(*sockets[0].getsockname()[:2])
        self.url = f"{'http' if tls is None else 'https'}://{bound.authority}"
        await self.serve(sockets, bound)

    async def listen_unix(self, path: str, url: str, setting: str) -> None:
        """Serve at the Unix socket `path`, which errors name as `url`; only its owner may connect.

        Raises `TransportError` if it cannot be created, and `ConfigurationError` for an invalid
        path.
        """
        address = parse_ipc(path, url)
        try:
            listening = bind_ipc(address)
        except OSError as error:  # also of `bind_ipc` itself, if another process listens
            raise _cannot_listen(setting, url, why(error)) from error
        self._socket_file = path, socket_file_id(path)
        self.url = url
        await self.serve([listening], address)

    async def serve(self, sockets: list[socket.socket], place: Address) -> None:
        """Serve on sockets that are listening at `place`; `close` closes them."""
        for sock in sockets:
            self._listening.append(await serve(sock, lambda: SocketStream(self._accept, place)))

    async def close(self, timeout_s: float = _SHUTDOWN_S) -> None:
        """Stop listening, close idle connections, and finish requests in progress.

        Connections whose requests and answers take longer than `timeout_s`, at most a minute, are
        closed.
        """
        self._is_closed = True
        if self._listening:
            listening, self._listening = self._listening, []
            for each in listening:
                each.close()
            ending = asyncio.get_running_loop().call_later(timeout_s, self._abort_all)
            try:
                await self._server.shutdown()
            finally:
                ending.cancel()
        if self._socket_file is not None:
            remove_socket_file(*self._socket_file)
            self._socket_file = None

    # --- connections ------------------------------------------------------------------------------
    def _accept(self, below: SocketStream) -> None:
        stream = below if self._tls is None else self._tls.stream(below)
        connection = HttpConnection(below, stream, self._make_protocol(), self._ended, self._bound)
        self._open[connection] = None
        connection.start()
        if self._is_closed:
            connection.abort()
        elif len(self._open) > (self._connections_max or CONNECTIONS_MAX):
            idle = (each for each in self._open if each.is_idle)  # at least the new one
            longest = min(idle, key=lambda each: each.active_at)
            del self._open[longest]
            longest.abort()

    def _bound(self) -> None:
        """Close connections until the unsent bytes of all are within their maximum."""
        sizes = {each: each.unsent_size for each in self._open}
        total = sum(sizes.values())
        while total > UNSENT_MAX:
            largest = max(sizes, key=sizes.__getitem__)
            total -= sizes.pop(largest)
            largest.abort()

    def _abort_all(self) -> None:
        for each in list(self._open):
            each.abort()

    def _ended(self, connection: HttpConnection, reason: str) -> None:
        self._open.pop(connection, None)
        if reason and self._tls is not None and not connection.has_requested:
            self._warnings.warn("handshake failed", f"{connection.peer_name}: {reason}")


def _cannot_listen(setting: str, where: str, reason: str) -> TransportError:
    return TransportError(f"{setting}: cannot listen at {where}: {reason}")


async def _bind(host: str, port: int) -> list[socket.socket]:
    """Return a listening socket for each address of a host."""
    loop = asyncio.get_running_loop()
    bound = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
    sockets = [socket.socket(fileno=os.dup(each.fileno())) for each in bound.sockets]
    bound.close()
    try:
        for each in sockets:
            each.setblocking(False)
            each.listen(BACKLOG)  # two processes can bind one port; only one can listen
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets
