"""Create and configure sockets, for the asyncio transports and the blocking one."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import stat
import struct
import termios
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Protocol

from requite.errors import TransportError
from requite.principal import Credential
from requite.transport.address import Address, HostAddress, IpcAddress

BACKLOG: Final = 1024
READ_SIZE: Final = 64 << 10
# High-water mark and low-water mark of a peer's output buffer, in bytes.
WRITE_HIGH: Final = 256 << 10
WRITE_LOW: Final = 64 << 10
# Heartbeats detect a dead peer within seconds. Keep-alive is for idle clients whose connection a
# router has forgotten: the first probe follows after a minute, the end two minutes later.
_INT: Final = struct.Struct("i")
_PEER: Final = struct.Struct("3i")  # unix(7), SO_PEERCRED: process, user and group
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 30), ("TCP_KEEPCNT", 4))
# Errors for an address, or an address family, that the system does not have.
_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)

# Not every system reports that the peer has closed while bytes are unread.
_HUNG_UP: Final[int] = getattr(select, "POLLRDHUP", 0)

AddressInfo = tuple[int, int, int, str, Any]


class HasOptions(Protocol):
    """The parts that `socket.socket` and the substitutes of event loops share."""

    @property
    def family(self) -> int: ...
    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...
    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


def tune_tcp(sock: HasOptions) -> None:
    """Disable Nagle's algorithm, and enable keep-alive probes."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):  # systems differ in the options that they have
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def has_hung_up(fd: int) -> bool:
    """Whether the peer has closed the connection, or it is broken. Reads nothing."""
    poll = select.poll()
    poll.register(fd, _HUNG_UP)  # errors are always reported
    return bool(poll.poll(0))


def has_unread(fd: int) -> bool:
    """Whether a read would return something at once: bytes, or the end. Reads nothing."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def queued_size(fd: int) -> int:
    """Return how many sent bytes the peer's system has not accepted; 0 where that is unknown."""
    try:
        found = fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(_INT.size))
    except OSError:
        return 0
    [size] = _INT.unpack(found)
    return int(size)


def local_credential(sock: HasOptions) -> Credential | None:
    """Return the user id of the peer of a Unix socket, when it connected; None for other sockets,
    and on systems other than Linux."""
    if sock.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return None
    found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    _process, user, _group = _PEER.unpack(found)
    return Credential("local", (str(user),))


def why(error: OSError) -> str:
    """Return the system's text for an `OSError`, if there is one.

    asyncio adds numbers and tuples to the text, and errors of a resolver have other numbers.
    """
    if error.errno is not None and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno).lower()
    return (error.strerror or str(error) or type(error).__name__).lower()


def cannot(what: str, address: Address, reason: str) -> TransportError:
    """Return the error for an address that cannot be dialled or listened at; nothing was sent."""
    return TransportError(f"cannot {what} {address}: {reason}", may_have_executed=False)


# --- listening ------------------------------------------------------------------------------------
def bind_tcp_wildcard(port: int) -> list[socket.socket]:
    """Listen at all addresses, with one socket for both families if the system supports it."""
    if socket.has_dualstack_ipv6():
        family, dual = socket.AF_INET6, True
    else:
        family, dual = socket.AF_INET, False
    return [socket.create_server(("", port), family=family, dualstack_ipv6=dual, backlog=BACKLOG)]


def bind_tcp(infos: Iterable[AddressInfo], port: int) -> list[socket.socket]:
    """Listen at each address of a host name, at one port (0: the free port of the first address).

    An address that the machine does not have is skipped if another one works.
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

    The file of a process that died is detected by dialling it, and removed.
    """
    _remove_stale(address)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    umask = os.umask(0o177)  # set during creation: a later chmod would leave a gap
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
        raise cannot("listen at", address, "the path exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(address.path)
        except ConnectionRefusedError:
            os.unlink(address.path)
        except BlockingIOError:  # its backlog is full, so a process listens
            raise cannot("listen at", address, "another process is listening there") from None
        else:
            raise cannot("listen at", address, "another process is listening there")


def socket_file_id(path: str) -> tuple[int, int]:
    """Return an identifier of a socket file, which differs for a file that replaces it."""
    found = os.lstat(path)
    return found.st_dev, found.st_ino


def remove_socket_file(path: str, made: tuple[int, int]) -> None:
    """Remove a socket file, unless another listener has replaced it or it does not exist."""
    with suppress(FileNotFoundError):
        if socket_file_id(path) == made:
            os.unlink(path)


# --- dialling -------------------------------------------------------------------------------------
def connect_ipc(address: IpcAddress) -> socket.socket:
    """Connect to a Unix socket; the result is immediate.

    If the backlog of the listener is full, a non-blocking connect fails with EAGAIN. Event loops
    take that for "in progress", and would wait forever.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        sock.connect(address.path)
    except BlockingIOError as error:
        sock.close()
        raise cannot(
            "connect to", address, "the listener's backlog of connections is full"
        ) from error
    except OSError:
        sock.close()
        raise
    return sock


def name_of(sockaddr: object, family: int, place: Address) -> str:
    """Return a peer's address as text, in the form of `place`, where it was dialled or accepted. A
    peer without an address (the dialling end of ipc) gets the text of `place`."""
    is_inet = family in (socket.AF_INET, socket.AF_INET6)
    if is_inet and isinstance(sockaddr, tuple) and isinstance(place, HostAddress):
        return str(replace(place, host=sockaddr[0], port=sockaddr[1]))
    return str(place)
