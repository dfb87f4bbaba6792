"""The first 64 bytes of a ZMTP connection: signature, version, mechanism (RFC 37, Formal Grammar).

        FF | 8 bytes of padding | 7F | major | minor | mechanism, 20 bytes | as-server | 31 zeros
         0   1                    9    10      11      12                    32          33

Both sides send it at once, except that a listener with several mechanisms sends the rest of its
greeting after it has received the peer's. libzmq may send the first 11 bytes alone, and the rest
after it has received our version, so a partial greeting is checked on arrival.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from requite.errors import RemoteViolation
from requite.framing import foreign

GREETING_SIZE: Final = 64
MAJOR: Final = 3
MINOR: Final = 1

_SIGNATURE_END: Final = 9
_MAJOR_AT: Final = 10
_MINOR_AT: Final = 11
MECHANISM_AT: Final = 12
_MECHANISM_END: Final = 32
_AS_SERVER_AT: Final = 32


class Greeting(NamedTuple):
    """The greeting of a peer; the version is the highest that both sides support."""

    minor: int
    mechanism: bytes
    as_server: bool


def encode_greeting(mechanism: bytes, *, as_server: bool) -> bytes:
    """Encode a greeting: always 64 bytes, since no older version is supported."""
    signature = b"\xff" + bytes(8) + b"\x7f"
    version = bytes((MAJOR, MINOR))
    return signature + version + mechanism.ljust(20, b"\0") + bytes((as_server,)) + bytes(31)


def check_beginning(data: bytes) -> None:
    """Raise `RemoteViolation` as soon as a stream cannot begin with a greeting of ZMTP 3. The error
    names the other protocol if its first bytes are known.

    The padding is not checked (RFC 37: MUST NOT validate this): libzmq puts the length of its
    identity there, for peers of ZMTP 1.0.
    """
    if data and data[0] != 0xFF and not foreign.may_get_a_name(data):
        name = foreign.name_of(data)
        begins = f"bytes are those of {name}" if name else f"byte is {data[0]:#04x}"
        raise RemoteViolation(f"the peer does not speak ZMTP 3: its first {begins}")
    if len(data) > _SIGNATURE_END and data[_SIGNATURE_END] != 0x7F:
        raise RemoteViolation("the peer does not speak ZMTP 3: its signature does not end in 0x7f")
    if len(data) > _MAJOR_AT and data[_MAJOR_AT] < MAJOR:
        raise RemoteViolation(
            f"the peer announces ZMTP revision {data[_MAJOR_AT]}; at least 3.0 (libzmq 4.0) is"
            " required"
        )


def parse_greeting(data: bytes) -> Greeting:
    """Parse a complete greeting that `check_beginning` has accepted.

    A higher version counts as our own (RFC 37: MUST accept higher protocol versions as valid). The
    filler is not checked, since a later version may use it.
    """
    minor = min(data[_MINOR_AT], MINOR) if data[_MAJOR_AT] == MAJOR else MINOR
    return Greeting(
        minor, data[MECHANISM_AT:_MECHANISM_END].rstrip(b"\0"), data[_AS_SERVER_AT] == 1
    )
