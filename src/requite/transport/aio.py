"""Listen and dial on asyncio, whatever the kind of address."""

from __future__ import annotations

import asyncio
from typing import Final, assert_never

from requite.transport import inproc, ipc, tcp
from requite.transport.address import Address, InprocAddress, IpcAddress, TcpAddress
from requite.transport.base import Listener, OnStream
from requite.transport.sockets import cannot

DIAL_TIMEOUT_S: Final = 10.0


async def listen(address: Address, on_stream: OnStream) -> Listener:
    """Listen at an address; each connection is handed to `on_stream`. Raises `TransportError`."""
    match address:
        case TcpAddress():
            return await tcp.listen(address, on_stream)
        case IpcAddress():
            return await ipc.listen(address, on_stream)
        case InprocAddress():
            return await inproc.listen(address, on_stream)
        case _:
            assert_never(address)


async def dial(address: Address, on_stream: OnStream, timeout_s: float = DIAL_TIMEOUT_S) -> None:
    """Connect to an address and hand the connection to `on_stream`. Raises `TransportError`."""
    try:
        async with asyncio.timeout(timeout_s):
            await _dial(address, on_stream)
    except TimeoutError:
        raise cannot("connect to", address, f"no answer within {timeout_s:g} s") from None


async def _dial(address: Address, on_stream: OnStream) -> None:
    match address:
        case TcpAddress():
            await tcp.dial(address, on_stream)
        case IpcAddress():
            await ipc.dial(address, on_stream)
        case InprocAddress():
            await inproc.dial(address, on_stream)
        case _:
            assert_never(address)
