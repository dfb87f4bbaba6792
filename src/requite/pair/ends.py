"""The two ends of the link between the servers of a pair: ZMTP, DEALER to DEALER.

Each server listens and dials; they use all connections that succeed.
"""

from __future__ import annotations

from typing import Final

from requite.framing import Limits, SocketType, Zmtp
from requite.protocols.binarystar.peer import DIALLED
from requite.protocols.binarystar.wire import MESSAGE_SIZE_MAX
from requite.shell.connections import Endpoint
from requite.speaks.tls import read_place

_SCHEMES: Final = ("tcp", "tls", "ipc", "inproc")
_LIMITS: Final = Limits(message_size_bytes_max=MESSAGE_SIZE_MAX, frames_max=2)


def listen_at(address: str) -> Endpoint:
    """Return the endpoint for the other server, and for operators. Raises `ConfigurationError`."""
    place, tls = read_place(address, _SCHEMES, listening=True)
    return Endpoint(place, make_framing, tls=tls)


def stay_connected_to(address: str) -> Endpoint:
    """Return the endpoint for dialling a server. Raises `ConfigurationError`."""
    place, tls = read_place(address, _SCHEMES, listening=False)
    return Endpoint(place, make_framing, DIALLED, tls)


def make_framing() -> Zmtp:
    """Return the framing of one connection."""
    return Zmtp(SocketType.DEALER, limits=_LIMITS)
