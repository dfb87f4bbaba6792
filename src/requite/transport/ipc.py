"""Unix sockets on asyncio: listen and dial."""

from __future__ import annotations

import asyncio

from requite.errors import TransportError
from requite.transport.accept import SocketListener, serve
from requite.transport.address import IpcAddress
from requite.transport.base import Listener, OnStream
from requite.transport.sockets import (
    bind_ipc,
    cannot,
    connect_ipc,
    remove_socket_file,
    socket_file_id,
    why,
)
from requite.transport.stream import Dialled, SocketStream


async def listen(address: IpcAddress, on_stream: OnStream) -> Listener:
    """Listen, and pass each connection to `on_stream`. Raises `TransportError`.

    Only the file's owner has access to the socket; closing the listener removes the file.
    """
    try:
        sock = bind_ipc(address)
    except TransportError:  # an OSError as well, and says it all
        raise
    except OSError as error:
        raise cannot("listen at", address, why(error)) from error
    made = socket_file_id(address.path)
    server = await serve(sock, lambda: SocketStream(on_stream, address))
    return SocketListener(address, [server], lambda: remove_socket_file(address.path, made))


async def dial(address: IpcAddress, on_stream: OnStream) -> None:
    """Connect, and pass the connection to `on_stream`. Raises `TransportError`."""
    loop = asyncio.get_running_loop()
    dialled = Dialled(lambda: SocketStream(on_stream, address))
    try:
        if isinstance(loop, asyncio.BaseEventLoop):  # would wait forever at a full backlog
            making = loop.create_unix_connection(dialled, sock=connect_ipc(address))
        else:
            making = loop.create_unix_connection(dialled, address.path)
        await dialled.by(making)
    except TransportError:  # an OSError as well, and says it all
        raise
    except OSError as error:
        raise cannot("connect to", address, why(error)) from error
