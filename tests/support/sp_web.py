"""Both sides of a WebSocket (RFC 6455), hand-written, for SP peers that send malformed data."""

from __future__ import annotations

import base64
import hashlib
import os
from typing import Final, NamedTuple

from tests.support.sp_hand import HandPeer

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
_FIN: Final = 0x80
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Frame(NamedTuple):
    """A received frame, unmasked."""

    opcode: int
    payload: bytes
    is_final: bool


def frame(payload: bytes, opcode: int = BINARY, *, mask: bool = True, final: bool = True) -> bytes:
    """Encode a frame. RFC 6455 requires that clients mask their frames and servers do not."""
    head = bytes([(_FIN if final else 0) | opcode])
    bit = 0x80 if mask else 0
    if len(payload) < 126:
        head += bytes([bit | len(payload)])
    elif len(payload) < 1 << 16:
        head += bytes([bit | 126]) + len(payload).to_bytes(2, "big")
    else:
        head += bytes([bit | 127]) + len(payload).to_bytes(8, "big")
    if not mask:
        return head + payload
    key = os.urandom(4)
    masked = bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))
    return head + key + masked


def asking(path: str = "/rpc", protocol: str | None = "rep.sp.nanomsg.org", **other: str) -> bytes:
    """Encode a client's opening request. `other` sets further header fields, with "_" in place of
    "-"; an empty value omits a field."""
    fields = {
        "Host": "localhost",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": protocol or "",
    }
    fields |= {name.replace("_", "-"): value for name, value in other.items()}
    lines = [f"{name}: {value}" for name, value in fields.items() if value]
    return "\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode()


def accepting(request: bytes, protocol: str = "rep.sp.nanomsg.org") -> bytes:
    """Encode a server's response to an opening request; `protocol` "" omits its field."""
    fields = dict(line.split(b": ", 1) for line in request.split(b"\r\n")[1:] if b": " in line)
    key = {name.lower(): value for name, value in fields.items()}[b"sec-websocket-key"]
    accept = base64.b64encode(hashlib.sha1(key + _GUID).digest()).decode()
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {accept}",
    ]
    if protocol:
        lines.append(f"Sec-WebSocket-Protocol: {protocol}")
    return "\r\n".join([*lines, "", ""]).encode()


def read_head(peer: HandPeer) -> bytes:
    """Read an HTTP head, up to and with the empty line at its end."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += peer.read(1)
    return head


def read_frame(peer: HandPeer) -> Frame:
    """Read and decode the next frame."""
    first, second = peer.read(2)
    size = second & 0x7F
    if size > 125:
        size = int.from_bytes(peer.read(2 if size == 126 else 8), "big")
    key = peer.read(4) if second & 0x80 else bytes(4)
    payload = bytes(byte ^ key[at % 4] for at, byte in enumerate(peer.read(size)))
    return Frame(first & 0x0F, payload, bool(first & _FIN))


def open_client(peer: HandPeer, path: str = "/rpc") -> HandPeer:
    """Complete the opening handshake as a client of a REP; return the peer."""
    peer.write(asking(path))
    head = read_head(peer)
    assert head.startswith(b"HTTP/1.1 101 "), head
    assert b"rep.sp.nanomsg.org" in head
    return peer
