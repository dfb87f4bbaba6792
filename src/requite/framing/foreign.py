"""The first bytes of other protocols, to name the protocol of a peer at the wrong port."""

from __future__ import annotations

from http import HTTPMethod
from typing import Final

_TLS: Final = "TLS (use mdp+tls://, sp+tls:// or another URL with TLS)"
_NAMES: Final = {
    **{f"{method} ".encode(): "an HTTP request" for method in HTTPMethod},
    b"HTTP/": "an HTTP response",
    b"\x16\x03": _TLS,
    b"\x15\x03": _TLS,  # an alert: a listener of TLS refuses the connection
    b"\0SP\0": "SP of nng or nanomsg (use sp+tcp:// or sp+ipc://)",
    b"AMQP": "AMQP of RabbitMQ (use amqp://)",
    # RFC 37 has any padding; that of libzmq is the length of an identity, as 64 bits.
    b"\xff\0\0\0\0": "ZMTP of ZeroMQ (use mdp://, flp:// or pirate://)",
    b"\x01\0": "ZMTP 1.0 of libzmq 2 (use libzmq 4.0 or newer)",
    b"SSH-": "SSH",
}


def name_of(data: bytes) -> str:
    """Return the name of the protocol whose first bytes `data` begins with; "" if unknown."""
    return next((name for known, name in _NAMES.items() if data.startswith(known)), "")


def may_get_a_name(data: bytes) -> bool:
    """Whether `data` is an incomplete prefix of a known protocol's first bytes."""
    return any(known.startswith(data) and known != data for known in _NAMES)
