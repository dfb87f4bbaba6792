"""The part of ZMTP 3.0 (RFC 23, NULL mechanism) that a DEALER needs, without libzmq."""

from __future__ import annotations

import socket
from collections.abc import Iterable

# Signature, version 3.0 (a 3.0 peer is never sent a PING), mechanism, as-server, filler.
_SIGNATURE = b"\xff" + bytes(8) + b"\x7f\x03\x00"
GREETING = _SIGNATURE + b"NULL".ljust(20, b"\0") + bytes(32)
_PLAIN_GREETING = _SIGNATURE + b"PLAIN".ljust(20, b"\0") + bytes(32)
_SOCKET_TYPE = b"\x0bSocket-Type\x00\x00\x00\x06DEALER"
MORE, _LONG, _COMMAND = 1, 2, 4

Message = list[bytes]


def connect(port: int, features: bytes = b"") -> socket.socket:
    """Connect to a ROUTER on the loopback, and complete the handshake. Raises `OSError`.

    `features` are announced to a broker of requite (mdp-0.3.md, "Rights").
    """
    return shake_hands(dial(port), features)


def log_in(port: int, user: bytes, password: bytes) -> socket.socket:
    """Connect, and send a user name and a password (PLAIN, RFC 24)."""
    sock = dial(port)
    hello = bytes((len(user),)) + user + bytes((len(password),)) + password
    sock.sendall(_PLAIN_GREETING + _command(b"\x05HELLO" + hello))
    return sock


def dial(port: int) -> socket.socket:
    """Connect to a port of the loopback."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def shake_hands(sock: socket.socket, features: bytes = b"") -> socket.socket:
    """Complete the handshake of ZMTP, and return the socket."""
    sock.sendall(GREETING + _ready(features))
    _receive_exactly(sock, len(GREETING))
    flags, size = _receive_exactly(sock, 2)
    body = _receive_exactly(sock, size)
    if flags != _COMMAND or not body.startswith(b"\x05READY"):
        raise ConnectionError(f"the broker's handshake ends in {body!r}")
    return sock


def encode(frames: Iterable[bytes], *, more: bool = False) -> bytes:
    """Encode a message; with `more`, the first frames of one."""
    flags = [MORE] * len(frames := list(frames))
    if not more:
        flags[-1] = 0
    return b"".join(_frame(flag, frame) for flag, frame in zip(flags, frames, strict=True))


def split(data: bytes) -> tuple[list[Message], bytes]:
    """Return the complete messages of a stream, and the remaining bytes."""
    messages: list[Message] = []
    frames: Message = []
    at = begun = 0
    end = len(data)
    while end - at >= 2:
        flags = data[at]
        if flags & _LONG:
            body = at + 9
            after = body + int.from_bytes(data[at + 1 : body], "big")
        else:
            body = at + 2
            after = body + data[at + 1]
        if after > end or body > end:
            break
        frames.append(data[body:after])
        at = after
        if not flags & MORE:
            if flags & _COMMAND:
                raise ConnectionError(f"unexpected ZMTP command {frames[-1]!r}")
            messages.append(frames)
            frames = []
            begun = at
    return messages, data[begun:]


def _ready(features: bytes) -> bytes:
    metadata = _SOCKET_TYPE
    if features:
        metadata += b"\x09X-Requite" + len(features).to_bytes(4, "big") + features
    return _command(b"\x05READY" + metadata)


def _command(body: bytes) -> bytes:
    return bytes((_COMMAND, len(body))) + body


def _frame(flags: int, frame: bytes) -> bytes:
    if len(frame) < 256:
        return bytes((flags, len(frame))) + frame
    return bytes((flags | _LONG,)) + len(frame).to_bytes(8, "big") + frame


def _receive_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        if not chunk:
            raise ConnectionError("the broker closed the connection in the handshake")
        data += chunk
    return data
