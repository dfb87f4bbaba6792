"""The `Stream` over a connected socket, without an event loop."""

from __future__ import annotations

import socket
from collections import deque

from requite.principal import Credential
from requite.transport.base import Owner
from requite.transport.blocking.poll import READ, WRITE, Poll
from requite.transport.sockets import READ_SIZE, WRITE_HIGH, WRITE_LOW, has_unread, why


class BlockingStream:
    """The `Stream` over a connected non-blocking socket."""

    __slots__ = (
        "_broken",
        "_closing",
        "_fd",
        "_link",
        "_owner",
        "_poll",
        "_pushing_back",
        "_reading",
        "_size",
        "_sock",
        "_unsent",
        "peer_name",
        "read_was_full",
    )
    peer_credential: Credential | None = None  # it is used to dial only
    _owner: Owner
    _link: object

    def __init__(self, sock: socket.socket, peer_name: str, poll: Poll) -> None:
        self.peer_name = peer_name
        self._sock = sock
        self._fd = sock.fileno()
        self._poll = poll
        self._unsent: deque[bytes | memoryview] = deque()
        self._size = 0  # of the unsent data, in bytes
        self._pushing_back = False
        self._reading = True
        self._closing = False
        self._broken = False
        self.read_was_full = False  # see `Stream`

    # --- the owner's side -------------------------------------------------------------------------
    def start(self, owner: Owner, link: object) -> None:
        """Start reporting to `owner`."""
        self._owner = owner
        self._link = link
        self._watch()

    def write(self, data: bytes) -> None:
        """Send what the kernel accepts, and buffer the rest."""
        if self._closing or self._broken or not data:
            return
        if self._unsent:
            self._keep(data)
            return
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._end(f"the connection was lost: {why(error)}")
            return
        if sent < len(data):
            self._keep(memoryview(data)[sent:])
            self._watch()

    def close(self) -> None:
        """Close after all written data have been sent."""
        if self._closing or self._broken:
            return
        self._closing = True
        if self._unsent:
            self._watch()
        else:
            self._end("")

    def abort(self) -> None:
        """Close at once."""
        if not self._broken:
            self._end("")

    def discard(self) -> None:
        """Close only the file descriptor; see `Pollable`."""
        self._broken = True
        self._sock.close()

    @property
    def has_unread(self) -> bool:
        """Whether bytes have arrived that were not read; True if that is unknown."""
        return self._broken or has_unread(self._sock.fileno())

    def pause_reading(self) -> None:
        """Stop reading."""
        self._reading = False
        self._watch()

    def resume_reading(self) -> None:
        """Resume reading."""
        self._reading = True
        self._watch()

    # --- the poll's side --------------------------------------------------------------------------
    def ready(self, events: int) -> None:
        """Read and write as far as possible."""
        if events & WRITE and self._unsent:
            self._send_rest()
        if events & ~WRITE and not self._broken:
            self._read()

    def _read(self) -> None:
        try:
            chunk = self._sock.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(f"the connection was lost: {why(error)}")
            return
        if not chunk:
            self._end("")
        elif not self._closing:
            self.read_was_full = len(chunk) == READ_SIZE
            self._owner.received(self._link, chunk)

    def _send_rest(self) -> None:
        unsent = self._unsent
        try:
            while unsent:
                data = unsent[0]
                sent = self._sock.send(data)
                self._size -= sent
                if sent < len(data):
                    unsent[0] = memoryview(data)[sent:]
                    break
                unsent.popleft()
        except BlockingIOError:
            pass
        except OSError as error:
            self._end(f"the connection was lost: {why(error)}")
            return
        self._sent_some()

    def _sent_some(self) -> None:
        if not self._unsent:
            if self._closing:
                self._end("")
                return
            self._watch()
        if self._pushing_back and self._size <= WRITE_LOW:
            self._pushing_back = False
            self._owner.writable(self._link)

    # --- inside -----------------------------------------------------------------------------------
    def _keep(self, data: bytes | memoryview) -> None:
        self._unsent.append(data)
        self._size += len(data)
        if self._size > WRITE_HIGH and not self._pushing_back:
            self._pushing_back = True
            self._owner.blocked(self._link)

    def _watch(self) -> None:
        if not self._broken:
            events = READ if self._reading and not self._closing else 0
            self._poll.watch(self._fd, self, events | (WRITE if self._unsent else 0))

    def _end(self, reason: str) -> None:
        self._broken = True
        self._unsent.clear()
        self._poll.forget(self._fd)
        self._sock.close()
        self._poll.later(lambda: self._owner.closed(self._link, reason))
