"""A peer on a plain socket that writes ZMTP byte by byte, and can do it wrong.

pyzmq sends nothing that is malformed, and connects again behind one's back; here every byte and the
end of the connection are in view. The bytes are spelt out from RFC 37, without requite's framing.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final

WAIT_S: Final = 20.0
_CLOSED: Final = (ConnectionResetError, BrokenPipeError, ConnectionAbortedError)


def greeting(mechanism: bytes = b"NULL", major: int = 3, minor: int = 1) -> bytes:
    """Return the 64 bytes that open a connection."""
    signature = b"\xff" + bytes(8) + b"\x7f"
    return signature + bytes((major, minor)) + mechanism.ljust(20, b"\0") + bytes(32)


def command(name: bytes, data: bytes = b"") -> bytes:
    """Return a command frame."""
    body = bytes([len(name)]) + name + data
    if len(body) < 256:
        return b"\x04" + bytes([len(body)]) + body
    return b"\x06" + len(body).to_bytes(8, "big") + body


def properties(**values: bytes) -> bytes:
    """Return the metadata of a READY; `Socket_Type` stands for `Socket-Type`."""
    out = b""
    for key, value in values.items():
        name = key.replace("_", "-").encode()
        out += bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value
    return out


def ready(socket_type: bytes = b"DEALER", identity: bytes = b"") -> bytes:
    """Return a READY command."""
    return command(b"READY", properties(Socket_Type=socket_type, Identity=identity))


def message(*frames: bytes) -> bytes:
    """Return one message."""
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
    """A connection to `endpoint` (tcp://host:port). Nothing is sent unless asked for."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        self.socket = socket.create_connection((host, int(port)), WAIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self.is_closed = False

    def send(self, data: bytes) -> None:
        """Send bytes. That the broker may have hung up meanwhile is no error: `hung_up` tells."""
        try:
            self.socket.sendall(data)
        except _CLOSED:
            self.is_closed = True

    def shake_hands(self, socket_type: bytes = b"DEALER", identity: bytes = b"") -> None:
        """Do what libzmq does, up to the point where messages may be sent."""
        self.send(greeting() + ready(socket_type, identity))
        self.shook_hands()

    def shook_hands(self) -> None:
        """Read the other side's part of the handshake."""
        assert self._read_exactly(64)[:10] == b"\xff" + bytes(8) + b"\x7f"
        flags, body = self._frame()
        assert flags & 4
        assert body.startswith(b"\x05READY")

    def say(self, *frames: bytes) -> None:
        """Send one message."""
        self.send(message(*frames))

    def receive(self) -> list[bytes]:
        """Return the next message; commands of ZMTP are skipped. Raises `EOFError` at the end."""
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
        """Return all messages that come before the broker hangs up, which it must do in time."""
        messages = []
        while True:
            try:
                messages.append(self.receive())
            except EOFError:
                return messages

    def hung_up(self) -> bytes:
        """Wait until the broker has hung up; return the bytes that came before."""
        while self._read_some():
            pass
        return self._buffer

    def close(self) -> None:
        """Hang up."""
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
        """Read what is there, or wait for it; False at the end. A time-out is an error."""
        try:
            chunk = self.socket.recv(1 << 16)
        except _CLOSED:
            chunk = b""
        self._buffer += chunk
        self.is_closed = self.is_closed or not chunk
        return bool(chunk)


def good_conversation(*messages: Sequence[bytes]) -> bytes:
    """Return all bytes that a well-behaved DEALER sends for these messages."""
    return greeting() + ready() + b"".join(message(*frames) for frames in messages)
