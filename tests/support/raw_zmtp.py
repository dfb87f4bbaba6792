"""A ZMTP peer on a plain socket, which can send malformed data.

pyzmq sends only valid data, and reconnects automatically. With this peer, a test controls every
byte and sees the end of the connection. The encoding follows RFC 37, without requite's framing.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final

WAIT_S: Final = 20.0
_CLOSED: Final = (ConnectionResetError, BrokenPipeError, ConnectionAbortedError)


def greeting(mechanism: bytes = b"NULL", major: int = 3, minor: int = 1) -> bytes:
    """Return a greeting: the 64 bytes that open a connection."""
    signature = b"\xff" + bytes(8) + b"\x7f"
    return signature + bytes((major, minor)) + mechanism.ljust(20, b"\0") + bytes(32)


def command(name: bytes, data: bytes = b"") -> bytes:
    """Encode a command frame."""
    body = bytes([len(name)]) + name + data
    if len(body) < 256:
        return b"\x04" + bytes([len(body)]) + body
    return b"\x06" + len(body).to_bytes(8, "big") + body


def properties(**values: bytes) -> bytes:
    """Encode the metadata of a READY; "_" in a name stands for "-", as in `Socket_Type`."""
    out = b""
    for key, value in values.items():
        name = key.replace("_", "-").encode()
        out += bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value
    return out


def ready(socket_type: bytes = b"DEALER", identity: bytes = b"") -> bytes:
    """Encode a READY command."""
    return command(b"READY", properties(Socket_Type=socket_type, Identity=identity))


def message(*frames: bytes) -> bytes:
    """Encode one message."""
    out = []
    for number, frame in enumerate(frames, 1):
        more = int(number < len(frames))
        if len(frame) < 256:
            out.append(bytes((more, len(frame))))
        else:
            out.append(bytes([more | 2]) + len(frame).to_bytes(8, "big"))
        out.append(frame)
    return b"".join(out)


class RawPeer:
    """A connection to `endpoint` (tcp://host:port); sends nothing by itself."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        self.socket = socket.create_connection((host, int(port)), WAIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self.is_closed = False

    def send(self, data: bytes) -> None:
        """Send bytes. Does not fail if the broker has closed the connection (`hung_up` detects
        this)."""
        try:
            self.socket.sendall(data)
        except _CLOSED:
            self.is_closed = True

    def shake_hands(self, socket_type: bytes = b"DEALER", identity: bytes = b"") -> None:
        """Complete the handshake as libzmq does; messages may be sent afterwards."""
        self.send(greeting() + ready(socket_type, identity))
        self.shook_hands()

    def shook_hands(self) -> None:
        """Read the broker's greeting and READY."""
        assert self._read_exactly(64)[:10] == b"\xff" + bytes(8) + b"\x7f"
        flags, body = self._frame()
        assert flags & 4
        assert body.startswith(b"\x05READY")

    def say(self, *frames: bytes) -> None:
        """Send one message."""
        self.send(message(*frames))

    def receive(self) -> list[bytes]:
        """Return the next message, skipping ZMTP commands. Raises `EOFError` when the broker closes
        the connection."""
        frames: list[bytes] = []
        while True:
            flags, body = self._frame()
            if not flags & 4:
                frames.append(body)
                if not flags & 1:
                    return frames

    def next_command(self) -> bytes:
        """Return the body of the next frame, which must be a ZMTP command."""
        flags, body = self._frame()
        assert flags & 4, f"not a command: {body!r}"
        return body

    def last_words(self) -> list[list[bytes]]:
        """Return all messages until the broker closes the connection; fail if it keeps it open."""
        messages = []
        while True:
            try:
                messages.append(self.receive())
            except EOFError:
                return messages

    def hung_up(self) -> bytes:
        """Wait until the broker closes the connection; return the unread bytes before the end."""
        while self._read_some():
            pass
        return self._buffer

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def __enter__(self) -> RawPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _frame(self) -> tuple[int, bytes]:
        flags = self._read_exactly(1)[0]
        size = int.from_bytes(self._read_exactly(8 if flags & 2 else 1), "big")
        return flags, self._read_exactly(size)

    def _read_exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            if not self._read_some():
                raise EOFError("the broker has hung up")
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def _read_some(self) -> bool:
        """Read at least one byte; return False when the connection has ended. Raises `TimeoutError`
        after `WAIT_S`."""
        try:
            chunk = self.socket.recv(1 << 16)
        except _CLOSED:
            chunk = b""
        self._buffer += chunk
        self.is_closed = self.is_closed or not chunk
        return bool(chunk)


def good_conversation(*messages: Sequence[bytes]) -> bytes:
    """Return all bytes of a connection on which a valid DEALER sends these messages."""
    return greeting() + ready() + b"".join(message(*frames) for frames in messages)
