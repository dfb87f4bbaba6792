"""TCP on asyncio: listen and dial, IPv4 and IPv6."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

from requite.transport.address import TcpAddress
from requite.transport.base import Listener, OnStream
from requite.transport.sockets import (
    BACKLOG,
    AddressInfo,
    bind_tcp,
    bind_tcp_wildcard,
    cannot,
    tune_tcp,
    why,
)
from requite.transport.stream import SocketListener, SocketStream


async def listen(address: TcpAddress, on_stream: OnStream) -> Listener:
    """Listen; each connection is handed to `on_stream`. Raises `TransportError`."""
    try:
        socks = await _bind(address)
    except OSError as error:
        raise cannot("listen at", address, why(error)) from error
    bound = TcpAddress(address.host, socks[0].getsockname()[1])
    loop = asyncio.get_running_loop()
    servers = [
        await loop.create_server(
            lambda: SocketStream(on_stream, str(bound), tune_tcp), sock=sock, backlog=BACKLOG
        )
        for sock in socks
    ]
    return SocketListener(bound, servers)


async def _bind(address: TcpAddress) -> list[socket.socket]:
    if address.is_wildcard:
        return bind_tcp_wildcard(address.port)
    infos: Sequence[AddressInfo] = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return bind_tcp(infos, address.port)


async def dial(address: TcpAddress, on_stream: OnStream) -> None:
    """Connect, and hand the connection to `on_stream`. Raises `TransportError`."""
    loop = asyncio.get_running_loop()
    try:
        await loop.create_connection(
            lambda: SocketStream(on_stream, str(address), tune_tcp), address.host, address.port
        )
    except OSError as error:
        raise cannot("connect to", address, why(error)) from error
