"""Accept connections at a listening socket.

uvloop's servers do this well, asyncio's do not: a connection accepted in the iteration in which the
server closes leaks until garbage collection; and without free descriptors, every iteration tries as
many accepts as the backlog is long, each with a traceback in the log. On asyncio's loop, therefore,
this module accepts.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Any, Final, Protocol

from requite.transport.address import Address
from requite.transport.descriptors import EXHAUSTED, exhaustion, is_of_reserve
from requite.transport.sockets import BACKLOG
from requite.transport.stream import SocketStream

_PER_TURN: Final = 64
# Without descriptors or memory, the acceptor pauses until connections have ended; the host drops
# some of them soon, so the pause is short. From the reserve it takes one descriptor at a time, so
# that the host makes room before the next.
_EXHAUSTED_PAUSE_S: Final = 0.05
_SHORT_PAUSE_S: Final = 0.002
_WARN_EVERY_S: Final = 10.0
_logger: Final = logging.getLogger("requite.transport")

MakeStream = Callable[[], SocketStream]


class Closable(Protocol):
    """A server that accepts connections until it is closed."""

    def close(self) -> object: ...


async def serve(sock: socket.socket, make_stream: MakeStream) -> Closable:
    """Make a stream of each connection accepted at a listening socket; own the socket."""
    loop = asyncio.get_running_loop()
    sock.setblocking(False)
    if isinstance(loop, asyncio.SelectorEventLoop):
        return Acceptor(loop, sock, make_stream)
    if sock.family == socket.AF_UNIX:
        return await loop.create_unix_server(make_stream, sock=sock, backlog=BACKLOG)
    return await loop.create_server(make_stream, sock=sock, backlog=BACKLOG)


class Acceptor:
    """Accepts on asyncio's own loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, make_stream: MakeStream
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._make_stream = make_stream
        self._making: dict[asyncio.Task[Any], socket.socket] = {}
        self._pause: asyncio.TimerHandle | None = None
        self._quiet_until = -inf
        self._listen()

    def close(self) -> None:
        """Accept no more connections; those already accepted still become streams."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._sock)
        self._sock.close()

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        with suppress(BlockingIOError, InterruptedError, ConnectionAbortedError):
            try:
                for _ in range(_PER_TURN):
                    sock = self._sock.accept()[0]
                    self._adopt(sock)
                    if is_of_reserve(sock.fileno()):
                        self._rest(_SHORT_PAUSE_S)
                        return
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                self._pause_accepting(error)

    def _pause_accepting(self, error: OSError) -> None:
        now = self._loop.time()
        if now >= self._quiet_until:
            self._quiet_until = now + _WARN_EVERY_S
            _logger.warning("accepting no connections for now: %s", exhaustion(error))
        self._rest(_EXHAUSTED_PAUSE_S)

    def _rest(self, pause_s: float) -> None:
        self._loop.remove_reader(self._sock)
        self._pause = self._loop.call_later(pause_s, self._listen)

    def _adopt(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        making = self._loop.connect_accepted_socket(self._make_stream, sock)
        task = self._loop.create_task(making)
        self._making[task] = sock
        task.add_done_callback(self._made)

    def _made(self, task: asyncio.Task[Any]) -> None:
        sock = self._making.pop(task)
        if task.cancelled() or task.exception() is not None:
            sock.close()


class SocketListener:
    """A `Listener` over one server, or over one per address of a host name."""

    def __init__(
        self,
        address: Address,
        servers: Sequence[Closable],
        after_close: Callable[[], object] | None = None,
    ) -> None:
        self.address = address
        self._servers = servers
        self._after_close = after_close

    def close(self) -> None:
        """Accept no more connections; existing ones stay open."""
        for server in self._servers:
            server.close()
        if self._after_close is not None:
            self._after_close()
