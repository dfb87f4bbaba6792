"""Rows of a journal, gathered from several blocks so that numpy works on long arrays.

Columns are computed once: the three or four events of a span share their request ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from requite.chronicle import CALL_ID_SIZE, WriterRole
from requite.journal import blocks, meaning
from requite.journal.blocks import SEQS_PER_ROW, BlockType, Header
from requite.spark.decoding.columns import (
    TIMESTAMP,
    Array,
    Constant,
    Numbers,
    dates,
    hexadecimal,
    plain,
    texts,
)

INT32: Final = pa.int32()
INT64: Final = pa.int64()
STRING: Final = pa.string()
_SUM_MAX: Final = float(blocks.CLOCK_OFFSET_MAX)


class SegmentSource(NamedTuple):
    """The source of blocks: a log (`ROLE-NAME`) and a segment (number of its first record)."""

    log: str
    role: WriterRole
    name: str
    segment: int

    @property
    def role_name(self) -> str:
        return meaning.ROLE_NAMES[self.role]

    @property
    def broker(self) -> str | None:
        return self.name if self.role is WriterRole.BROKER else None


class Block(NamedTuple):
    """A sound block of rows, and the offset of its payload in the segment's file."""

    header: Header
    payload: memoryview
    at: int


class Strings:
    """The interned strings of a segment, as text and as hexadecimal digits."""

    def __init__(self) -> None:
        self._strings: dict[int, bytes] = {}
        self._tables: dict[Callable[[bytes], str], Array] = {}

    def define(self, definitions: Iterable[tuple[int, bytes]]) -> None:
        self._strings.update(definitions)
        self._tables.clear()

    def contradict(self, definitions: Iterable[tuple[int, bytes]]) -> bool:
        """Whether a number is already defined as another string, as in no sound journal."""
        known = self._strings
        return any(known.get(number, string) != string for number, string in definitions)

    def texts(self, numbers: Numbers) -> Array | Constant:
        """Return the strings of these numbers as text; null for "none"."""
        return self._look_up(numbers, meaning.text_of)

    def digits(self, numbers: Numbers) -> Array | Constant:
        """Return the strings of these numbers as hexadecimal digits; null for "none"."""
        return self._look_up(numbers, bytes.hex)

    def _look_up(self, numbers: Numbers, show: Callable[[bytes], str]) -> Array | Constant:
        """Look up strings by number, with fast paths for one string and for a few."""
        first, largest = int(numbers[0]), int(numbers.max())
        if largest == first and int(numbers.min()) == first:
            return Constant(self._show(first, show), STRING)
        if largest > len(self._strings):  # numbers are consecutive, so definitions are missing
            return texts([self._show(int(number), show) for number in numbers])
        return self._table(show).take(plain(numbers.astype(np.int32), INT32))

    def _table(self, show: Callable[[bytes], str]) -> Array:
        """Return the string table as a column indexed by string id."""
        table = self._tables.get(show)
        if table is None:
            numbers = range(len(self._strings) + 1)
            table = self._tables[show] = texts([self._show(number, show) for number in numbers])
        return table

    def _show(self, number: int, show: Callable[[bytes], str]) -> str | None:
        if number == blocks.NO_STRING:
            return None
        string = self._strings.get(number)
        return meaning.undefined_string(number) if string is None else show(string)


def _within(values: Numbers, least: float, limit: float) -> bool:
    """Return whether all values are in [least, limit); False if any is NaN."""
    return bool(values.min() >= least and values.max() < limit)


class Instants(NamedTuple):
    """UTC instants in µs since 1970; `valid` is False for those out of range (None: all valid)."""

    us: Numbers
    valid: Numbers | None

    @classmethod
    def of(cls, seconds: Numbers, offset_us: Numbers) -> Instants:
        """Convert from a writer's clock; the column form of `meaning.wall_us`."""
        with np.errstate(invalid="ignore", over="ignore"):
            near = seconds * 1e6
            us = np.rint(near).astype(np.int64) + offset_us
        if _within(near, -_SUM_MAX, _SUM_MAX) and _within(us, 0, meaning.MICROSECONDS_MAX):
            return cls(us, None)
        valid = (np.abs(near) < _SUM_MAX) & (us >= 0) & (us < meaning.MICROSECONDS_MAX)
        return cls(np.where(valid, us, 0), valid)

    @property
    def ts(self) -> Array:
        return plain(self.us, TIMESTAMP, self.valid)

    @property
    def date(self) -> Array:
        return dates(self.us, self.valid)

    def only(self, chosen: Numbers) -> Array:
        """Return the instants of the chosen rows; null for the others."""
        return plain(self.us, TIMESTAMP, chosen if self.valid is None else chosen & self.valid)


