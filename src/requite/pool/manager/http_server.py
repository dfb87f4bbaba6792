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

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_KEEP_ALIVE_S: Final = 75
_SHUTDOWN_S: Final = 60


class HttpServer:
    """Serves `app` at every address of `host`. `setting` names the port in errors.

    `url` has the bound port; it is empty before `open`.
    """

    def __init__(self, app: ASGIApp, host: str, port: int, setting: str) -> None:
        self._host = host
        self._port = port
        self._setting = setting
        self._sockets: list[socket.socket] = []
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

    async def open(self) -> None:
        """Listen. Raises `TransportError` if an address cannot be bound."""
        try:
            self._sockets = await _bind(self._host, self._port)
        except OSError as error:
            where = f"{self._host}:{self._port}"
            raise TransportError(
                f"{self._setting}: cannot listen at {where}: {error.strerror}"
            ) from error
        address, port = self._sockets[0].getsockname()[:2]
        self.url = f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
        await self.serve(self._sockets)

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
