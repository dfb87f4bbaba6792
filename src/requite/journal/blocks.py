"""The content of a journal record: a *block* of rows, by columns, little-endian.

    header (24 bytes), then
    OPENED      JSON about the process, padded with spaces
    STRINGS     count × (id u32, length u16, bytes), padded with zeros
    SPANS     the columns of `SPAN_COLUMNS`, one after the other
    EVENTS  the columns of `EVENT_COLUMNS`, likewise

The layout is data, which the pure Python decoder and the numpy decoder share. A column of a block
of n rows starts at `Column.offset(n)` of the payload and has `n * Column.size` bytes. Records are
aligned to 8 bytes in their segment, and so are 8-byte cells. Source: docs/protocols/log-format.md,
section "Blocks of a journal".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import IntEnum
from itertools import accumulate
from struct import Struct, calcsize, unpack_from
from typing import Any, Final, NamedTuple

SCHEMA_VERSION: Final = 1
PURPOSE: Final = b"JRNL"

HEADER: Final = Struct("<BBHIqQ")  # type, schema version, reserved, count, clock offset, first seq
HEADER_SIZE: Final = HEADER.size
STRING_HEAD: Final = Struct("<IH")  # id, length

NO_STRING: Final = 0
STRING_SIZE_MAX: Final = 1024  # longer ones are cut, so that each block fits a segment
CLOCK_OFFSET_MAX: Final = 1 << 61  # µs; keeps every sum in 64 bits
SEQ_MAX: Final = 1 << 61


class BlockType(IntEnum):
    """The kind of content of a block."""

    OPENED = 0
    STRINGS = 1
    SPANS = 2
    EVENTS = 3


class Header(NamedTuple):
    """The head of a block.

    `rows` counts its rows or strings. `clock_offset_us` plus a row's instant in µs is UTC since
    1970. `first_seq` is the number, in this log, of the first event of the block.
    """

    type: int
    version: int
    rows: int
    clock_offset_us: int
    first_seq: int


class Column(NamedTuple):
    """One column: `dtype` is numpy's; `size` bytes per cell, `before` bytes per row ahead of it."""

    name: str
    dtype: str
    size: int
    before: int

    def offset(self, rows: int) -> int:
        """Return where the column starts in the payload of a block of so many rows."""
        return HEADER_SIZE + self.before * rows


# Per dtype: the code of `struct` for a cell.
_CODES: Final = {"<f8": "d", "<u4": "I", "<u2": "H", "u1": "B", "V16": "16s"}


def _columns(**dtypes: str) -> dict[str, Column]:
    sizes = [calcsize(f"<{_CODES[dtype]}") for dtype in dtypes.values()]
    before = accumulate(sizes, initial=0)
    return {
        name: Column(name, dtype, size, next(before))
        for (name, dtype), size in zip(dtypes.items(), sizes, strict=True)
    }


SPAN_COLUMNS: Final[Mapping[str, Column]] = _columns(
    first_at="<f8",
    second_at="<f8",
    third_at="<f8",
    deadline="<f8",
    call_id="V16",
    service="<u4",
    worker="<u4",
    request_size="<u4",
    reply_size="<u4",
)
EVENT_COLUMNS: Final[Mapping[str, Column]] = _columns(
    at="<f8",
    value="<f8",
    call_id="V16",
    service="<u4",
    worker="<u4",
    error="<u4",
    reason="<u4",
    size="<u4",
    busy="<u4",
    capacity="<u4",
    attempt="<u2",
    kind="u1",
    outcome="u1",
)
COLUMNS: Final[Mapping[int, Mapping[str, Column]]] = {
    BlockType.SPANS: SPAN_COLUMNS,
    BlockType.EVENTS: EVENT_COLUMNS,
}
ROW_SIZE: Final = 64  # of spans and event rows alike
SEQS_PER_ROW: Final[Mapping[int, int]] = {
    BlockType.OPENED: 0,
    BlockType.STRINGS: 0,
    BlockType.SPANS: 4,  # one for each event that a span may stand for
    BlockType.EVENTS: 1,
}

