"""The interface of every transport: a `Stream` of bytes and its `Owner`.

A `Host` uses these two protocols for asyncio, blocking sockets, in-process pairs and the
simulator's network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from requite.principal import Credential
from requite.transport.address import Address, HostAddress

DIAL_TIMEOUT_S: Final = 10.0
HUNG_UP_UNREAD: Final = "the peer closed the connection while reading from it was paused"


class Owner(Protocol):
    """The receiver of a stream's bytes and events; `link` is the object given to `Stream.start`.

    A stream calls `received`, `writable` and `closed` from outside of any of its own methods.
    `blocked` alone may also be called from inside `Stream.write`.
    """

    def received(self, link: Any, chunk: bytes) -> None:
        """Handle the next bytes, at least one."""

    def blocked(self, link: Any) -> None:
        """Handle back-pressure: the stream's buffer has passed its high-water mark."""

    def writable(self, link: Any) -> None:
        """Handle the end of back-pressure: the buffer has drained below the low-water mark."""

    def closed(self, link: Any, reason: str) -> None:
        """Handle the end, by either side; no event follows. An empty reason: the peer closed."""


class Stream(Protocol):
    """One connection. Methods never raise for network errors; these end in `Owner.closed`."""

    @property
    def peer_name(self) -> str:
        """The peer's address, for messages: `tcp://127.0.0.1:40022`."""

    @property
    def peer_credential(self) -> Credential | None:
        """What the transport knows about the peer: its verified certificate, or its user id at a
        Unix socket. None if nothing, and before a TLS handshake is complete."""

    @property
    def has_unread(self) -> bool:
        """Whether bytes have arrived that were not read; True if that is unknown."""

    @property
    def read_was_full(self) -> bool:
        """During `Owner.received`: whether this read returned as much as a read can, so that more
        may have arrived before it."""

    def start(self, owner: Owner, link: object) -> None:
        """Start reading and report to `owner`. Called once."""

    def write(self, data: bytes) -> None:
        """Send `data`; buffer what the network does not accept yet. Ignored once closed."""

    def close(self) -> None:
        """Close once the buffer has been sent; `closed` follows, at the latest after `abort`."""

    def abort(self) -> None:
        """Close at once and drop the buffer; `closed` follows."""

    def pause_reading(self) -> None:
        """Stop reading, to push back on the peer. `received` may be called once more.

        On an event loop the stream ends when the peer closes the connection or its sending half:
        `closed` follows, and unread bytes are dropped. Over TCP the end is detected within a second
        if the peer's last bytes fit into the receive buffer; otherwise at the next write to the
        peer, or by keep-alive.
        """

    def resume_reading(self) -> None:
        """Resume reading."""


@runtime_checkable
class PromptStream(Stream, Protocol):
    """A stream whose `write` may be deferred to the end of the loop iteration."""

    def write_now(self, data: bytes) -> None:
        """Write at once, so that the peer can work during the rest of the loop iteration.

        More expensive than `write` for a broker, whose peers are better served in batches.
        """


OnStream: TypeAlias = Callable[[Any], object]
"""Gets each new `Stream`, and must `start` it before it returns."""


class Listener(Protocol):
    """A listening address."""

    @property
    def address(self) -> Address:
        """The bound address, with the actual port."""

    def close(self) -> None:
        """Accept no more connections; existing ones stay open."""


class Network(Protocol):
    """A replacement of TCP on an event loop."""

    async def listen(self, address: HostAddress, on_stream: OnStream) -> Listener:
        """Listen, and pass each connection to `on_stream`. Raises `TransportError`."""

    async def dial(self, address: HostAddress, on_stream: OnStream) -> None:
        """Connect, and pass the connection to `on_stream`. Raises `TransportError`."""
