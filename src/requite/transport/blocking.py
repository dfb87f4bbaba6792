"""Streams over non-blocking sockets without an event loop, for whoever polls them itself.

`BlockingStream` sends at once, in the caller's thread, what the kernel takes. `Attempt` is a
connection on its way. Both tell through `Poll` what they wait for, and are told through `ready`.
Nothing here blocks, but for the resolution of a host name.
"""

from __future__ import annotations

import os
import select
import socket
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from requite.errors import TransportError
from requite.transport.address import Address, InprocAddress, IpcAddress, TcpAddress
from requite.transport.base import Owner
from requite.transport.sockets import (
    READ_SIZE,
    WRITE_HIGH,
    WRITE_LOW,
    AddressInfo,
    cannot,
    connect_ipc,
    tune_tcp,
    why,
)

READ: Final = select.POLLIN
WRITE: Final = select.POLLOUT


class Pollable(Protocol):
    """What a `Poll` calls when its socket is ready; `events` may hold errors as well."""

    def ready(self, events: int) -> None:
        """Do what can be done."""

    def discard(self) -> None:
        """Close the file descriptor and forget it, saying nothing to anybody."""


class Poll(Protocol):
    """What the owner of the poll offers to the sockets in it."""

    def watch(self, fd: int, what: Pollable, events: int) -> None:
        """Wait for these events at `fd` from now on (0: for errors alone)."""

    def forget(self, fd: int) -> None:
        """Wait for nothing at `fd` any more."""

    def later(self, act: Callable[[], object]) -> None:
        """Do something as soon as nothing else is being done."""


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
    )
    _owner: Owner
    _link: object

    def __init__(self, sock: socket.socket, peer_name: str, poll: Poll) -> None:
        self.peer_name = peer_name
        self._sock = sock
        self._fd = sock.fileno()
        self._poll = poll
        self._unsent: deque[bytes | memoryview] = deque()
        self._size = 0  # of what is unsent, in bytes
        self._pushing_back = False
        self._reading = True
        self._closing = False
        self._broken = False

    # --- the owner's side -------------------------------------------------------------------------
    def start(self, owner: Owner, link: object) -> None:
        """Begin to report."""
        self._owner = owner
        self._link = link
        self._watch()

    def write(self, data: bytes) -> None:
        """Send what the kernel takes now, and keep the rest."""
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
            self._end(f"the connection broke: {why(error)}")
            return
        if sent < len(data):
            self._keep(memoryview(data)[sent:])
            self._watch()

    def close(self) -> None:
        """Close when everything written has left."""
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
        """Close the file descriptor alone; see `Pollable`."""
        self._broken = True
        self._sock.close()

    def pause_reading(self) -> None:
        """Read no more."""
        self._reading = False
        self._watch()

    def resume_reading(self) -> None:
        """Read again."""
        self._reading = True
        self._watch()

    # --- the poll's side --------------------------------------------------------------------------
    def ready(self, events: int) -> None:
        """Read or write what can be."""
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
            self._end(f"the connection broke: {why(error)}")
            return
        if not chunk:
            self._end("")
        elif not self._closing:
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
            self._end(f"the connection broke: {why(error)}")
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


class Attempt:
    """A connection on its way to an address: to each of the addresses its name stands for, in turn.

    `done` gets the connected socket, `failed` the error; both are called from `Poll.later`.
    """

    def __init__(
        self,
        address: Address,
        poll: Poll,
        done: Callable[[Address, socket.socket], object],
        failed: Callable[[Address, TransportError], object],
    ) -> None:
        self.address = address
        self._poll = poll
        self._done = done
        self._failed = failed
        self._is_over = False
        self._sock: socket.socket | None = None
        self._places: deque[AddressInfo] = deque()
        try:
            self._begin(address)
        except OSError as error:
            self._fail(error if isinstance(error, TransportError) else self._error(why(error)))
        except UnicodeError as error:  # out of the resolver, which encodes the name by IDNA
            self._fail(self._error(f"the name is no host name: {error}"))

    def ready(self, _events: int) -> None:
        """Look whether the connection stands."""
        sock = self._sock
        assert sock is not None
        self._poll.forget(sock.fileno())
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            sock.close()
            self._next(OSError(code, os.strerror(code)))
        else:
            self._succeed(sock)

    def discard(self) -> None:
        """Close the file descriptor alone; see `Pollable`."""
        if self._sock is not None:
            self._sock.close()

    def give_up(self, reason: str) -> None:
        """End the attempt, unless it has ended already."""
        if self._is_over:
            return
        if self._sock is not None:
            self._poll.forget(self._sock.fileno())
            self._sock.close()
        self._fail(self._error(reason))

    def _begin(self, address: Address) -> None:
        match address:
            case IpcAddress():
                self._succeed(connect_ipc(address))
            case TcpAddress():
                infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
                self._places.extend(infos)
                self._next(OSError("the name stands for no address"))
            case InprocAddress():
                raise self._error("inproc works between the ends of one event loop only")

    def _next(self, error: OSError) -> None:
        """Try the next address, having failed with `error` at the last."""
        while self._places:
            family, kind, protocol, _, place = self._places.popleft()
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            try:
                sock.connect(place)
            except BlockingIOError:
                self._sock = sock
                self._poll.watch(sock.fileno(), self, WRITE)
                return
            except OSError as refused:
                sock.close()
                error = refused
            else:
                self._succeed(sock)
                return
        self._fail(self._error(why(error)))

    def _succeed(self, sock: socket.socket) -> None:
        if isinstance(self.address, TcpAddress):
            tune_tcp(sock)
        self._is_over = True
        self._poll.later(lambda: self._done(self.address, sock))

    def _fail(self, error: TransportError) -> None:
        self._is_over = True
        self._poll.later(lambda: self._failed(self.address, error))

    def _error(self, reason: str) -> TransportError:
        return cannot("connect to", self.address, reason)
