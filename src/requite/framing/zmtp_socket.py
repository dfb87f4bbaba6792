"""Socket types of ZeroMQ: which types are compatible, and the envelopes of REQ and REP.

Compatibility and identity: RFC 37, "The Socket-Type Property" and "The Identity Property".
Envelopes: RFC 28 (REQREP). DEALER and ROUTER do not change messages, and have no role here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from requite.errors import LocalViolation, RemoteViolation
from requite.framing.base import NO_FEATURES, Message
from requite.framing.zmtp_command import decode_metadata, encode_metadata

IDENTITY_SIZE_MAX: Final = 255
# A property for applications (RFC 37, "The Metadata"): names of features, with spaces between them.
_FEATURES: Final = "X-Requite"
# Of metadata, equal for nearly all connections: a set takes 216 bytes, the own metadata 68.
_SHARED_MAX: Final = 64


class SocketType(StrEnum):
    """The socket types that requite speaks."""

    REQ = "REQ"
    REP = "REP"
    DEALER = "DEALER"
    ROUTER = "ROUTER"


_PEERS: Final = {
    SocketType.REQ: {SocketType.REP, SocketType.ROUTER},
    SocketType.REP: {SocketType.REQ, SocketType.DEALER},
    SocketType.DEALER: {SocketType.REP, SocketType.DEALER, SocketType.ROUTER},
    SocketType.ROUTER: {SocketType.REQ, SocketType.DEALER, SocketType.ROUTER},
}


class Peer(NamedTuple):
    """A peer, as its metadata describes it."""

    socket_type: SocketType
    identity: bytes
    features: frozenset[str] = NO_FEATURES


# --- metadata of the handshake ------------------------------------------------------------------


@lru_cache(maxsize=_SHARED_MAX)
def own_metadata(socket_type: SocketType, identity: bytes, features: tuple[str, ...] = ()) -> bytes:
    """Encode the properties of this side. As in libzmq, all types but REP send their identity."""
    if len(identity) > IDENTITY_SIZE_MAX or identity[:1] == b"\0":
        raise LocalViolation(
            "an identity must have at most 255 bytes and must not begin with a zero byte:"
            f" {identity!r}"
        )
    properties = {"Socket-Type": socket_type.encode()}
    if socket_type is not SocketType.REP:
        properties["Identity"] = identity
    if features:
        properties[_FEATURES] = " ".join(sorted(features)).encode()
    return encode_metadata(properties)


def admit_peer(own: SocketType, metadata: bytes) -> Peer:
    """Parse the properties of a peer. Raises `RemoteViolation` for a socket type that is
    incompatible with `own`, and for an invalid identity.

    A missing type is refused as well: each known implementation sends it, and without it the two
    sides may misinterpret each other's frames.
    """
    properties = decode_metadata(metadata)
    announced = properties.get("socket-type", b"").decode("ascii", "backslashreplace")
    if announced not in _PEERS[own]:
        raise RemoteViolation(f"a {own} socket cannot connect to a socket of type {announced!r}")
    socket_type = SocketType(announced)
    announced_features = properties.get(_FEATURES.lower())
    features = NO_FEATURES if announced_features is None else _features_of(announced_features)
    if socket_type is SocketType.REP:  # "the Identity property shall be ignored"
        return Peer(socket_type, b"", features)
    identity = properties.get("identity", b"")
    if len(identity) > IDENTITY_SIZE_MAX or identity[:1] == b"\0":
        raise RemoteViolation(f"the peer announces an invalid identity: {identity[:16]!r}")
    return Peer(socket_type, identity, features)


@lru_cache(maxsize=_SHARED_MAX)
def _features_of(names: bytes) -> frozenset[str]:
    return frozenset(names.decode("latin-1").split())


# --- envelopes ----------------------------------------------------------------------------------


class SocketRole(Protocol):
    """Adds the envelope of a socket type to sent messages, and removes it from received ones."""

    def wrap(self, message: Sequence[bytes]) -> Sequence[bytes]:
        """Return the frames to send for `message`, or raise `LocalViolation`."""

    def unwrap(self, message: Message) -> Message:
        """Return a received message without its envelope, or raise `RemoteViolation`."""


class NotReady:
    """The role during the handshake: nothing may be encoded or decoded yet."""

    def wrap(self, message: Sequence[bytes]) -> Sequence[bytes]:
        raise LocalViolation("cannot encode before the handshake is complete")

    def unwrap(self, message: Message) -> Message:
        raise AssertionError("a message was decoded before the handshake was complete")


class UnchangedRole:
    """DEALER and ROUTER on an encrypted connection. On others they have no role, for speed."""

    def wrap(self, message: Sequence[bytes]) -> Sequence[bytes]:
        return message

    def unwrap(self, message: Message) -> Message:
        return message


UNCHANGED: Final = UnchangedRole()


class RequestRole:
    """REQ: an empty delimiter precedes each message in both directions.

    The rule that a request waits for the reply to the previous one concerns all connections of a
    socket, and is left to the caller.
    """

    def wrap(self, message: Sequence[bytes]) -> Sequence[bytes]:
        if not message:
            raise LocalViolation("a message must have at least one frame")
        return [b"", *message]

    def unwrap(self, message: Message) -> Message:
        if len(message) < 2 or message[0]:
            raise RemoteViolation(
                "received a reply without an empty delimiter frame followed by data frames"
            )
        del message[0]
        return message


class ReplyRole:
    """REP: stores the envelope of each request, and adds it to the reply.

    Replies are sent in the order of the requests: the n-th encoded message answers the n-th
    received one. A DEALER may send several requests before the first reply.
    """

    def __init__(self) -> None:
        self._envelopes: deque[Message] = deque()

    def wrap(self, message: Sequence[bytes]) -> Sequence[bytes]:
        if not message:
            raise LocalViolation("a message must have at least one frame")
        if not self._envelopes:
            raise LocalViolation("a REP socket can only reply to a request, and no request is open")
        return [*self._envelopes.popleft(), *message]

    def unwrap(self, message: Message) -> Message:
        border = message.index(b"") + 1 if b"" in message else 0
        if not 0 < border < len(message):
            raise RemoteViolation(
                "received a request without an empty delimiter frame followed by data frames"
            )
        self._envelopes.append(message[:border])
        return message[border:]


def role_of(socket_type: SocketType) -> SocketRole | None:
    """Return a new role for one connection; None for types that do not change messages."""
    if socket_type is SocketType.REQ:
        return RequestRole()
    return ReplyRole() if socket_type is SocketType.REP else None
