"""Endpoint types of the Scalability Protocols: their names for people, and for WebSocket.

A type is a 16-bit number: protocol id << 4 | role (sp-protocol-ids). REQ and REP are 48 and 49 in
every implementation; the request-reply draft says 16 and 17, which are PAIR's by now.
"""

from __future__ import annotations

from typing import Final

_NAMES: Final = {
    16: "PAIR0, or REQ by the draft's numbers",
    17: "PAIR1, or REP by the draft's numbers",
    32: "PUB",
    33: "SUB",
    48: "REQ",
    49: "REP",
    80: "PUSH",
    81: "PULL",
    98: "SURVEYOR",
    99: "RESPONDENT",
    112: "BUS",
}

# What our own ends are called: by the draft's numbers they are never PAIR.
_ROLES: Final = {16: "REQ", 17: "REP", 48: "REQ", 49: "REP"}


def describe_type(endpoint_type: int) -> str:
    """Return the number with the name that belongs to it, for messages: `49 (REP)`."""
    return f"{endpoint_type} ({_NAMES.get(endpoint_type, 'unknown')})"


def role_of(endpoint_type: int) -> str:
    """Return what an end of ours is called: REQ or REP, or its number if it is neither."""
    return _ROLES.get(endpoint_type, f"endpoint of type {endpoint_type}")


def subprotocol_of(server_type: int) -> str:
    """Return the WebSocket subprotocol of a server of this type (sp-websocket-mapping-01)."""
    return f"{_ROLES[server_type].lower()}.sp.nanomsg.org"
