"""Dial an address without an event loop."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from requite.errors import ConfigurationError, TransportError
from requite.transport.address import Address, HostAddress, InprocAddress, IpcAddress
from requite.transport.blocking.poll import WRITE, Poll
from requite.transport.blocking.stream import BlockingStream
from requite.transport.sockets import AddressInfo, cannot, connect_ipc, tune_tcp, why
from requite.transport.tls import TlsSettings
from requite.transport.tls_session import TlsSession
from requite.transport.tls_stream import TlsStream

Done: TypeAlias = Callable[[Address, Any], object]
Failed: TypeAlias = Callable[[Address, TransportError], object]


class Attempt:
    """A connection attempt. It tries the addresses of a host name in turn; over TLS it includes the
    handshake and the check of the server's certificate.

    Either `done` is called with the stream, which it must `start` before it returns, or `failed`
    with the error. That happens once, from `Poll.later` or `ready`, never during a call to the
    attempt. The attempt has no time-out: see `give_up`.
    """

    def __init__(
        self,
        address: Address,
        poll: Poll,
        done: Done,
        failed: Failed,
        tls: TlsSettings | None = None,
    ) -> None:
        self.address = address
        self._poll = poll
        self._done = done
        self._failed = failed
        self._is_over = False
        self._sock: socket.socket | None = None  # while it connects
        self._stream: BlockingStream | TlsStream | None = None  # after that
        self._session: TlsSession | None = None
        self._places: deque[AddressInfo] = deque()
        try:
            self._begin(address, tls or TlsSettings())
        except OSError as error:
            self._fail(error if isinstance(error, TransportError) else self._error(why(error)))
        except UnicodeError as error:  # out of the resolver, which encodes the name by IDNA
            self._fail(self._error(f"not a valid host name: {error}"))
        except ConfigurationError as error:  # files of TLS change while a program runs
            self._fail(self._error(str(error)))

    def ready(self, _events: int) -> None:
        """Check whether the connection is established."""
        sock, self._sock = self._sock, None
        assert sock is not None
        self._poll.forget(sock.fileno())
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            sock.close()
            self._next(OSError(code, os.strerror(code)))
        else:
            self._connected(sock)

    def discard(self) -> None:
        """Close only the file descriptor; see `Pollable`."""
        if self._sock is not None:
            self._sock.close()
        if self._stream is not None:
            self._stream.discard()

    def give_up(self, reason: str) -> None:
        """End the attempt, unless it has ended already."""
        if self._is_over:
            return
        self._is_over = True
        if self._sock is not None:
            self._poll.forget(self._sock.fileno())
        if isinstance(self._stream, TlsStream):  # it is in the poll
            self._stream.abort()
        else:
            self.discard()
        self._fail(self._error(reason))

    def _begin(self, address: Address, tls: TlsSettings) -> None:
        match address:
            case IpcAddress():
                self._connected(connect_ipc(address))
            case HostAddress():
                if address.is_secure:
                    self._session = tls.session_to(address.host)
                infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
                self._places.extend(infos)
                self._next(OSError("the host name has no address"))
            case InprocAddress():
                raise self._error("inproc connects only objects of one event loop")

    def _next(self, error: OSError) -> None:
        """Try the next address, after the last one failed with `error`."""
        while self._places:
            try:
                self._connect(*self._places.popleft())
            except OSError as refused:
                error = refused
            else:
                return
        self._fail(self._error(why(error)))

    def _connect(self, family: int, kind: int, protocol: int, _name: str, place: Any) -> None:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            sock.connect(place)
            self._connected(sock)
        except BlockingIOError:
            self._sock = sock
            self._poll.watch(sock.fileno(), self, WRITE)
        except OSError:
            sock.close()
            raise

    def _connected(self, sock: socket.socket) -> None:
        if isinstance(self.address, HostAddress):
            tune_tcp(sock)
        stream = BlockingStream(sock, str(self.address), self._poll)
        if self._session is None:
            self._stream = stream
            self._poll.later(self._succeed)
        else:
            self._stream = TlsStream(stream, self._session, self._poll.later)
            self._stream.shake_hands(self._shaken)

    def _shaken(self, reason: str) -> None:
        if not reason:
            self._succeed()
        elif not self._is_over:
            self._fail(self._error(reason))

    def _succeed(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._done(self.address, self._stream)

    def _fail(self, error: TransportError) -> None:
        self._is_over = True
        self._poll.later(lambda: self._failed(self.address, error))

    def _error(self, reason: str) -> TransportError:
        return cannot("connect to", self.address, reason)
