"""The two ends of the link between the servers of a pair: ZMTP, DEALER to DEALER.

Each server listens and dials; they use all connections that succeed.
"""

from __future__ import annotations

from typing import Final

from requite.errors import ConfigurationError
from requite.framing import Limits, SocketType, Zmtp
from requite.protocols.binarystar.peer import DIALLED
from requite.protocols.binarystar.wire import MESSAGE_SIZE_MAX
from requite.shell.connections import Endpoint
from requite.transport.address import Address, HostAddress, parse_address

_SCHEMES: Final = ("tcp", "ipc", "inproc")
_LIMITS: Final = Limits(message_size_bytes_max=MESSAGE_SIZE_MAX, frames_max=2)


def listen_at(address: str) -> Endpoint:
    """Return the endpoint for the other server, and for operators. Raises `ConfigurationError`."""
    return Endpoint(parse_address(address, _SCHEMES), make_framing)


def stay_connected_to(address: str) -> Endpoint:
    """Return the endpoint for dialling a server. Raises `ConfigurationError`."""
    target: Address = parse_address(address, _SCHEMES)
    if isinstance(target, HostAddress) and (target.is_wildcard or not target.port):
        raise ConfigurationError(
            f"cannot connect to {address!r}: host * and port 0 are only for listening; pass"
            " the address at which a server of the pair listens"
        )
    return Endpoint(target, make_framing, DIALLED)


def make_framing() -> Zmtp:
    """Return the framing of one connection."""
    return Zmtp(SocketType.DEALER, limits=_LIMITS)
