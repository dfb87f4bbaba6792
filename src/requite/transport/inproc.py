"""Connections within one event loop, without system calls.

As over a socket, the peer receives data in a later loop iteration, never during the write. An end
that pauses reading causes back-pressure.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import count
from weakref import WeakKeyDictionary

from requite.principal import Credential
from requite.transport.address import InprocAddress
from requite.transport.base import HUNG_UP_UNREAD, OnStream, Owner
from requite.transport.sockets import WRITE_HIGH, WRITE_LOW, cannot

_Loop = asyncio.AbstractEventLoop
_listeners: WeakKeyDictionary[_Loop, dict[str, InprocListener]] = WeakKeyDictionary()
_free_names = count(1)


class InprocStream:
    """One end of a pair; its unread data are buffered here, on the reader's side."""

    __slots__ = (
        "_ended",
        "_finished",
        "_inbox",
        "_link",
        "_loop",
        "_other",
        "_owner",
        "_paused",
        "_pushing_back",
        "_scheduled",
        "_size",
        "peer_name",
    )
    peer_credential: Credential | None = None
    _other: InprocStream
    _owner: Owner
    _link: object

    def __init__(self, loop: _Loop, peer_name: str) -> None:
        self.peer_name = peer_name
        self._loop = loop
        self._inbox: deque[bytes] = deque()
        self._size = 0  # of the inbox, in bytes
        self._scheduled = False
        self._paused = False
        self._pushing_back = False  # the inbox is full, and the other end is blocked
        self._finished = False  # no more data follow those in the inbox
        self._ended = False  # `closed` was reported, or is scheduled

    def start(self, owner: Owner, link: object) -> None:
        """Start reading and report to `owner`."""
        self._owner = owner
        self._link = link

    @property
    def has_unread(self) -> bool:
        """Whether bytes have arrived that were not read; True if that is unknown."""
        return bool(self._inbox)

    @property
    def read_was_full(self) -> bool:
        """Whether the inbox has more than was read; see `Stream`."""
        return bool(self._inbox)

    def write(self, data: bytes) -> None:
        """Put `data` into the other end's inbox."""
        other = self._other
        if other._finished or self._ended:
            return
        other._inbox.append(data)
        other._size += len(data)
        other._schedule()
        if other._size > WRITE_HIGH and not other._pushing_back:
            other._pushing_back = True
            self._owner.blocked(self._link)

    def close(self) -> None:
        """Close both ends after the other end has read everything."""
        self._other._finished = True
        self._inbox.clear()
        self._other._schedule()

    def abort(self) -> None:
        """Close both ends at once."""
        self._other._inbox.clear()
        self._end("")
        self._other._end("the connection was lost: the other end was aborted")

    def pause_reading(self) -> None:
        """Stop reading: data stay in the inbox, and are dropped when the other end closes."""
        self._paused = True

    def resume_reading(self) -> None:
        """Resume reading from the inbox."""
        self._paused = False
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Deliver the data that were in the inbox before this turn."""
        self._scheduled = False
        for _ in range(len(self._inbox)):
            if self._paused or not self._inbox:
                break
            data = self._inbox.popleft()
            self._size -= len(data)
            if data and not self._ended:
                self._owner.received(self._link, data)
        self._after_reading()

    def _after_reading(self) -> None:
        if self._pushing_back and self._size <= WRITE_LOW:
            self._pushing_back = False
            if not self._other._ended:
                self._other._owner.writable(self._other._link)
        if self._finished and (self._paused or not self._inbox):
            self._inbox.clear()
            self._end(HUNG_UP_UNREAD if self._paused else "")
            self._other._end("")
        elif self._inbox and not self._paused:
            self._schedule()

    def _end(self, reason: str) -> None:
        if not self._ended:
            self._ended = self._finished = True
            self._loop.call_soon(self._tell_end, reason)

    def _tell_end(self, reason: str) -> None:
        self._owner.closed(self._link, reason)  # by now there is one, in any case


class InprocListener:
    """A name that can be dialled in this loop until it is closed."""

    def __init__(self, address: InprocAddress, on_stream: OnStream, forget: Callable[[], object]):
        self.address = address
        self.on_stream = on_stream
        self._forget = forget

    def close(self) -> None:
        """Release the name; existing connections stay open."""
        self._forget()


async def listen(address: InprocAddress, on_stream: OnStream) -> InprocListener:
    """Listen at a name; `*` means a free one. Raises `TransportError` if it is in use."""
    names = _listeners.setdefault(asyncio.get_running_loop(), {})
    if address.name == "*":
        address = InprocAddress(f"anonymous-{next(_free_names)}")
    if address.name in names:
        raise cannot("listen at", address, "the name is in use in this event loop")
    listener = InprocListener(address, on_stream, lambda: names.pop(address.name, None))
    names[address.name] = listener
    return listener


def forget(loop: _Loop) -> None:
    """Forget the names of an event loop that is over."""
    _listeners.pop(loop, None)


async def dial(address: InprocAddress, on_stream: OnStream) -> None:
    """Connect, and pass this end to `on_stream`. Raises `TransportError`."""
    loop = asyncio.get_running_loop()
    listener = _listeners.get(loop, {}).get(address.name)
    if listener is None:
        raise cannot("connect to", address, "no listener has this name in this event loop")
    ours, theirs = InprocStream(loop, str(address)), InprocStream(loop, str(address))
    ours._other, theirs._other = theirs, ours
    listener.on_stream(theirs)
    on_stream(ours)
