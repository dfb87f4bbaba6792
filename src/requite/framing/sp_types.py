"""Endpoint types of the Scalability Protocols: names for messages, and for WebSocket.

A type is a 16-bit number: protocol id << 4 | role (sp-protocol-ids). REQ and REP are 48 and 49 in
each implementation; the request-reply draft has 16 and 17, which now belong to PAIR.
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

# The names of our own endpoints: numbers of the draft never mean PAIR here.
_ROLES: Final = {16: "REQ", 17: "REP", 48: "REQ", 49: "REP"}


def describe_type(endpoint_type: int) -> str:
    """Return a type with its name, for messages: `49 (REP)`."""
    return f"{endpoint_type} ({_NAMES.get(endpoint_type, 'unknown')})"


def role_of(endpoint_type: int) -> str:
    """Return the name of an endpoint of ours: REQ, REP, or its number."""
    return _ROLES.get(endpoint_type, f"endpoint of type {endpoint_type}")


def subprotocol_of(server_type: int) -> str:
    """Return the WebSocket subprotocol of a server of this type (sp-websocket-mapping-01)."""
    return f"{_ROLES[server_type].lower()}.sp.nanomsg.org"
