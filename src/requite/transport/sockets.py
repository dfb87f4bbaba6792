"""Sockets as this package wants them, for the asyncio transports and the blocking one alike."""

from __future__ import annotations

import errno
import os
import select
import socket
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Protocol

from requite.errors import TransportError
from requite.transport.address import Address, HostAddress, IpcAddress

BACKLOG: Final = 1024
READ_SIZE: Final = 64 << 10
# Bytes held for a peer before it is said to push back, and down to which they must drain then.
WRITE_HIGH: Final = 256 << 10
WRITE_LOW: Final = 64 << 10
# Heartbeats find a dead peer within seconds where they flow; keep-alive is for idle clients behind
# a network that forgets: the first probe after a minute, the end two minutes later.
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 30), ("TCP_KEEPCNT", 4))
# How a system says that it does not have an address, or the whole family.
_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)

# Whether the other end has closed, though bytes are unread, is not told by every system.
_HUNG_UP: Final[int] = getattr(select, "POLLRDHUP", 0)

AddressInfo = tuple[int, int, int, str, Any]


class HasOptions(Protocol):
    """What both `socket.socket` and the stand-ins of event loops offer."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


def tune_tcp(sock: HasOptions) -> None:
    """Send without Nagle's delay, and let the kernel probe peers that have long been silent."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):  # each system has its own selection
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def has_hung_up(fd: int) -> bool:
    """Whether the other end of a connection has closed it, or it has broken; reads nothing."""
    poll = select.poll()
    poll.register(fd, _HUNG_UP)  # errors are told in any case
    return bool(poll.poll(0))


def why(error: OSError) -> str:
    """Return what an `OSError` says in the system's own plain words, where it has them.

    asyncio puts numbers and tuples into the text; a resolver's errors have numbers of their own.
    """
    if error.errno is not None and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno).lower()
    return (error.strerror or str(error) or type(error).__name__).lower()


def cannot(what: str, address: Address, reason: str) -> TransportError:
    """Make the error of a place that cannot be reached or listened at; nothing was sent there."""
    return TransportError(f"cannot {what} {address}: {reason}", may_have_executed=False)


# --- listening ------------------------------------------------------------------------------------
def bind_tcp_wildcard(port: int) -> list[socket.socket]:
    """Listen at all addresses: one socket for both families where the system has it."""
    if socket.has_dualstack_ipv6():
        family, dual = socket.AF_INET6, True
    else:
        family, dual = socket.AF_INET, False
    return [socket.create_server(("", port), family=family, dualstack_ipv6=dual, backlog=BACKLOG)]


def bind_tcp(infos: Iterable[AddressInfo], port: int) -> list[socket.socket]:
    """Listen at each address a host name stands for, at one port (0: the first one's choice).

    An address that the machine turns out not to have is skipped as long as another one works.
    """
    bound: list[socket.socket] = []
    failure: OSError | None = None
    for family, _, _, _, sockaddr in infos:
        try:
            sock = socket.create_server((sockaddr[0], port), family=family, backlog=BACKLOG)
        except OSError as error:
            failure = error
            if error.errno not in _NOT_HERE:
                break
        else:
            bound.append(sock)
            port = port or sock.getsockname()[1]
    if failure is not None and not (bound and failure.errno in _NOT_HERE):
        for sock in bound:
            sock.close()
        raise failure
    return bound


def bind_ipc(address: IpcAddress) -> socket.socket:
    """Listen at a Unix socket that only its owner may connect to (mode 0600).

    A file left by a process that died is found out by dialling it, and removed.
    """
    _remove_stale(address)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    umask = os.umask(0o177)  # set for the moment of creation: a chmod would come too late
    try:
        sock.bind(address.path)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(umask)
    return sock


def _remove_stale(address: IpcAddress) -> None:
    try:
        mode = os.lstat(address.path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise cannot("listen at", address, "a file that is not a socket is in the way")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(address.path)
        except ConnectionRefusedError:
            os.unlink(address.path)
        except BlockingIOError:  # its backlog is full, so somebody lives there
            raise cannot("listen at", address, "another process listens there") from None
        else:
            raise cannot("listen at", address, "another process listens there")


def socket_file_id(path: str) -> tuple[int, int]:
    """Return what tells the file of a Unix socket from one that is put in its place."""
    found = os.lstat(path)
    return found.st_dev, found.st_ino


def remove_socket_file(path: str, made: tuple[int, int]) -> None:
    """Remove the file unless another listener has put its own in its place, or it is gone."""
    with suppress(FileNotFoundError):
        if socket_file_id(path) == made:
            os.unlink(path)


# --- dialling -------------------------------------------------------------------------------------
def connect_ipc(address: IpcAddress) -> socket.socket:
    """Connect to a Unix socket; the answer is there at once.

    A listener whose backlog is full makes a non-blocking connect fail with EAGAIN, which event
    loops take for "under way" and then wait for ever.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        sock.connect(address.path)
    except BlockingIOError as error:
        sock.close()
        raise cannot("connect to", address, "too many wait to be accepted there") from error
    except OSError:
        sock.close()
        raise
    return sock


def name_of(sockaddr: object, family: int, place: Address) -> str:
    """Return a peer's address as text, after the place that it was reached or accepted at, whose
    name it takes where it has none of its own (the dialling end of ipc)."""
    is_inet = family in (socket.AF_INET, socket.AF_INET6)
    if is_inet and isinstance(sockaddr, tuple) and isinstance(place, HostAddress):
        return str(replace(place, host=sockaddr[0], port=sockaddr[1]))
    return str(place)