Buffer = bytes | memoryview


def parse_header(payload: Buffer) -> Header | None:
    """Return the header of a block; None if the payload is shorter."""
    if len(payload) < HEADER_SIZE:
        return None
    kind, version, _reserved, count, clock_offset_us, first_seq = HEADER.unpack_from(payload)
    return Header(kind, version, count, clock_offset_us, first_seq)


def flaw_of(payload: Buffer) -> str:
    """Return why a block cannot be decoded, in one sentence; "" if it can."""
    header = parse_header(payload)
    if header is None:
        return f"a block of {len(payload)} bytes is shorter than its header"
    if header.version != SCHEMA_VERSION:
        return f"schema version {header.version}; this reader supports {SCHEMA_VERSION}"
    if header.type not in SEQS_PER_ROW:
        return f"unknown block type {header.type}"
    if abs(header.clock_offset_us) > CLOCK_OFFSET_MAX:
        return f"a clock offset of {header.clock_offset_us} µs is out of range"
    if header.first_seq > SEQ_MAX:
        return f"the event number {header.first_seq} is out of range"
    if header.type in COLUMNS and len(payload) != HEADER_SIZE + header.rows * ROW_SIZE:
        return f"{header.rows} rows do not make a block of {len(payload)} bytes"
    return ""


def column_of(payload: Buffer, name: str, header: Header) -> memoryview:
    """Return the bytes of one column of a valid block, without a copy."""
    column = COLUMNS[header.type][name]
    start = column.offset(header.rows)
    return memoryview(payload)[start : start + column.size * header.rows]


def raw_row(payload: Buffer, header: Header, row: int) -> bytes:
    """Return the cells of one row, in the order of the columns: 64 bytes."""
    view = memoryview(payload)
    starts = (
        (column.offset(header.rows) + row * column.size, column.size)
        for column in COLUMNS[header.type].values()
    )
    return b"".join(view[start : start + size] for start, size in starts)


def read_strings(payload: Buffer) -> Iterator[tuple[int, bytes]]:
    """Yield the strings that a STRINGS block defines, up to a truncated end."""
    header = parse_header(payload)
    at = HEADER_SIZE
    for _ in range(header.rows if header else 0):
        if at + STRING_HEAD.size > len(payload):
            return
        number, length = STRING_HEAD.unpack_from(payload, at)
        at += STRING_HEAD.size
        if at + length > len(payload):
            return
        yield number, bytes(payload[at : at + length])
        at += length


def read_opened(payload: Buffer) -> dict[str, Any]:
    """Return the facts in an OPENED block about its process; {} if it is not readable."""
    try:
        facts = json.loads(bytes(payload[HEADER_SIZE:]))
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def owner_mismatch(payload: Buffer, role: str, name: str) -> str:
    """Return why an OPENED block does not belong to the log `ROLE-NAME`; "" if it does."""
    facts = read_opened(payload)
    owner = facts.get("role"), facts.get("name")
    if owner[1] is None or owner == (role, name):
        return ""
    return f"the segment belongs to another log: {owner[0]}-{owner[1]}"


def cells_of(payload: Buffer, name: str, header: Header) -> tuple[Any, ...]:
    """Return the cells of one column of a valid block."""
    return _cells(payload, COLUMNS[header.type][name], header.rows)


def row_values(payload: Buffer, header: Header) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a valid block, with cells in the order of the columns."""
    cells = (_cells(payload, column, header.rows) for column in COLUMNS[header.type].values())
    return zip(*cells, strict=True)


def _cells(payload: Buffer, column: Column, rows: int) -> tuple[Any, ...]:
    code = _CODES[column.dtype]
    layout = f"<{rows}{code}" if len(code) == 1 else f"<{code * rows}"
    return unpack_from(layout, payload, column.offset(rows))
