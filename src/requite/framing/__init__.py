"""Framings convert a connection's bytes to messages and back, sans-I/O (contract: `base`)."""

from requite.framing.base import (
    BODY_FRAMES_MAX,
    CredentialsRefused,
    Framing,
    Limits,
    Login,
    Message,
)
from requite.framing.credentials import mechanism_to_check, mechanism_to_show
from requite.framing.router import Admission, IdentityTable
from requite.framing.sp import SpStream
from requite.framing.websocket import SpWebSocket
from requite.framing.zmtp import RefusedByPeer, Zmtp
from requite.framing.zmtp_mechanism import (
    Mechanism,
    Null,
    PlainClient,
    PlainServer,
    known_users,
    same_secret,
)
from requite.framing.zmtp_socket import SocketType

__all__ = [
    "BODY_FRAMES_MAX",
    "Admission",
    "CredentialsRefused",
    "Framing",
    "IdentityTable",
    "Limits",
    "Login",
    "Mechanism",
    "Message",
    "Null",
    "PlainClient",
    "PlainServer",
    "RefusedByPeer",
    "SocketType",
    "SpStream",
    "SpWebSocket",
    "Zmtp",
    "known_users",
    "mechanism_to_check",
    "mechanism_to_show",
    "same_secret",
]
