"""TCP on asyncio: listen and dial, IPv4 and IPv6, for all addresses that name a host."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

from requite.transport.accept import SocketListener, serve
from requite.transport.address import HostAddress
from requite.transport.base import Listener, Network, OnStream
from requite.transport.sockets import (
    AddressInfo,
    bind_tcp,
    bind_tcp_wildcard,
    cannot,
    tune_tcp,
    why,
)
from requite.transport.stream import Dialled, SocketStream

networks: WeakKeyDictionary[asyncio.AbstractEventLoop, Network] = WeakKeyDictionary()
"""The networks of event loops without sockets: those of the simulator."""


async def listen(address: HostAddress, on_stream: OnStream) -> Listener:
    """Listen, and pass each connection to `on_stream`. Raises `TransportError`."""
    if network := networks.get(asyncio.get_running_loop()):
        return await network.listen(address, on_stream)
    try:
        socks = await _bind(address)
    except OSError as error:
        raise cannot("listen at", address, why(error)) from error
    except UnicodeError as error:  # out of the resolver, which encodes the name by IDNA
        raise cannot("listen at", address, f"not a valid host name: {error}") from error
    bound = replace(address, port=socks[0].getsockname()[1])
    servers = [
        await serve(sock, lambda: SocketStream(on_stream, bound, tune_tcp)) for sock in socks
    ]
    return SocketListener(bound, servers)


async def _bind(address: HostAddress) -> list[socket.socket]:
    if address.is_wildcard:
        return bind_tcp_wildcard(address.port)
    infos: Sequence[AddressInfo] = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return bind_tcp(infos, address.port)


async def dial(address: HostAddress, on_stream: OnStream) -> None:
    """Connect, and pass the connection to `on_stream`. Raises `TransportError`."""
    loop = asyncio.get_running_loop()
    if network := networks.get(loop):
        await network.dial(address, on_stream)
        return
    try:
        infos: Sequence[AddressInfo] = await loop.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM
        )
        await _connect_to_any(infos, lambda: SocketStream(on_stream, address, tune_tcp))
    except OSError as error:
        raise cannot("connect to", address, why(error)) from error
    except UnicodeError as error:  # out of the resolver, which encodes the name by IDNA
        raise cannot("connect to", address, f"not a valid host name: {error}") from error


async def _connect_to_any(
    infos: Sequence[AddressInfo], make_stream: Callable[[], SocketStream]
) -> None:
    """Connect to the first address that answers; if none does, raise the error of the last one.

    Each address is dialled separately, since asyncio reports several failures as a line of tuples.
    """
    loop = asyncio.get_running_loop()
    failure = OSError("the host name has no address")
    for family, _, _, _, place in infos:
        dialled = Dialled(make_stream)
        host = place[0]
        if family == socket.AF_INET6 and place[3]:
            host = f"{host}%{place[3]}"
        try:
            await dialled.by(loop.create_connection(dialled, host, place[1]))
        except OSError as error:
            failure = error
        else:
            return
    raise failure
