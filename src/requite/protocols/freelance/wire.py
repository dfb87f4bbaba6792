"""Freelance on the wire: commands of 10/FLP, and the envelopes of the Guide's models one and two.

    model      request                     answer
    agent      PING                        PONG                         10/FLP, "Overall Operation"
               control, body...            control, body...
    failover   "", body...                 "", body...                  Guide, "Model One"
    shotgun    "", sequence, body...       "", sequence, body...        Guide, "Model Two"

A control frame (CCF) may have any content, so the number of frames distinguishes pings from
requests, which have two or more. Models one and two use REP sockets: all frames up to the first
empty one are the envelope, which proxies may have extended.
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
    """The client's strategy; client and server must use the same."""

    FAILOVER = "failover"
    SHOTGUN = "shotgun"
    AGENT = "agent"


class Ping(NamedTuple):
    """A client checks whether the server is alive."""


class Pong(NamedTuple):
    """A server is alive."""


class Request(NamedTuple):
    """A request; its reply begins with the same `control` frames."""

    control: Sequence[bytes]
    body: Sequence[bytes]


class Reply(NamedTuple):
    """A reply to the request with this control frame (of the shotgun: sequence)."""

    control: bytes
    body: Sequence[bytes]


def decode_request(message: Message, model: Model) -> Ping | Request:
    """Decode a message of a client. Raises `RemoteViolation`."""
    if model is not Model.AGENT:
        return _decode_enveloped(message, sequenced=model is Model.SHOTGUN)
    if len(message) > 1:
        return Request(message[:1], message[1:])
    if message != [PING]:
        raise RemoteViolation(f"received a single frame that is not PING: {message[0][:16]!r}")
    return Ping()


def _decode_enveloped(message: Message, *, sequenced: bool) -> Request:
    """Split a request into its envelope, with the sequence if any, and its body."""
    if _DELIMITER not in message:
        raise RemoteViolation("received a request without an empty delimiter frame")
    border = message.index(_DELIMITER) + 1 + sequenced
    if border >= len(message):
        what = "sequence and body" if sequenced else "body"
        raise RemoteViolation(f"received a request without {what} after its delimiter")
    return Request(message[:border], message[border:])


def decode_flp_reply(message: Message) -> Pong | Reply:
    """Decode a message of a 10/FLP server. Raises `RemoteViolation`."""
    if len(message) > 1:
        return Reply(message[0], message[1:])
    if message != [PONG]:
        raise RemoteViolation(f"received a single frame that is not PONG: {message[0][:16]!r}")
    return Pong()


def decode_sequenced_reply(message: Message) -> Reply:
    """Decode a reply in model two. Raises `RemoteViolation`."""
    if len(message) < 3 or message[0] != _DELIMITER:
        raise RemoteViolation("received a reply without delimiter, sequence and body")
    return Reply(message[1], message[2:])


def control_frame(number: int) -> bytes:
    """Return the control frame, or sequence, of a client's request: a number as text, as in the
    Guide."""
    return b"%d" % number


def sequenced(number: bytes, body: Sequence[bytes]) -> Sequence[bytes]:
    """Encode a request in model two."""
    return (_DELIMITER, number, *body)
