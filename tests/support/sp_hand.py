"""An SP peer on a plain socket, which can send malformed data.

The encoding follows the SP mappings for TCP and IPC and the request-reply draft, without requite's
framing.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, Self

import pytest
from tests.support.sp_wires import IPC, Place

WAIT_S: Final = 20.0
REQ: Final = 48
REP: Final = 49
BOTTOM: Final = 1 << 31  # set in the last tag of a stack
_CLOSED: Final = (ConnectionResetError, BrokenPipeError, ConnectionAbortedError, ssl.SSLError)


def header(endpoint_type: int) -> bytes:
    """Return the header that opens a connection: eight bytes."""
    return b"\0SP\0" + endpoint_type.to_bytes(2, "big") + bytes(2)


def tags(*ids: int) -> bytes:
    """Encode 32-bit tags."""
    return b"".join(each.to_bytes(4, "big") for each in ids)


def deep(depth: int, request_id: int = 7) -> bytes:
    """Return a stack of `depth` tags; the last is the request id."""
    return tags(*range(1, depth), BOTTOM | request_id)


class HandPeer:
    """One connection; sends nothing by itself. `in_band`: each message starts with the type byte of
    the IPC mapping."""

    def __init__(self, stream: socket.socket, *, in_band: bool = False) -> None:
        stream.settimeout(WAIT_S)
        self.socket = stream
        self._type = b"\x01" if in_band else b""
        self._buffer = b""

    @classmethod
    def dial(cls, place: Place) -> Self:
        """Connect to the listener at a place."""
        if place.wire is IPC:
            stream = socket.socket(socket.AF_UNIX)
            stream.settimeout(WAIT_S)
            stream.connect(place.file)
            return cls(stream, in_band=True)
        stream = socket.create_connection((place.wire.host.strip("[]"), place.port), WAIT_S)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if place.wire.is_secure:
            context = ssl.create_default_context(cafile=place.certificates.ca)
            stream = context.wrap_socket(stream, server_hostname="localhost")
        return cls(stream)

    # --- sending ----------------------------------------------------------------------------------
    def write(self, data: bytes) -> None:
        """Send bytes. Does not fail if the peer has closed the connection (`hung_up` detects
        this)."""
        with suppress(*_CLOSED):
            self.socket.sendall(data)

    def greet(self, own: int, other: int | None = None) -> Self:
        """Exchange headers, and assert that the peer's has the expected endpoint type."""
        self.write(header(own))
        expected = header(other or {REQ: REP, REP: REQ}[own])
        assert self.read(8) == expected
        return self

    def frame(self, payload: bytes) -> bytes:
        """Encode a message."""
        return self._type + len(payload).to_bytes(8, "big") + payload

    def send(self, payload: bytes) -> None:
        """Send a message; the payload is tags and body."""
        self.write(self.frame(payload))

    # --- receiving --------------------------------------------------------------------------------
    def receive(self) -> bytes:
        """Return the next message: tags and body. Raises `EOFError` when the peer closes the
        connection."""
        assert self.read(len(self._type)) == self._type
        return self.read(int.from_bytes(self.read(8), "big"))

    def read(self, size: int) -> bytes:
        """Return exactly `size` bytes. Raises `EOFError` when the peer closes the connection."""
        while len(self._buffer) < size:
            if not self._read_some():
                raise EOFError(f"the other side has hung up after {self._buffer!r}")
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def hung_up(self) -> bytes:
        """Wait until the peer closes the connection; return the unread bytes before the end."""
        while self._read_some():
            pass
        return self._buffer

    def is_silent(self, for_s: float) -> bool:
        """Return whether nothing arrives for `for_s` seconds, not even the end of the
        connection."""
        self.socket.settimeout(for_s)
        try:
            self._read_some()
        except TimeoutError:
            return not self._buffer
        finally:
            self.socket.settimeout(WAIT_S)
        return False

    def is_stuck(self, for_s: float) -> bool:
        """Return whether the socket's send buffer stays full for `for_s` seconds: the peer does not
        read."""
        return not select.select([], [self.socket], [], for_s)[1]

    def _read_some(self) -> bool:
        try:
            chunk = self.socket.recv(1 << 20)
        except _CLOSED:
            return False
        self._buffer += chunk
        return bool(chunk)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class HandListener:
    """A listener at a place; each accepted connection is a `HandPeer`."""

    def __init__(self, place: Place) -> None:
        self._in_band = place.wire is IPC
        if self._in_band:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.bind(place.file)
            self.socket.listen()
        else:
            host = place.wire.host.strip("[]")
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self.socket = socket.create_server((host, place.port), family=family)
        self.socket.settimeout(WAIT_S)
        self.place = place if self._in_band else place.at(self.socket.getsockname()[1])

    def accept(self) -> HandPeer:
        """Accept the next connection."""
        stream, _ = self.socket.accept()
        return HandPeer(stream, in_band=self._in_band)

    def has_caller(self, within_s: float) -> bool:
        """Return whether a peer connects within `within_s` seconds; closes the connection."""
        self.socket.settimeout(within_s)
        try:
            self.socket.accept()[0].close()
        except TimeoutError:
            return False
        finally:
            self.socket.settimeout(WAIT_S)
        return True

    def close(self) -> None:
        """Stop listening."""
        self.socket.close()


class Hands:
    """Creates hand-written peers and listeners, and closes them after the test."""

    def __init__(self) -> None:
        self._made: list[HandPeer | HandListener] = []

    def dial(self, place: Place) -> HandPeer:
        """Connect to a place, without sending a header."""
        return self.keep(HandPeer.dial(place))

    def client(self, place: Place) -> HandPeer:
        """Connect to a place as a REQ, and exchange headers."""
        return self.dial(place).greet(REQ)

    def service(self, place: Place) -> HandPeer:
        """Connect to a place as a REP, and exchange headers."""
        return self.dial(place).greet(REP)

    def listen(self, place: Place) -> HandListener:
        """Listen at a place."""
        listener = HandListener(place)
        self._made.append(listener)
        return listener

    def keep(self, peer: HandPeer) -> HandPeer:
        """Register a peer to be closed after the test; return it."""
        self._made.append(peer)
        return peer

    def close(self) -> None:
        """Close all peers and listeners."""
        for made in self._made:
            made.close()


@pytest.fixture
def hands() -> Iterator[Hands]:
    """Hand-written SP peers and listeners."""
    hands = Hands()
    yield hands
    hands.close()
