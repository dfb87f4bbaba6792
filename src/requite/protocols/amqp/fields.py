"""The data types of AMQP 0.9.1: short and long strings, and tables.

Sources: AMQP 0.9.1, section 4.2.5; for the types in tables RabbitMQ's list ("AMQP 0-9-1 Errata",
section 3), which differs from the standard's grammar; implementations follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct, error
from typing import Any, Final

from requite.errors import LocalViolation, RemoteViolation

Table = dict[str, Any]

SHORT_MAX: Final = 255
AS_IT_IS: Final = "surrogateescape"
"""An error handler for names that are copied, not shown: `short` restores the same bytes."""

_U32: Final = Struct(">I")
_I64: Final = Struct(">q")
_DEPTH_MAX: Final = 16  # of nested tables; a peer's message must not exhaust the stack
_I64_MAX: Final = 1 << 63
_NESTING: Final = (b"F", b"A")

_FIXED: Final[dict[int, Struct]] = {
    ord("b"): Struct(">b"),
    ord("B"): Struct(">B"),
    ord("s"): Struct(">h"),
    ord("u"): Struct(">H"),
    ord("I"): Struct(">i"),
    ord("i"): Struct(">I"),
    ord("l"): _I64,
    ord("L"): _I64,
    ord("T"): Struct(">Q"),
    ord("f"): Struct(">f"),
    ord("d"): Struct(">d"),
}


_LENGTHS: Final = [bytes((length,)) for length in range(SHORT_MAX + 1)]


# --- out ------------------------------------------------------------------------------------------
def short(text: str | bytes) -> bytes:
    """Encode a short string. Raises `LocalViolation` for one of more than 255 bytes."""
    data = text.encode("utf-8", AS_IT_IS) if isinstance(text, str) else text
    if len(data) > SHORT_MAX:
        raise LocalViolation(f"a short string of AMQP has at most 255 bytes, not {len(data)}")
    return _LENGTHS[len(data)] + data


def long(text: str | bytes) -> bytes:
    """Encode a long string."""
    data = text.encode() if isinstance(text, str) else text
    return _U32.pack(len(data)) + data


def table(values: Mapping[str, Any]) -> bytes:
    """Encode a table. Raises `LocalViolation` for a value without an AMQP type."""
    return long(_entries(values))


def altered_table(
    content: bytes, dropped: Callable[[str], bool], added: Mapping[str, Any]
) -> bytes:
    """Return a copy of an encoded table (without its size) with some entries dropped or replaced.
    All other entries are copied byte for byte.

    Raises `RemoteViolation` for a truncated table.
    """
    kept: list[bytes] = []
    at = 0
    while at < len(content):
        name, end = read_short(content, at)
        end = _end_of_value(content, end)
        if not (name in added or dropped(name)):
            kept.append(content[at:end])
        at = end
    return long(b"".join(kept) + _entries(added))


def _entries(values: Mapping[str, Any]) -> bytes:
    return b"".join(short(name) + _value(value) for name, value in values.items())


def _value(value: Any) -> bytes:
    match value:
        case bool():
            return b"t\x01" if value else b"t\x00"
        case int() if -_I64_MAX <= value < _I64_MAX:
            return b"l" + _I64.pack(value)
        case str():
            return b"S" + long(value)
        case bytes():
            return b"x" + long(value)
        case None:
            return b"V"
        case Mapping():
            return b"F" + table(value)
        case list() | tuple():
            return b"A" + long(b"".join(map(_value, value)))
        case _:
            raise LocalViolation(f"an AMQP table cannot contain {value!r}")


# --- in -------------------------------------------------------------------------------------------
def read_short(data: bytes, at: int, errors: str = "replace") -> tuple[str, int]:
    """Read a short string at an offset; return it and the offset behind it. Invalid UTF-8 is
    replaced, or preserved with `AS_IT_IS`. Raises `RemoteViolation` if the string is truncated."""
    try:
        end = at + 1 + data[at]
    except IndexError:
        raise RemoteViolation("a short string is truncated") from None
    if end > len(data):
        raise RemoteViolation("a short string is truncated")
    return data[at + 1 : end].decode("utf-8", errors), end


def read_long(data: bytes, at: int) -> tuple[bytes, int]:
    """Read a long string at an offset; return it and the offset behind it."""
    if at + 4 > len(data):
        raise RemoteViolation("a long string is truncated")
    end = at + 4 + _U32.unpack_from(data, at)[0]
    if end > len(data):
        raise RemoteViolation("a long string is truncated")
    return data[at + 4 : end], end


def read_table(data: bytes, at: int, depth: int = 0) -> tuple[Table, int]:
    """Read a table at an offset; return it and the offset behind it. Long strings become `str`,
    with invalid UTF-8 replaced; byte arrays become `bytes`."""
    content, end = read_long(data, at)
    values: Table = {}
    at = 0
    while at < len(content):
        name, at = read_short(content, at)
        values[name], at = _read_value(content, at, depth)
    return values, end


def _end_of_value(data: bytes, at: int) -> int:
    """Return the offset behind a value; nested tables and arrays are skipped, not decoded."""
    if data[at : at + 1] in _NESTING:
        return read_long(data, at + 1)[1]
    return _read_value(data, at, 0)[1]


def _read_value(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if depth > _DEPTH_MAX:
        raise RemoteViolation("tables are nested too deeply")
    if at >= len(data):
        raise RemoteViolation("a table is truncated")
    kind = data[at]
    at += 1
    fixed = _FIXED.get(kind)
    try:
        if fixed is not None:
            return fixed.unpack_from(data, at)[0], at + fixed.size
        read = _VARIABLE.get(kind)
        if read is not None:
            return read(data, at, depth)
    except (error, IndexError):
        raise RemoteViolation("a table is truncated") from None
    raise RemoteViolation(f"a table contains a value of the unknown type {chr(kind)!r}")


def _read_bool(data: bytes, at: int, _depth: int) -> tuple[bool, int]:
    return data[at] != 0, at + 1


def _read_text(data: bytes, at: int, _depth: int) -> tuple[str, int]:
    content, end = read_long(data, at)
    return content.decode(errors="replace"), end


def _read_bytes(data: bytes, at: int, _depth: int) -> tuple[bytes, int]:
    return read_long(data, at)


def _read_void(_data: bytes, at: int, _depth: int) -> tuple[None, int]:
    return None, at


def _read_nested(data: bytes, at: int, depth: int) -> tuple[Table, int]:
    return read_table(data, at, depth + 1)


def _read_array(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    content, end = read_long(data, at)
    values: list[Any] = []
    at = 0
    while at < len(content):
        value, at = _read_value(content, at, depth + 1)
        values.append(value)
    return values, end


def _read_decimal(data: bytes, at: int, _depth: int) -> tuple[float, int]:
    unscaled = int.from_bytes(data[at + 1 : at + 5], "big", signed=True)
    scale = data[at]
    if at + 5 > len(data):
        raise RemoteViolation("a table is truncated")
    return unscaled / 10.0**scale, at + 5


_VARIABLE: Final[dict[int, Callable[[bytes, int, int], tuple[Any, int]]]] = {
    ord("t"): _read_bool,
    ord("S"): _read_text,
    ord("x"): _read_bytes,
    ord("V"): _read_void,
    ord("F"): _read_nested,
    ord("A"): _read_array,
    ord("D"): _read_decimal,
}
