"""A connection on asyncio or uvloop, over TCP or a Unix socket.

All connections of an event loop share one read buffer. asyncio's streams allocate 256 KiB for each
read, which costs 8.5 us and two page faults, against 0.8 us here. Sharing is safe because a loop
calls `buffer_updated` right after `get_buffer`, which copies the bytes first.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from requite.principal import Credential
from requite.transport.address import Address
from requite.transport.base import HUNG_UP_UNREAD, OnStream, Owner
from requite.transport.sockets import (
    READ_SIZE,
    WRITE_HIGH,
    WRITE_LOW,
    has_hung_up,
    has_unread,
    local_credential,
    name_of,
)

# The interval for checking paused connections for the peer's FIN or RST, which event loops do not
# report. (Lazy clients time out after 2.5 s, and reconnect.) A FIN waits behind the bytes that do
# not fit into the receive buffer. If that is full, only an RST is detected, which the system of a
# closed peer sends when it receives a reply.
_LOOK_EVERY_S: Final = 1.0

_read_buffers: WeakKeyDictionary[asyncio.AbstractEventLoop, memoryview] = WeakKeyDictionary()


def _read_buffer(loop: asyncio.AbstractEventLoop) -> memoryview:
    buffer = _read_buffers.get(loop)
    if buffer is None:
        buffer = _read_buffers[loop] = memoryview(bytearray(READ_SIZE))
    return buffer


class SocketStream(asyncio.BufferedProtocol):
    """The `Stream` over an asyncio transport; the loop makes one per connection.

    `on_stream` is called when the connection is established, and must `start` the stream. Before
    that, `tune` is called with the transport's socket. `place` is the dialled or listening address.
    """

    __slots__ = (
        "_buffer",
        "_end",
        "_fd",
        "_link",
        "_look",
        "_loop",
        "_on_stream",
        "_owner",
        "_place",
        "_transport",
        "_tune",
        "is_made",
        "is_over",
        "read_was_full",
    )
    _transport: asyncio.Transport
    _owner: Owner
    _link: object

    def __init__(
        self,
        on_stream: OnStream,
        place: Address,
        tune: Callable[[Any], None] | None = None,
    ) -> None:
        self._on_stream = on_stream
        self._place = place
        self._tune = tune
        self.is_made = False
        self.is_over = False
        self.read_was_full = False  # see `Stream`
        self._loop = asyncio.get_running_loop()
        self._fd: int | None = None  # for writes that the loop would defer
        self._buffer = _read_buffer(self._loop)
        self._look: asyncio.TimerHandle | None = None  # while reading is paused
        self._end = ""  # the reason of the close, if there is one

    # --- the loop's side --------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Configure the new connection, and pass it to `on_stream`."""
        self._transport = cast(asyncio.Transport, transport)  # those of uvloop are no subclass
        self._transport.set_write_buffer_limits(WRITE_HIGH, WRITE_LOW)
        if not isinstance(self._loop, asyncio.BaseEventLoop):  # uvloop
            self._fd = transport.get_extra_info("socket").fileno()
        if self._tune is not None:
            self._tune(transport.get_extra_info("socket"))
        self._on_stream(self)
        self.is_made = True

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next read."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Deliver the received bytes."""
        self.read_was_full = nbytes == READ_SIZE
        self._owner.received(self._link, bytes(self._buffer[:nbytes]))

    def eof_received(self) -> bool:
        """Close at the end of the turn, after the replies to the last bytes have been sent.

        uvloop reports data and end in one turn, before any flush.
        """
        self._loop.call_soon(self.close)
        return True

    def pause_writing(self) -> None:
        """Report back-pressure."""
        self._owner.blocked(self._link)

    def resume_writing(self) -> None:
        """Report the end of back-pressure."""
        self._owner.writable(self._link)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end, once."""
        if self.is_over:
            return
        self.is_over = True
        self._stop_looking()
        # Without this reference cycle, a dropped message is freed at once.
        link, self._link = self._link, None
        self._owner.closed(link, self._end if exc is None else f"the connection was lost: {exc}")

    # --- the owner's side -------------------------------------------------------------------------
    @property
    def peer_name(self) -> str:
        """The address of the peer, for messages."""
        transport = self._transport
        sock = transport.get_extra_info("socket")
        family = -1 if sock is None else sock.family
        return name_of(transport.get_extra_info("peername"), family, self._place)

    @property
    def peer_credential(self) -> Credential | None:
        """The user id of the peer of a Unix socket."""
        sock = self._transport.get_extra_info("socket")
        return None if sock is None else local_credential(sock)

    @property
    def has_unread(self) -> bool:
        """Whether bytes have arrived that were not read; True if that is unknown."""
        if self.is_over or self._transport.is_closing():
            return True
        return has_unread(self._transport.get_extra_info("socket").fileno())

    @property
    def unsent_size(self) -> int:
        """Written bytes that the network has not accepted yet."""
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what asyncio knows about the connection, such as its `socket`."""
        return self._transport.get_extra_info(name, default)

    def start(self, owner: Owner, link: object) -> None:
        """Start reporting to `owner`; the loop reads from the next turn."""
        self._owner = owner
        self._link = link

    def write(self, data: bytes) -> None:
        """Send, and let the loop buffer what the network does not accept yet."""
        if not self.is_over and not self._transport.is_closing():
            self._transport.write(data)

    def write_now(self, data: bytes) -> None:
        """Send at once; `write` of uvloop sends at the end of the turn. See `PromptStream`."""
        transport = self._transport
        if self.is_over or transport.is_closing():
            return
        if self._fd is None or transport.get_write_buffer_size():
            transport.write(data)
        elif rest := self._send(data):
            transport.write(rest)

    def _send(self, data: bytes) -> bytes | memoryview:
        """Send to the socket directly; return the bytes that it does not accept."""
        assert self._fd is not None
        try:
            sent = os.write(self._fd, data)
        except OSError:  # the buffer is full, or the connection is broken, which the loop reports
            return data
        return b"" if sent == len(data) else memoryview(data)[sent:]

    def close(self) -> None:
        """Close after all written data have been sent."""
        if self.is_made:
            self._transport.close()
        else:
            self._soon(self.close)

    def abort(self) -> None:
        """Close at once."""
        if self.is_made:
            self._transport.abort()
        else:
            self._soon(self.abort)

    def _soon(self, method: Callable[[], None]) -> None:
        """End a stream in the next iteration if it is still being made: uvloop requires that."""
        self._loop.call_soon(self._loop.call_soon, method)

    def pause_reading(self) -> None:
        """Stop reading; the connection is closed within a second after the peer closes it."""
        if self._look is None and not self.is_over and not self._transport.is_closing():
            self._transport.pause_reading()
            self._look = self._loop.call_later(_LOOK_EVERY_S, self._look_for_end)

    def resume_reading(self) -> None:
        """Resume reading."""
        if self._stop_looking() and not self.is_over and not self._transport.is_closing():
            self._transport.resume_reading()

    def _stop_looking(self) -> bool:
        """Stop checking; return whether there was a check."""
        look, self._look = self._look, None
        if look is not None:
            look.cancel()
        return look is not None

    def _look_for_end(self) -> None:
        """Close the connection if the peer has closed it, without reading what it sent last.

        The kernel may hold megabytes of unread data: reading them at once would stall the loop, and
        exceed the limit because of which reading is paused.
        """
        if self._transport.is_closing():
            return
        if has_hung_up(self._transport.get_extra_info("socket").fileno()):
            self._look = None
            self._end = HUNG_UP_UNREAD
            self._transport.abort()
        else:
            self._look = self._loop.call_later(_LOOK_EVERY_S, self._look_for_end)


