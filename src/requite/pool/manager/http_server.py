"""HTTP server for an ASGI application: uvicorn in the running event loop.

`uvicorn.Server.serve` installs signal handlers, wakes ten times a second, and exits the process if
it cannot bind. This class calls only `startup` and `shutdown`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Final

import uvicorn

from requite.errors import TransportError
from requite.pool.config import UNIX
from requite.transport.address import parse_ipc
from requite.transport.sockets import bind_ipc, remove_socket_file, socket_file_id, why

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_KEEP_ALIVE_S: Final = 75
_SHUTDOWN_S: Final = 60


class HttpServer:
    """Serves `app` where one of `listen`, `listen_unix` and `serve` opens it.

    `url` has the bound port, or the path of the Unix socket; it is empty before.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._sockets: list[socket.socket] = []
        self._socket_file: tuple[str, tuple[int, int]] | None = None  # its path and id
        self.url = ""
        # `access_log=False` would silence the access log of all uvicorn servers of the process.
        config = uvicorn.Config(
            app,
            http="h11",
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

    async def listen(self, host: str, port: int, setting: str) -> None:
        """Serve at every address of `host`; `setting` names the port in errors.

        Raises `TransportError` if an address cannot be bound.
        """
        try:
            sockets = await _bind(host, port)
        except OSError as error:
            raise _cannot_listen(setting, f"{host}:{port}", str(error.strerror)) from error
        address, port = sockets[0].getsockname()[:2]
        self.url = f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
        await self.serve(sockets)

    async def listen_unix(self, url: str, setting: str) -> None:
        """Serve at `unix:/PATH`, a Unix socket to which only its owner may connect.

        Raises `TransportError` if it cannot be created, and `ConfigurationError` for an invalid
        path.
        """
        path = url.removeprefix(UNIX)
        try:
            listening = bind_ipc(parse_ipc(path, url))
        except OSError as error:  # also of `bind_ipc` itself, if another process listens
            raise _cannot_listen(setting, url, why(error)) from error
        listening.setblocking(False)
        self._socket_file = path, socket_file_id(path)
        self.url = url
        await self.serve([listening])

    async def serve(self, sockets: list[socket.socket]) -> None:
        """Serve on sockets that are listening; `close` closes them."""
        self._sockets = sockets
        await self._server.startup(sockets)

    async def close(self) -> None:
        """Stop listening, close idle connections, and finish requests in progress.

        Requests that take longer than a minute are cancelled.
        """
        if self._sockets:
            sockets, self._sockets = self._sockets, []
            await self._server.shutdown(sockets)
        if self._socket_file is not None:
            remove_socket_file(*self._socket_file)
            self._socket_file = None


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
            each.listen()  # two processes can bind one port; only one can listen
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets
