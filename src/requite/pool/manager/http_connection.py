"""A connection of the HTTP server: asyncio's transport over a `Stream`, with or without TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from requite.transport.base import Stream
from requite.transport.stream import SocketStream


class HttpConnection(asyncio.Transport):
    """The transport of uvicorn's protocol, and the owner of a `Stream`.

    `stream` is `below`, or that of TLS over it. `heard` is called once: with "" when the header of
    the first request is complete, or with the reason of an end before that.
    """

    def __init__(
        self,
        below: SocketStream,
        stream: Stream,
        protocol: H11Protocol,
        heard: Callable[[HttpConnection, str], object],
    ) -> None:
        super().__init__()
        self._below: Final = below
        self._stream: Final = stream
        self._protocol: Final = protocol
        self._heard: Callable[[HttpConnection, str], object] | None = heard
        self._is_closing = False

    def start(self) -> None:
        """Start reading."""
        self._stream.start(self, None)
        self._protocol.connection_made(self)

    @property
    def peer_name(self) -> str:
        """The address of the peer, for messages."""
        return self._stream.peer_name

    # --- the side of the stream: the contract of `Owner` ------------------------------------------
    def received(self, _link: object, chunk: bytes) -> None:
        """Pass received bytes on."""
        if not self._is_closing:
            self._protocol.data_received(chunk)
            if self._protocol.scope is not None:  # the header of a request is complete
                self._tell("")

    def blocked(self, _link: object) -> None:
        """Report back-pressure."""
        self._protocol.pause_writing()

    def writable(self, _link: object) -> None:
        """Report the end of back-pressure."""
        self._protocol.resume_writing()

    def closed(self, _link: object, reason: str) -> None:
        """Report the end."""
        self._is_closing = True
        self._tell(reason)
        self._protocol.connection_lost(None)

    def _tell(self, reason: str) -> None:
        heard, self._heard = self._heard, None
        if heard is not None:
            heard(self, reason)

    # --- the side of the protocol -----------------------------------------------------------------
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what asyncio knows; `sslcontext` is true over TLS."""
        if name == "sslcontext":
            return self._stream is not self._below
        return self._below.get_extra_info(name, default)

    def write(self, data: Any) -> None:
        """Send, and buffer what the network does not accept yet."""
        self._stream.write(data)

    def is_closing(self) -> bool:
        """Whether it is closed, or will be once its buffer is sent."""
        return self._is_closing

    def close(self) -> None:
        """Close after all written data have been sent."""
        if not self._is_closing:
            self._is_closing = True
            self._stream.close()

    def abort(self) -> None:
        """Close at once."""
        self._is_closing = True
        self._stream.abort()

    def pause_reading(self) -> None:
        """Stop reading."""
        self._stream.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        self._stream.resume_reading()
