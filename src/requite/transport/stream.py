"""A connection on asyncio, for TCP and Unix sockets; works alike on uvloop.

Reads go into one buffer per event loop: asyncio's own streams take a fresh 256 KiB for each read,
8.5 us and two page faults where this costs 0.8. Sharing it is safe because a loop calls
`get_buffer` and `buffer_updated` back to back, and the bytes are copied out first thing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from requite.transport.address import Address
from requite.transport.base import HUNG_UP_UNREAD, OnStream, Owner
from requite.transport.sockets import READ_SIZE, WRITE_HIGH, WRITE_LOW, has_hung_up, name_of

# How often a connection that is not read from is checked for the peer's FIN or RST: no event loop
# reports them by itself. Lazy clients give up after 2.5 s, and reconnect. A FIN waits behind the
# bytes that do not fit into the receive buffer: with a full one, only an RST is seen, which the
# system of a peer that has closed sends when it gets a reply.
_LOOK_EVERY_S: Final = 1.0

_read_buffers: WeakKeyDictionary[asyncio.AbstractEventLoop, memoryview] = WeakKeyDictionary()


def _read_buffer(loop: asyncio.AbstractEventLoop) -> memoryview:
    buffer = _read_buffers.get(loop)
    if buffer is None:
        buffer = _read_buffers[loop] = memoryview(bytearray(READ_SIZE))
    return buffer


class SocketStream(asyncio.BufferedProtocol):
    """The `Stream` over an asyncio transport; made by the loop, one per connection.

    `on_stream` is called once the connection stands, and must `start` the stream. `tune` gets the
    transport's socket first. `place` is where it was dialled or accepted.
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
        self._loop = asyncio.get_running_loop()
        self._fd: int | None = None  # for writing, where the loop would put that off
        self._buffer = _read_buffer(self._loop)
        self._look: asyncio.TimerHandle | None = None  # while it is not read from
        self._end = ""  # why it was closed, if there is more to say than that it was

    # --- the loop's side --------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the new connection up and hand it over."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own are no subclass
        self._transport.set_write_buffer_limits(WRITE_HIGH, WRITE_LOW)
        if not isinstance(self._loop, asyncio.BaseEventLoop):  # uvloop
            self._fd = transport.get_extra_info("socket").fileno()
        if self._tune is not None:
            self._tune(transport.get_extra_info("socket"))
        self._on_stream(self)
        self.is_made = True

    def get_buffer(self, sizehint: int) -> memoryview:
        """Lend the loop the place for its next read."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Hand on what was read."""
        self._owner.received(self._link, bytes(self._buffer[:nbytes]))

    def eof_received(self) -> bool:
        """Close at the end of the turn, so that what the last bytes were answered with leaves.

        uvloop reports data and end in one turn, before any flush.
        """
        self._loop.call_soon(self.close)
        return True

    def pause_writing(self) -> None:
        """Pass on that the peer pushes back."""
        self._owner.blocked(self._link)

    def resume_writing(self) -> None:
        """Pass on that the peer takes more."""
        self._owner.writable(self._link)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end, once."""
        if self.is_over:
            return
        self.is_over = True
        self._look_no_more()
        self._owner.closed(self._link, self._end if exc is None else f"the connection broke: {exc}")

    # --- the owner's side -------------------------------------------------------------------------
    @property
    def peer_name(self) -> str:
        """The other end, for people."""
        transport = self._transport
        sock = transport.get_extra_info("socket")
        family = -1 if sock is None else sock.family
        return name_of(transport.get_extra_info("peername"), family, self._place)

    def start(self, owner: Owner, link: object) -> None:
        """Begin to report; the loop reads from the next turn on."""
        self._owner = owner
        self._link = link

    def write(self, data: bytes) -> None:
        """Send, or let the loop hold what the network does not take yet."""
        if not self.is_over and not self._transport.is_closing():
            self._transport.write(data)

    def write_now(self, data: bytes) -> None:
        """Send at once, where uvloop's `write` sends at the end of its turn; see `PromptStream`."""
        transport = self._transport
        if self.is_over or transport.is_closing():
            return
        if self._fd is None or transport.get_write_buffer_size():
            transport.write(data)
        elif rest := self._send(data):
            transport.write(rest)

    def _send(self, data: bytes) -> bytes | memoryview:
        """Send what the network takes, past the loop; return the rest."""
        assert self._fd is not None
        try:
            sent = os.write(self._fd, data)
        except OSError:  # the network takes nothing; or it is broken, and the loop will find out
            return data
        return b"" if sent == len(data) else memoryview(data)[sent:]

    def close(self) -> None:
        """Close when everything written has left."""
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
        """End a stream whose loop is just making it, after that: uvloop is not ready for it."""
        self._loop.call_soon(self._loop.call_soon, method)

    def pause_reading(self) -> None:
        """Stop reading; the connection is closed within a second after the peer closes it."""
        if self._look is None and not self.is_over and not self._transport.is_closing():
            self._transport.pause_reading()
            self._look = self._loop.call_later(_LOOK_EVERY_S, self._look_for_end)

    def resume_reading(self) -> None:
        """Read again."""
        if self._look_no_more() and not self.is_over and not self._transport.is_closing():
            self._transport.resume_reading()

    def _look_no_more(self) -> bool:
        """Return whether somebody did."""
        look, self._look = self._look, None
        if look is not None:
            look.cancel()
        return look is not None

    def _look_for_end(self) -> None:
        """Close the connection if the peer has closed it, without reading what it sent last.

        The kernel can hold megabytes of that: reading them at once would stall the loop, and get
        past the limit for which the connection is not read from.
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
    """Makes the one stream of a connection that is being dialled, as the loop's protocol factory.

    uvloop has two ways to lose a connection while it is being made. Cancelled after
    `connection_made`, it closes the transport and never tells the protocol. And given a connected
    socket, it takes hold of that a turn after `connection_made`; if the connection ends before, it
    closes the descriptor behind the socket's back, which later closes it once more, whoever it
    belongs to by then. So no socket is passed to it, and cancelling is done with care.
    """

    def __init__(self, make_stream: Callable[[], SocketStream]) -> None:
        self._make_stream = make_stream
        self._stream: SocketStream | None = None

    def __call__(self) -> SocketStream:
        """Make the stream."""
        self._stream = self._make_stream()
        return self._stream

    async def by(self, making: Coroutine[Any, Any, Any]) -> None:
        """Let the loop connect; where that is cancelled, the stream's owner is told of its end."""
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
