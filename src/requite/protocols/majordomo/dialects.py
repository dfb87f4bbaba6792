"""The dialects of MDP, and how a broker detects a peer's dialect.

There is no handshake: the magic of a peer's first message determines its role and its dialect for
the rest of the connection. All three dialects share one socket.

Sources: 7/MDP and 18/MDP ("MDP/Client", "MDP/Worker"), docs/protocols/mdp-0.3.md [client-first],
[worker-ready], [service-name].
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from requite.engine import Carried
from requite.errors import ConfigurationError, RemoteViolation
from requite.protocols.majordomo.wire import (
    SERVICE_NAME_SIZE_MAX,
    ClientHeartbeat,
    ClientRequest,
    Dialect,
    Disconnect,
    Ready,
)
from requite.protocols.majordomo.wire_03 import MDP_03
from requite.protocols.majordomo.wire_direct import DIRECT
from requite.protocols.majordomo.wire_rfc import MDP_01, MDP_02


class PeerRole(Enum):
    """The role of a broker's peer: MDP/Client or MDP/Worker."""

    CLIENT = "client"
    WORKER = "worker"


_BY_VERSION: Final = {dialect.version: dialect for dialect in (MDP_01, MDP_02, MDP_03)}

_MAGIC_SIZE: Final = 6
_BY_FIRST_FRAME: Final = {
    b"MDPC02": (PeerRole.CLIENT, MDP_02),
    b"MDPW02": (PeerRole.WORKER, MDP_02),
    b"MDPC03": (PeerRole.CLIENT, MDP_03),
    b"MDPW03": (PeerRole.WORKER, MDP_03),
}
# 7/MDP is made for REQ sockets, which put an empty frame first.
_BY_SECOND_FRAME: Final = {
    b"MDPC01": (PeerRole.CLIENT, MDP_01),
    b"MDPW01": (PeerRole.WORKER, MDP_01),
}

# First messages of peers in the same process. No framing decodes bytes into these.
_BY_COMMAND: Final[dict[type, tuple[PeerRole, Dialect]]] = {
    ClientRequest: (PeerRole.CLIENT, DIRECT),
    ClientHeartbeat: (PeerRole.CLIENT, DIRECT),
    Ready: (PeerRole.WORKER, DIRECT),
    Disconnect: (PeerRole.WORKER, DIRECT),
}

# Unicode's category Cc: the control characters of ASCII and Latin-1.
_CONTROL_CHARACTERS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def detect(message: Carried) -> tuple[PeerRole, Dialect] | None:
    """Return role and dialect of the sender of a first message, or None if it is of no dialect.

    Only the magic is checked; the dialect's decoder checks the rest.
    """
    found = _BY_COMMAND.get(message.__class__)
    if found is not None:
        return found
    if not message:
        return None
    if message[0]:
        return _BY_FIRST_FRAME.get(message[0][:_MAGIC_SIZE])
    return _BY_SECOND_FRAME.get(message[1][:_MAGIC_SIZE]) if len(message) > 1 else None


def by_version(version: str) -> Dialect:
    """Return the dialect of that version, such as "0.2", or raise `ConfigurationError`."""
    dialect = _BY_VERSION.get(version)
    if dialect is None:
        known = ", ".join(_BY_VERSION)
        raise ConfigurationError(f"there is no MDP {version!r}; the dialects are {known}")
    return dialect


def check_service_name(name: bytes) -> str:
    """Return a service name as text, or raise `RemoteViolation` if it is invalid ([service-name]).

    A name has 1 to 255 bytes of UTF-8 without control characters. Decoders do not check this: it is
    done once when a name is first used, not per request.
    """
    if not 1 <= len(name) <= SERVICE_NAME_SIZE_MAX:
        raise RemoteViolation(
            f"a service name must have 1 to {SERVICE_NAME_SIZE_MAX} bytes, not {len(name)}"
        )
    try:
        text = name.decode()
    except UnicodeDecodeError as error:
        raise RemoteViolation(f"the service name {name!r} is not UTF-8") from error
    if _CONTROL_CHARACTERS.search(text):
        raise RemoteViolation(f"the service name {text!r} has control characters")
    return text