class Dialled:
    """Makes the stream of a connection that is being dialled, as the loop's protocol factory.

    uvloop has two faults here. If it is cancelled after `connection_made`, it closes the transport
    and never calls `connection_lost`. If it is given a connected socket, it takes ownership a turn
    after `connection_made`; if the connection ends before, it closes the descriptor, and the socket
    object closes the same number again, which may belong to another file by then. So no socket is
    passed to it, and cancellation is handled here.
    """

    def __init__(self, make_stream: Callable[[], SocketStream]) -> None:
        self._make_stream = make_stream
        self._stream: SocketStream | None = None

    def __call__(self) -> SocketStream:
        """Return the stream."""
        self._stream = self._make_stream()
        return self._stream

    async def by(self, making: Coroutine[Any, Any, Any]) -> None:
        """Await the connection. If that is cancelled, the stream's owner gets `closed`."""
        task = asyncio.create_task(making)
        try:
            await asyncio.shield(task)
        except BaseException:
            if not self._is_made():
                task.cancel()
            await asyncio.wait([task])
            if self._is_made() and (task.cancelled() or task.exception() is not None):
                assert self._stream is not None
                self._stream.connection_lost(None)
            raise

    def _is_made(self) -> bool:
        return self._stream is not None and self._stream.is_made
