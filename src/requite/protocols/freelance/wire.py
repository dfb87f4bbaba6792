"""Freelance on the wire: commands of 10/FLP, and the envelopes of the Guide's models one and two.

    model      client asks with            server answers with
    agent      PING                        PONG                         10/FLP, "Overall Operation"
               control, body...            control, body...
    failover   "", body...                 "", body...                  Guide, "Model One"
    shotgun    "", sequence, body...       "", sequence, body...        Guide, "Model Two"

A control frame (CCF) may be anything, so whether a message is a ping is told by the number of its
frames: a request has two or more. Models one and two speak with REP sockets. Whatever stands in
front of the first empty frame is their envelope, which proxies in between may have lengthened.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from requite.engine import Message
from requite.errors import RemoteViolation

PING: Final = b"PING"
PONG: Final = b"PONG"
_DELIMITER: Final = b""


class Model(StrEnum):
    """How a client finds a server that answers; client and server must agree on it."""

    FAILOVER = "failover"
    SHOTGUN = "shotgun"
    AGENT = "agent"


class Ping(NamedTuple):
    """A client asks whether the server lives."""


class Pong(NamedTuple):
    """A server lives."""


class Request(NamedTuple):
    """A request: `control` are the frames that the reply begins with, unmodified."""

    control: Sequence[bytes]
    body: Sequence[bytes]


class Reply(NamedTuple):
    """A reply to the request with this control frame (of the shotgun: sequence)."""

    control: bytes
    body: Sequence[bytes]


def decode_request(message: Message, model: Model) -> Ping | Request:
    """Read what a client says to a server. Raises `RemoteViolation`."""
    if model is not Model.AGENT:
        return _decode_enveloped(message, sequenced=model is Model.SHOTGUN)
    if len(message) > 1:
        return Request(message[:1], message[1:])
    if message != [PING]:
        raise RemoteViolation(f"one frame that is not PING: {message[0][:16]!r}")
    return Ping()


def _decode_enveloped(message: Message, *, sequenced: bool) -> Request:
    """Take the envelope off, and the sequence with it."""
    if _DELIMITER not in message:
        raise RemoteViolation("a request without an empty delimiter")
    border = message.index(_DELIMITER) + 1 + sequenced
    if border >= len(message):
        what = "sequence and body" if sequenced else "body"
        raise RemoteViolation(f"a request without {what} behind its delimiter")
    return Request(message[:border], message[border:])


def decode_flp_reply(message: Message) -> Pong | Reply:
    """Read what a server of 10/FLP says. Raises `RemoteViolation`."""
    if len(message) > 1:
        return Reply(message[0], message[1:])
    if message != [PONG]:
        raise RemoteViolation(f"one frame that is not PONG: {message[0][:16]!r}")
    return Pong()


def decode_sequenced_reply(message: Message) -> Reply:
    """Read the reply of a server of model two. Raises `RemoteViolation`."""
    if len(message) < 3 or message[0] != _DELIMITER:
        raise RemoteViolation("a reply without delimiter, sequence and body")
    return Reply(message[1], message[2:])


def control_frame(number: int) -> bytes:
    """Return the control frame, or sequence, of a client's request: a number as text, as in the
    Guide."""
    return b"%d" % number


def sequenced(number: bytes, body: Sequence[bytes]) -> Sequence[bytes]:
    """Make the request of model two."""
    return (_DELIMITER, number, *body)
