"""The two ends of the link between the servers of a pair: ZMTP, DEALER to DEALER.

Each server listens and dials; whichever connection stands is used.
"""

from __future__ import annotations

from typing import Final

from requite.framing import Limits, SocketType, Zmtp
from requite.protocols.binarystar.peer import DIALLED
from requite.protocols.binarystar.wire import MESSAGE_SIZE_MAX
from requite.shell.keeping import Endpoint
from requite.transport.address import Address

SCHEMES: Final = ("tcp", "ipc", "inproc")

_LIMITS: Final = Limits(message_size_bytes_max=MESSAGE_SIZE_MAX, frames_max=2)


def listen_at(address: Address) -> Endpoint:
    """Return the endpoint for the other server, and for operators."""
    return Endpoint(address, make_framing)


def stay_connected_to(address: Address) -> Endpoint:
    """Return the endpoint that leads to the other server."""
    return Endpoint(address, make_framing, DIALLED)


def make_framing() -> Zmtp:
    """Make the framing of one connection."""
    return Zmtp(SocketType.DEALER, limits=_LIMITS)
