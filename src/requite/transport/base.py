"""What every transport promises: a `Stream` of bytes, and to whom it reports.

The same two protocols stand between a `Host` and asyncio, blocking sockets, pairs inside one
process, and the simulator's network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from requite.transport.address import Address, HostAddress

DIAL_TIMEOUT_S: Final = 10.0
HUNG_UP_UNREAD: Final = "the peer closed the connection while reading from it was paused"


class Owner(Protocol):
    """Whoever gets what a stream brings; `link` is what it gave to `Stream.start`.

    A stream calls `received`, `writable` and `closed` from outside of any of its own methods.
    `blocked` alone may also be called from inside `Stream.write`.
    """

    def received(self, link: Any, chunk: bytes) -> None:
        """Take the next bytes, at least one."""

    def blocked(self, link: Any) -> None:
        """Note that the bytes waiting in the stream have passed its high-water mark."""

    def writable(self, link: Any) -> None:
        """Note that they have drained below the low-water mark again."""

    def closed(self, link: Any, reason: str) -> None:
        """Note the end, by either side; nothing follows. An empty reason: the peer just hung up."""


class Stream(Protocol):
    """One connection. No method raises for anything the network does: that ends in `closed`."""

    @property
    def peer_name(self) -> str:
        """The other end, for people: `tcp://127.0.0.1:40022`."""

    def start(self, owner: Owner, link: object) -> None:
        """Begin to report to `owner`; nothing was read before. Called once."""

    def write(self, data: bytes) -> None:
        """Send `data`, or keep what the network does not take yet. Ignored once closed."""

    def close(self) -> None:
        """Close when everything written has left; `closed` follows, in time or at `abort`."""

    def abort(self) -> None:
        """Close at once and forget what waits; `closed` follows."""

    def pause_reading(self) -> None:
        """Read no more, so that the peer is pushed back. `received` may come once more.

        On an event loop the stream ends when the peer closes the connection, or its sending half:
        `closed` follows, and bytes that are still unread are dropped. Over TCP the end shows within
        a second if the peer's last bytes fit into the receive buffer; otherwise when something is
        written to the peer, or by keep-alive.
        """

    def resume_reading(self) -> None:
        """Read again."""


@runtime_checkable
class PromptStream(Stream, Protocol):
    """A stream whose `write` may wait for the end of the loop's turn, where others send at once."""

    def write_now(self, data: bytes) -> None:
        """Do what `write` does, but at once: the peer can work on it while the turn goes on.

        Dearer than `write` for a broker, whose peers are better served by more at a time.
        """


OnStream: TypeAlias = Callable[[Any], object]
"""Gets each new `Stream`, and must `start` it before it returns."""


class Listener(Protocol):
    """A place where connections arrive."""

    @property
    def address(self) -> Address:
        """Where it really listens: with the port that port 0 turned into."""

    def close(self) -> None:
        """Take no more connections; those that stand are left alone."""


class Network(Protocol):
    """Takes the place of TCP on an event loop."""

    async def listen(self, address: HostAddress, on_stream: OnStream) -> Listener:
        """Listen; each connection is handed to `on_stream`. Raises `TransportError`."""

    async def dial(self, address: HostAddress, on_stream: OnStream) -> None:
        """Connect, and hand the connection to `on_stream`. Raises `TransportError`."""
