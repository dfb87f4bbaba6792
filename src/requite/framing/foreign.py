"""The first bytes of other protocols, so that a peer at the wrong port is told by name."""

from __future__ import annotations

from http import HTTPMethod
from typing import Final

_SHOWN: Final = 4

_BEGINNINGS: Final[tuple[tuple[bytes | tuple[bytes, ...], str], ...]] = (
    (tuple(f"{method} ".encode() for method in HTTPMethod), "an HTTP request"),
    (b"HTTP/", "an HTTP answer"),
    (b"\x16\x03", "TLS, which sp+tls://, sp+wss:// and amqps:// speak"),
    (b"\0SP\0", "SP (nng, nanomsg), which sp+tcp:// and sp+ipc:// speak"),
    (b"AMQP", "AMQP (RabbitMQ), which amqp:// speaks"),
    # RFC 37 has any padding; that of libzmq is the length of an identity, as 64 bits.
    (b"\xff\0\0\0\0", "ZMTP (ZeroMQ), which mdp://, flp:// and pirate:// speak"),
    (b"\x01\0", "ZMTP 1.0, of libzmq 2; use libzmq 4.0 or newer"),
    (b"SSH-", "SSH"),
)


def describe(beginning: bytes) -> str:
    """Return what the first bytes of a stream are: "those of" a known protocol, or their `repr`.

    A beginning that comes in pieces is judged by its first piece, and mostly not known then.
    """
    for known, name in _BEGINNINGS:
        if beginning.startswith(known):
            return f"those of {name}"
    return repr(beginning[:_SHOWN])
