"""Listen and dial on asyncio, for every kind of address.

A WebSocket address is treated as its transport, TCP or TLS.
"""

from __future__ import annotations

import asyncio
from typing import Final, assert_never

from requite.errors import ConfigurationError
from requite.transport import inproc, ipc, tcp
from requite.transport.address import Address, HostAddress, InprocAddress, IpcAddress
from requite.transport.base import DIAL_TIMEOUT_S, Listener, OnStream, Stream
from requite.transport.sockets import cannot
from requite.transport.tls import TlsSettings
from requite.transport.tls_listener import TlsListener
from requite.transport.tls_session import TlsSession
from requite.transport.tls_stream import TlsStream

_NO_SETTINGS: Final = TlsSettings()


async def listen(address: Address, on_stream: OnStream, tls: TlsSettings | None = None) -> Listener:
    """Listen at an address; each connection is handed to `on_stream`.

    `tls` is for addresses that are secure, which cannot be listened at without a certificate. There
    a connection is handed on before its handshake, which its owner gives time to as to its own.

    Raises `TransportError`, and `ConfigurationError` for files of `tls` that cannot be used.
    """
    match address:
        case HostAddress(is_secure=True):
            return await tcp.listen(address, _accept_over_tls(on_stream, tls or _NO_SETTINGS))
        case HostAddress():
            return await tcp.listen(address, on_stream)
        case IpcAddress():
            return await ipc.listen(address, on_stream)
        case InprocAddress():
            return await inproc.listen(address, on_stream)
        case _:
            assert_never(address)


async def dial(
    address: Address,
    on_stream: OnStream,
    timeout_s: float = DIAL_TIMEOUT_S,
    tls: TlsSettings | None = None,
) -> None:
    """Connect to an address and pass the connection to `on_stream`; over TLS, after the handshake
    and the check of the server's certificate. Raises `TransportError`.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await _dial(address, on_stream, tls or _NO_SETTINGS)
    except TimeoutError:
        raise cannot("connect to", address, f"no answer within {timeout_s:g} s") from None


async def _dial(address: Address, on_stream: OnStream, tls: TlsSettings) -> None:
    match address:
        case HostAddress(is_secure=True):
            await _dial_over_tls(address, on_stream, tls)
        case HostAddress():
            await tcp.dial(address, on_stream)
        case IpcAddress():
            await ipc.dial(address, on_stream)
        case InprocAddress():
            await inproc.dial(address, on_stream)
        case _:
            assert_never(address)


# --- TLS ------------------------------------------------------------------------------------------
def _accept_over_tls(on_stream: OnStream, settings: TlsSettings) -> OnStream:
    listener = TlsListener(settings, asyncio.get_running_loop().call_soon)
    return lambda below: on_stream(listener.stream(below))


async def _dial_over_tls(address: HostAddress, on_stream: OnStream, settings: TlsSettings) -> None:
    try:
        session = settings.session_to(address.host)
    except ConfigurationError as error:  # files change while a program runs
        raise cannot("connect to", address, str(error)) from error
    handshake = _Handshake(session, on_stream)
    try:
        await tcp.dial(address, handshake.begin)
        reason = await asyncio.shield(handshake.outcome)
    except BaseException:
        await handshake.give_up()
        raise
    if reason:
        raise cannot("connect to", address, reason)


class _Handshake:
    """The TLS handshake of a dialled connection.

    `outcome` is "" once the stream has been passed on, or the reason why the connection ended.
    """

    def __init__(self, session: TlsSession, on_stream: OnStream) -> None:
        self._loop = asyncio.get_running_loop()
        self._session = session
        self._on_stream = on_stream
        self._stream: TlsStream | None = None
        self.outcome: asyncio.Future[str] = self._loop.create_future()

    def begin(self, below: Stream) -> None:
        """Do the handshake over an open connection."""
        self._stream = TlsStream(below, self._session, self._loop.call_soon)
        self._stream.shake_hands(self._done)

    async def give_up(self) -> None:
        """End it, unless it has ended already; return when its connection is closed."""
        if self._stream is not None and not self.outcome.done():
            self._stream.abort()
            await asyncio.wait([self.outcome])

    def _done(self, reason: str) -> None:
        if not reason:
            self._on_stream(self._stream)
        if not self.outcome.done():
            self.outcome.set_result(reason)
