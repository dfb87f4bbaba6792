"""Helpers for the tests of WebSocket framing: both ends of a connection, an opening handshake, and
hand-made frames."""

import re
from struct import pack

from requite.framing import SpWebSocket

REQ, REP = 48, 49
HOST = "127.0.0.1:5555"
KEY = b"\x37\xfa\x21\x3d"  # the masking key in the examples of RFC 6455, section 5.7

FIN = 0x80
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

# Key and answer are the example of RFC 6455, section 1.3.
REQUEST = (
    b"GET /svc HTTP/1.1\r\n"
    b"Host: server.example.com\r\n"
    b"Upgrade: websocket\r\n"
    b"Connection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: rep.sp.nanomsg.org\r\n"
    b"\r\n"
)
ANSWER = (
    b"HTTP/1.1 101 Switching Protocols\r\n"
    b"Upgrade: websocket\r\n"
    b"Connection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
    b"Sec-WebSocket-Protocol: rep.sp.nanomsg.org\r\n"
    b"\r\n"
)


def masks(size: int) -> bytes:
    return KEY * (size // 4)


def make_client(**options: object) -> SpWebSocket:
    return SpWebSocket(REQ, REP, is_client=True, host=HOST, masks=masks, **options)


def make_server(**options: object) -> SpWebSocket:
    return SpWebSocket(REP, REQ, is_client=False, **options)


def upgrade(client: SpWebSocket, server: SpWebSocket) -> None:
    assert server.opening() == b""
    assert server.receive(client.opening()) == []
    assert client.receive(server.output()) == []
    assert client.ready
    assert server.ready


def connected_client(**options: object) -> SpWebSocket:
    client = make_client(**options)
    upgrade(client, make_server())
    return client


def connected_server(**options: object) -> SpWebSocket:
    server = make_server(**options)
    upgrade(make_client(), server)
    return server


def accept_of(request: bytes) -> bytes:
    """Return the accept token with which a server answers a request."""
    server = make_server()
    server.receive(request)
    [accept] = re.findall(rb"Sec-WebSocket-Accept: (.*)\r\n", server.output())
    return accept


def feed(framing: SpWebSocket, data: bytes, step: int) -> None:
    """Feed bytes, `step` at a time (0: all at once), which must have no effect yet."""
    for at in range(0, len(data), step or len(data)):
        assert framing.receive(data[at : at + (step or len(data))]) == []
        assert framing.output() == b""


def xor(data: bytes, key: bytes = KEY) -> bytes:
    whole = bytearray(data)
    for at in range(4):
        whole[at::4] = data[at::4].translate(bytes(byte ^ key[at] for byte in range(256)))
    return bytes(whole)


def frame(first: int, payload: bytes = b"", *, masked: bool) -> bytes:
    """Encode a frame (RFC 6455, section 5.2); `first` is its first byte: FIN, RSV bits, opcode."""
    bit = 0x80 if masked else 0
    size = len(payload)
    if size < 126:
        header = bytes((first, size | bit))
    elif size < 1 << 16:
        header = pack(">BBH", first, 126 | bit, size)
    else:
        header = pack(">BBQ", first, 127 | bit, size)
    return header + (KEY + xor(payload) if masked else payload)


def frames_of(data: bytes) -> list[tuple[int, bytes]]:
    """Decode complete frames; return the first byte and the unmasked payload of each."""
    frames = []
    while data:
        size, at = data[1] & 127, 2
        if size > 125:
            at = 4 if size == 126 else 10
            size = int.from_bytes(data[2:at], "big")
        key = b""
        if data[1] & 128:
            key, at = data[at : at + 4], at + 4
        payload = data[at : at + size]
        assert len(payload) == size
        frames.append((data[0], xor(payload, key) if key else payload))
        data = data[at + size :]
    return frames
