"""Listen at an address without an event loop."""

from __future__ import annotations

import logging
import os
import socket
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from requite.errors import TransportError
from requite.transport.address import Address, HostAddress, IpcAddress
from requite.transport.base import OnStream
from requite.transport.blocking.poll import READ, Poll
from requite.transport.blocking.stream import BlockingStream
from requite.transport.descriptors import EXHAUSTED, exhaustion
from requite.transport.sockets import (
    bind_ipc,
    bind_tcp,
    bind_tcp_wildcard,
    cannot,
    name_of,
    remove_socket_file,
    socket_file_id,
    tune_tcp,
    why,
)
from requite.transport.tls import TlsSettings
from requite.transport.tls_listener import TlsListener

_PER_TURN: Final = 64
_logger: Final = logging.getLogger("requite.transport")


class BlockingListener:
    """The `Listener` over non-blocking sockets, which it registers with a poll.

    Each connection becomes a stream, which is passed to `on_stream` from `ready`, never from the
    constructor; over TLS before its handshake, whose time the stream's owner limits. `on_stream`
    must `start` it before it returns. Without polling, connections and their handshakes wait in the
    system's queue.

    Raises `TransportError` if the address cannot be bound, and `ConfigurationError` for files of
    `tls` that cannot be used or, at a secure address, are missing.
    """

    def __init__(
        self, address: Address, poll: Poll, on_stream: OnStream, tls: TlsSettings | None = None
    ) -> None:
        if isinstance(address, HostAddress) and address.is_secure:
            on_stream = _accept_over_tls(on_stream, poll, tls or TlsSettings())
        try:
            self._acceptors = [_Acceptor(sock, poll, on_stream) for sock in _bind(address)]
        except TransportError:  # an OSError as well, and says it all
            raise
        except OSError as error:
            raise cannot("listen at", address, why(error)) from error
        except UnicodeError as error:  # out of the resolver, which encodes the name by IDNA
            raise cannot("listen at", address, f"not a valid host name: {error}") from error
        self.address = address
        if isinstance(address, HostAddress):
            self.address = replace(address, port=self._acceptors[0].port)
        self._file_id = socket_file_id(address.path) if isinstance(address, IpcAddress) else None
        for acceptor in self._acceptors:
            acceptor.open(self.address)

    def close(self) -> None:
        """Accept no more connections; existing ones stay open."""
        for acceptor in self._acceptors:
            acceptor.close()
        if isinstance(self.address, IpcAddress) and self._file_id is not None:
            remove_socket_file(self.address.path, self._file_id)
            self._file_id = None


class _Acceptor:
    """A listening socket in the poll, with a spare descriptor for when all others are in use."""

    _place: Address

    def __init__(self, sock: socket.socket, poll: Poll, on_stream: OnStream) -> None:
        self._sock = sock
        self._poll = poll
        self._on_stream = on_stream
        self._spare = -1
        self._is_short = False  # of descriptors; a warning was logged
        sock.setblocking(False)

    @property
    def port(self) -> int:
        """The port of a host's socket."""
        port: int = self._sock.getsockname()[1]
        return port

    def open(self, place: Address) -> None:
        """Accept connections. `place` names the socket in messages."""
        self._place = place
        self._keep_spare()
        self._poll.watch(self._sock.fileno(), self, READ)

    def ready(self, _events: int) -> None:
        """Accept waiting connections, a limited number per call."""
        for _ in range(_PER_TURN):
            try:
                sock, sockaddr = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in EXHAUSTED:  # a waiting connection has ended
                    continue
                self._turn_away(error)
                return
            self._is_short = False
            self._adopt(sock, sockaddr)

    def close(self) -> None:
        """Accept no more connections."""
        if self._sock.fileno() >= 0:
            self._poll.forget(self._sock.fileno())
            self.discard()

    def discard(self) -> None:
        """Close only the file descriptors; see `Pollable`."""
        self._sock.close()
        self._drop_spare()

    def _adopt(self, sock: socket.socket, sockaddr: Any) -> None:
        sock.setblocking(False)
        if isinstance(self._place, HostAddress):
            try:
                tune_tcp(sock)
            except OSError:  # on some systems: the peer has closed already
                sock.close()
                return
        name = name_of(sockaddr, sock.family, self._place)
        self._on_stream(BlockingStream(sock, name, self._poll))

    def _turn_away(self, error: OSError) -> None:
        """Accept a connection with the spare descriptor, and close it. If it stayed in the queue,
        the poll would return at once each time."""
        if not self._is_short:
            self._is_short = True
            told = exhaustion(error)
            _logger.warning("%s: refusing connections: %s", self._place, told)
        self._drop_spare()
        with suppress(OSError):
            self._sock.accept()[0].close()
        self._keep_spare()

    def _keep_spare(self) -> None:
        with suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY)

    def _drop_spare(self) -> None:
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1


def _bind(address: Address) -> list[socket.socket]:
    match address:
        case HostAddress(is_wildcard=True):
            return bind_tcp_wildcard(address.port)
        case HostAddress():
            infos = socket.getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            return bind_tcp(infos, address.port)
        case IpcAddress():
            return [bind_ipc(address)]
        case _:
            reason = "inproc connects only objects of one event loop"
            raise cannot("listen at", address, reason)


def _accept_over_tls(on_stream: OnStream, poll: Poll, settings: TlsSettings) -> OnStream:
    listener = TlsListener(settings, poll.later)
    return lambda below: on_stream(listener.stream(below))
