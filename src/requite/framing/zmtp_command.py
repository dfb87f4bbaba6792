"""Commands of ZMTP, which framings send before and between messages (RFC 37).

A command is one frame with the flag COMMAND and without MORE: `04 size` or `06 size-as-u64`, the
length of its name, the name, and data in a format that depends on the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

from requite.errors import RemoteViolation

MORE: Final = 0x01
LONG: Final = 0x02
COMMAND: Final = 0x04

# PLAIN servers on libzmq 4.3 (seen with 4.3.5) send this for ERROR: its source has "\\x05ERROR", in
# which C reads the E as a third hexadecimal digit. No other name of 94 characters begins like it.
_ERROR_OF_LIBZMQ: Final = b"^RROR"

_PING_CONTEXT_MAX: Final = 16
_ERROR_REASON_MAX: Final = 255
_u32: Final = Struct(">I")
_u64: Final = Struct(">Q")


class Command(NamedTuple):
    """The two parts of a command's body."""

    name: bytes
    data: bytes


_COMMANDS_MAX: Final = 1024  # of one read


class Ping(NamedTuple):
    """A heartbeat. The receiver closes the connection after `ttl_s` seconds of silence (0: never),
    and echoes `context`."""

    ttl_s: float
    context: bytes


# --- frames -------------------------------------------------------------------------------------


def encode_command(name: bytes, data: bytes = b"") -> bytes:
    """Encode a command as a frame."""
    body = bytes((len(name),)) + name + data
    if len(body) < 256:
        return bytes((COMMAND, len(body))) + body
    return bytes((COMMAND | LONG,)) + _u64.pack(len(body)) + body


def find_command(data: bytes, at: int, size_max: int) -> tuple[Command, int] | None:
    """Parse the command frame at `at`; return it and its end, or None if it is incomplete.

    The announced size of the body may be at most `size_max` bytes. Flag bits 3 to 7 MUST be zero,
    and MORE SHALL be zero in commands (RFC 37, Framing).
    """
    flags = data[at]
    if flags & ~LONG != COMMAND:
        raise RemoteViolation(
            f"received a command frame with the invalid flags {flags:#04x}: reserved bits, or MORE"
        )
    begin = at + (9 if flags & LONG else 2)
    if begin > len(data):
        return None
    size = _u64.unpack_from(data, at + 1)[0] if flags & LONG else data[at + 1]
    if size > size_max:
        raise RemoteViolation(f"received a command of {size} bytes; the maximum is {size_max}")
    end = begin + size
    return None if end > len(data) else (split_command(data[begin:end]), end)


def check_number(commands: list[Command]) -> None:
    """Refuse a peer of which one read has more commands than any honest one sends: handling 1,000
    takes some 3 ms, which others have to wait for."""
    if len(commands) > _COMMANDS_MAX:
        raise RemoteViolation(
            f"received more than {_COMMANDS_MAX} commands at once; a peer sends one a millisecond"
            " at most"
        )


def split_command(body: bytes) -> Command:
    """Parse the body of a command: u8 length of the name (at least 1), name, data."""
    if body.startswith(_ERROR_OF_LIBZMQ):
        return Command(b"ERROR", body[len(_ERROR_OF_LIBZMQ) :])
    border = 1 + body[0] if body else 0
    if not 1 < border <= len(body):
        raise RemoteViolation(f"received a command with a truncated or empty name: {body[:16]!r}")
    return Command(body[1:border], body[border:])


# --- metadata -----------------------------------------------------------------------------------


def encode_metadata(properties: Mapping[str, bytes]) -> bytes:
    """Encode properties, each as u8 length of the name, name, u32 length of the value, value."""
    parts: list[bytes] = []
    for name, value in properties.items():
        parts += (bytes((len(name),)), name.encode("ascii"), _u32.pack(len(value)), value)
    return b"".join(parts)


def decode_metadata(data: bytes) -> dict[str, bytes]:
    """Decode properties. Names are converted to lower case, since their case SHALL NOT matter."""
    properties: dict[str, bytes] = {}
    at = 0
    while at < len(data):
        name_end = at + 1 + data[at]
        value_at = name_end + 4
        if name_end == at + 1 or value_at > len(data):
            raise RemoteViolation(
                "malformed metadata: the name of a property is empty or truncated"
            )
        end = value_at + _u32.unpack_from(data, name_end)[0]
        if end > len(data):
            raise RemoteViolation("malformed metadata: a value extends beyond its command")
        properties[data[at + 1 : name_end].decode("latin-1").lower()] = data[value_at:end]
        at = end
    return properties


# --- ERROR, PING --------------------------------------------------------------------------------


def encode_error(reason: str) -> bytes:
    """Encode an ERROR command. The grammar allows visible characters only, so no spaces."""
    text = reason.encode("ascii", "replace")[:_ERROR_REASON_MAX]
    visible = bytes(c if 0x21 <= c <= 0x7E else ord("-") for c in text)
    return encode_command(b"ERROR", bytes((len(visible),)) + visible)


def decode_error(data: bytes) -> str:
    """Return the reason in an ERROR command, with unprintable characters escaped."""
    if not data or len(data) != 1 + data[0]:
        raise RemoteViolation(f"received a malformed ERROR command: {data[:16]!r}")
    return data[1:].decode("ascii", "backslashreplace")


def decode_ping(data: bytes) -> Ping:
    """Decode PING: a u16 time to live in tenths of a second, and a context of up to 16 bytes."""
    if not 2 <= len(data) <= 2 + _PING_CONTEXT_MAX:
        raise RemoteViolation(
            f"received a PING with {len(data)} bytes of data; 2 to 18 are allowed"
        )
    return Ping(int.from_bytes(data[:2], "big") / 10, data[2:])