class Rows:
    """The rows of several blocks, at least one, of one type and one segment, column by column."""

    def __init__(self, gathered: Sequence[Block], strings: Strings, place: SegmentSource) -> None:
        self.blocks = gathered
        self.strings = strings
        self.place = place
        self.type = BlockType(gathered[0].header.type)
        self.counts = np.array([block.header.rows for block in gathered])
        self.count = int(self.counts.sum())
        self._instants: dict[str, Instants] = {}

    def column(self, name: str) -> Numbers:
        """Return the cells of a column; call ids as bytes, 16 per row."""
        layout = blocks.COLUMNS[self.type][name]
        dtype, width = ("u1", CALL_ID_SIZE) if layout.dtype == "V16" else (layout.dtype, 1)
        cells = [
            np.frombuffer(block.payload, dtype, rows * width, layout.offset(rows))
            for block in self.blocks
            for rows in (block.header.rows,)
        ]
        return np.concatenate(cells)

    def spread(self, values: Sequence[int]) -> Numbers:
        """Repeat each block's value for each of its rows."""
        return np.repeat(np.array(values, dtype=np.int64), self.counts)

    def instants(self, name: str) -> Instants:
        """Return a column of instants on the writer's clock as UTC."""
        found = self._instants.get(name)
        if found is None:
            found = self._instants[name] = Instants.of(self.column(name), self._clock_offset_us)
        return found

    def seq(self, step: int = 0) -> Array:
        """Return the sequence number of each row's event of this step."""
        return plain(self._first_seq + step, INT64)

    def byte_offset(self, column: str) -> Array:
        """Return the offset in the segment's file of each row's 8-byte cell of a column."""
        layout = blocks.COLUMNS[self.type][column]
        starts = [block.at + layout.offset(block.header.rows) for block in self.blocks]
        return plain(self.spread(starts) + 8 * self._index, INT64)

    @cached_property
    def request_id(self) -> Array:
        """The call ids in hexadecimal; null for rows without one."""
        cells, named = self._calls
        return hexadecimal(cells, named)

    @cached_property
    def client(self) -> Array:
        """The client's id: the first half of the call id."""
        cells, named = self._calls
        return hexadecimal(cells[:, : CALL_ID_SIZE // 2], named)

    @cached_property
    def service(self) -> Array | Constant:
        return self.strings.texts(self.column("service"))

    @cached_property
    def worker(self) -> Array | Constant:
        return self.strings.digits(self.column("worker"))

    def raw(self, chosen: Numbers) -> Array:
        """Return the raw bytes of the chosen rows; null for the others."""
        block_of = np.repeat(np.arange(len(self.blocks)), self.counts)
        raw: list[bytes | None] = [None] * self.count
        for row in np.flatnonzero(chosen):
            block = self.blocks[block_of[row]]
            raw[row] = blocks.raw_row(block.payload, block.header, int(self._index[row]))
        return pa.array(raw, pa.binary())

    @cached_property
    def _index(self) -> Numbers:
        """The index of each row within its block."""
        ends = np.cumsum(self.counts)
        starts: Numbers = np.repeat(ends - self.counts, self.counts)
        return np.arange(self.count, dtype=np.int64) - starts

    @cached_property
    def _first_seq(self) -> Numbers:
        # Unsigned 64-bit: in a foreign log the numbers may overflow, and wrap around.
        first = np.array([block.header.first_seq for block in self.blocks], dtype=np.uint64)
        seq: Numbers = np.repeat(first, self.counts).view(np.int64)
        seq += self._index * SEQS_PER_ROW[self.type]
        return seq

    @cached_property
    def _clock_offset_us(self) -> Numbers:
        return self.spread([block.header.clock_offset_us for block in self.blocks])

    @cached_property
    def _calls(self) -> tuple[Numbers, Numbers | None]:
        """The call ids, and a mask of the rows that have one (None: all)."""
        cells = self.column("call_id")
        named: Numbers = np.any(cells.view("<u8").reshape(-1, 2), axis=1)
        return cells.reshape(-1, CALL_ID_SIZE), None if named.all() else named
