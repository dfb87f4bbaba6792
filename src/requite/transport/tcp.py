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
from requite.transport.stream import SocketListener, SocketStream, to_its_end


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
        infos: Sequence[AddressInfo] = await loop.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM
        )
        sock = await _connect_to_any(infos)
        await to_its_end(
            loop.create_connection(
                lambda: SocketStream(on_stream, str(address), tune_tcp), sock=sock
            )
        )
    except OSError as error:
        raise cannot("connect to", address, why(error)) from error
    except UnicodeError as error:  # out of the resolver, which encodes the name by IDNA
        raise cannot("connect to", address, f"the name is no host name: {error}") from error


async def _connect_to_any(infos: Sequence[AddressInfo]) -> socket.socket:
    """Connect to the first address that answers.

    `create_connection` would do so as well, but tells of several failures in one line of tuples.
    """
    failure = OSError("the name stands for no address")
    for family, kind, protocol, _, place in infos:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, place)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure
