"""The properties of a message: the content header of class `basic`.

Source: AMQP 0.9.1, section 4.2.6.1; the fields are those of class `basic` in its reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from struct import Struct
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from requite.errors import RemoteViolation
from requite.protocols.amqp.fields import (
    AS_IT_IS,
    altered_table,
    read_long,
    read_short,
    read_table,
    short,
    table,
)

_HEAD: Final = Struct(">HHQH")  # class, weight, size of the body, flags
_BASIC: Final = 60
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})

_CONTENT_TYPE: Final = 1 << 15
_CONTENT_ENCODING: Final = 1 << 14
_HEADERS: Final = 1 << 13
_DELIVERY_MODE: Final = 1 << 12
_PRIORITY: Final = 1 << 11
_CORRELATION_ID: Final = 1 << 10
_REPLY_TO: Final = 1 << 9
_EXPIRATION: Final = 1 << 8
_MESSAGE_ID: Final = 1 << 7
_TIMESTAMP: Final = 1 << 6
_USER_ID: Final = 1 << 4
_REST: Final = (1 << 5, _USER_ID, 1 << 3, 1 << 2)  # type, user-id, app-id, cluster-id
_ANY_REST: Final = sum(_REST)
_SIZES: Final = {_DELIVERY_MODE: 1, _PRIORITY: 1, _TIMESTAMP: 8}  # the others are short strings
_RECURRING_MAX: Final = 256
_RECURRING_SIZE_MAX: Final = 256  # bytes; larger tables are user data, and seldom repeat
_TRANSIENT: Final = b"\x01"
_PERSISTENT: Final = b"\x02"


class Properties(NamedTuple):
    """The properties of a message that requite uses; "" means absent.

    `flaw` is the error in a table of headers that could not be decoded; `headers` is empty then.
    `user_id` is the user that published the message: RabbitMQ refuses any other value.
    """

    correlation_id: str = ""
    reply_to: str = ""
    message_id: str = ""
    expiration: str = ""
    headers: Mapping[str, Any] = _NONE
    persistent: bool = False
    flaw: str = ""
    user_id: str = ""


def encode_properties(
    properties: Properties, body_size: int, *, headers_recur: bool = False
) -> bytes:
    """Return the content header of a message. Raises `LocalViolation` for values too long.

    `headers_recur`: many messages have equal headers (text and numbers only), so the encoded table
    is cached (0.7 us instead of 2.6).
    """
    correlation_id, reply_to, message_id, expiration, headers, persistent, _, user_id = properties
    flags = _DELIVERY_MODE
    fields = _PERSISTENT if persistent else _TRANSIENT
    if headers:
        flags |= _HEADERS
        fields = (_recurring(headers) if headers_recur else table(headers)) + fields
    if correlation_id:
        flags |= _CORRELATION_ID
        fields += short(correlation_id)
    if reply_to:
        flags |= _REPLY_TO
        fields += short(reply_to)
    if expiration:
        flags |= _EXPIRATION
        fields += short(expiration)
    if message_id:
        flags |= _MESSAGE_ID
        fields += short(message_id)
    if user_id:
        flags |= _USER_ID
        fields += short(user_id)
    return _HEAD.pack(_BASIC, 0, body_size, flags) + fields


def _recurring(headers: Mapping[str, Any]) -> bytes:
    # 1, 1.0 and True are equal as cache keys, but encode differently.
    return _table_of(tuple(headers.items()), tuple(map(type, headers.values())))


@lru_cache(_RECURRING_MAX)
def _table_of(items: tuple[tuple[str, Any], ...], _types: tuple[type, ...]) -> bytes:
    return table(dict(items))


def decode_properties(header: bytes) -> Properties:
    """Decode a content header.

    A malformed table of headers is reported as `flaw`, so that the sender can be answered. Raises
    `RemoteViolation` for any other error.
    """
    if len(header) < _HEAD.size:
        raise RemoteViolation("a content header is truncated")
    flags = _HEAD.unpack_from(header)[3]
    at = _HEAD.size
    if flags & _CONTENT_TYPE:
        _, at = read_short(header, at)
    if flags & _CONTENT_ENCODING:
        _, at = read_short(header, at)
    headers: Mapping[str, Any] = _NONE
    flaw = ""
    if flags & _HEADERS:
        headers, at, flaw = _read_headers(header, at)
    persistent = False
    if flags & _DELIVERY_MODE:
        persistent = header[at : at + 1] == _PERSISTENT
        at += 1
    if flags & _PRIORITY:
        at += 1
    correlation_id = reply_to = expiration = message_id = ""
    if flags & _CORRELATION_ID:
        correlation_id, at = read_short(header, at, AS_IT_IS)
    if flags & _REPLY_TO:
        reply_to, at = read_short(header, at, AS_IT_IS)
    if flags & _EXPIRATION:
        expiration, at = read_short(header, at)
    if flags & _MESSAGE_ID:
        message_id, at = read_short(header, at)
    user_id = _read_rest(header, at, flags)
    return Properties(
        correlation_id, reply_to, message_id, expiration, headers, persistent, flaw, user_id
    )


def altered_properties(
    header: bytes,
    expiration: str,
    dropped: Callable[[str], bool],
    added: Mapping[str, Any] = _NONE,
) -> bytes:
    """Return the content header for forwarding a message. All properties are copied, except the
    expiration ("": none), the headers that are dropped or added, and `user_id`, which RabbitMQ
    accepts only from that user.

    A malformed table of headers is dropped. Raises `RemoteViolation` for a truncated header.
    """
    if len(header) < _HEAD.size:
        raise RemoteViolation("a content header is truncated")
    _, _, body_size, flags = _HEAD.unpack_from(header)
    fields = _split(header, flags)
    fields.pop(_USER_ID, None)
    fields.pop(_EXPIRATION, None)
    if expiration:
        fields[_EXPIRATION] = short(expiration)
    if added or _HEADERS in fields:
        fields[_HEADERS] = _altered_headers(fields.get(_HEADERS, b"")[4:], dropped, added)
    head = _HEAD.pack(_BASIC, 0, body_size, sum(fields))
    return head + b"".join(fields[flag] for flag in sorted(fields, reverse=True))


def _altered_headers(
    content: bytes, dropped: Callable[[str], bool], added: Mapping[str, Any]
) -> bytes:
    try:
        return altered_table(content, dropped, added)
    except RemoteViolation:
        return table(added)


def _split(header: bytes, flags: int) -> dict[int, bytes]:
    """Return the encoded properties by their flags."""
    fields: dict[int, bytes] = {}
    at = _HEAD.size
    for flag in (1 << bit for bit in range(15, 1, -1) if flags & 1 << bit):
        if flag == _HEADERS:
            end = read_long(header, at)[1]
        elif flag in _SIZES:
            end = at + _SIZES[flag]
        else:
            end = read_short(header, at)[1]
        fields[flag] = header[at:end]
        at = end
    if at > len(header):
        raise RemoteViolation("a content header is truncated")
    return fields


def _read_headers(header: bytes, at: int) -> tuple[Mapping[str, Any], int, str]:
    content, end = read_long(header, at)
    try:
        if len(content) <= _RECURRING_SIZE_MAX:
            return _headers_in(header[at:end]), end, ""
        return read_table(header, at)[0], end, ""
    except RemoteViolation as violation:
        return _NONE, end, f"the headers are malformed: {violation}"


@lru_cache(_RECURRING_MAX)
def _headers_in(data: bytes) -> Mapping[str, Any]:
    """Decode a table, with a cache for tables that repeat, as in a worker's replies (0.1 us instead
    of 2.7). The result is shared, hence read-only."""
    return MappingProxyType(read_table(data, 0)[0])


def _read_rest(header: bytes, at: int, flags: int) -> str:
    """Return the user-id, and check that the other properties are complete."""
    user_id = ""
    if flags & _TIMESTAMP:
        at += 8
    for flag in _REST if flags & _ANY_REST else ():
        if flags & flag:
            value, at = read_short(header, at)
            if flag == _USER_ID:
                user_id = value
    if at > len(header):
        raise RemoteViolation("a content header is truncated")
    return user_id
