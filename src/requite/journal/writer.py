"""Write rows to a log, block by block, without threads or time: segments, strings and numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from requite.chronicle import EventRow, SpanRow
from requite.journal.blocks import HEADER_SIZE, ROW_SIZE, SEQS_PER_ROW, BlockType
from requite.journal.encode import (
    ROWS_PER_BLOCK,
    PressedSpans,
    encode_event_rows,
    encode_opened,
    encode_pressed,
    encode_spans,
    encode_strings,
)
from requite.journal.strings import Strings
from requite.storage.layout import record_size
from requite.storage.records import Position

Row = TypeVar("Row")
Rows = TypeVar("Rows")
Encode = Callable[[Rows, Strings, int, int], bytes]

# EventRows have reasons: so many with the longest strings fill half of the smallest segment.
EVENTS_PER_BLOCK: Final = 128

# The reserve of a segment, in which the log records on a full disk how many rows were dropped, and
# its end. A single row takes 112 bytes, so the reserve holds 73.
RESERVE: Final = 1 << 13
_LAST: Final = 2 * record_size(HEADER_SIZE + ROW_SIZE)  # the part of it for the last rows
_AS_GOOD_AS_FULL: Final = RESERVE + (1 << 16)


class AppendOnly(Protocol):
    """The methods of a log that the writer uses."""

    @property
    def segment(self) -> int:
        """The number of the active segment."""

    def room(self, count: int = 1) -> int:
        """Return the total bytes that `count` payloads may have to fit into the active segment."""

    def append(self, payloads: Sequence[bytes]) -> list[Position]:
        """Append all records. After a `StorageError` none was appended."""

    def rotate(self) -> None:
        """Begin a new segment."""


class BlockWriter:
    """Encodes rows as blocks, and appends them.

    Each segment begins with OPENED, and defines its strings before the rows that use them. Written
    rows are removed from the given lists, so after a `StorageError` the rest can be retried.
    """

    def __init__(self, log: AppendOnly, facts: Mapping[str, Any], next_seq: int = 0) -> None:
        self._log = log
        self._facts = facts
        self._begin()
        self.next_seq = next_seq
        self.bytes_written = 0

    def write_spans(self, rows: list[SpanRow], clock_offset_us: int) -> None:
        """Write spans. Raises `StorageError`."""
        self._write(rows, BlockType.SPANS, encode_spans, ROWS_PER_BLOCK, clock_offset_us)

    def write_pressed(self, pressed: list[PressedSpans], clock_offset_us: int) -> None:
        """Write spans in columns, each as a block. Raises `StorageError`."""
        while pressed:
            spans = pressed[0]
            self._append(self._encode(spans, encode_pressed, clock_offset_us))
            self.next_seq += SEQS_PER_ROW[BlockType.SPANS] * spans.rows
            del pressed[0]

    def write_event_rows(self, rows: list[EventRow], clock_offset_us: int) -> None:
        """Write event rows. Raises `StorageError`."""
        kind, size = BlockType.EVENTS, EVENTS_PER_BLOCK
        self._write(rows, kind, encode_event_rows, size, clock_offset_us)

    def tell(self, row: EventRow, clock_offset_us: int, *, last: bool = False) -> None:
        """Write a row without strings, into the reserve if necessary. Raises `StorageError`.

        A part of the reserve is for the `last` rows only: DROPPED and CLOSED.
        """
        spare = 0 if last else _LAST
        self._append(self._encode([row], encode_event_rows, clock_offset_us, spare))
        self.next_seq += SEQS_PER_ROW[BlockType.EVENTS]

    def make_room(self) -> None:
        """Begin a new segment if this one is nearly full. Raises `StorageError`."""
        if not self._is_empty and self._log.room() < _AS_GOOD_AS_FULL:
            self._log.rotate()

    def _write(
        self,
        rows: list[Row],
        kind: BlockType,
        encode: Encode[Sequence[Row]],
        per_block: int,
        offset_us: int,
    ) -> None:
        while rows:
            part = rows[:per_block]
            self._append(self._encode(part, encode, offset_us))
            self.next_seq += SEQS_PER_ROW[kind] * len(part)
            del rows[:per_block]

    def _encode(
        self, rows: Rows, encode: Encode[Rows], offset_us: int, spare: int = RESERVE
    ) -> list[bytes]:
        """Encode rows for a segment that has space for them and for `spare` bytes."""
        if self._log.segment != self._segment:  # a new one, which could not be begun before
            self._begin()
        blocks = self._blocks(rows, encode, offset_us)
        if not self._is_empty and sum(map(len, blocks)) > self._log.room(len(blocks)) - spare:
            self._log.rotate()
            self._begin()
            blocks = self._blocks(rows, encode, offset_us)
        return blocks

    def _begin(self) -> None:
        self._segment = self._log.segment
        self._strings = Strings()
        self._is_empty = True

    def _blocks(self, rows: Rows, encode: Encode[Rows], offset_us: int) -> list[bytes]:
        """Encode a block of rows, after the blocks that define its strings."""
        block = encode(rows, self._strings, offset_us, self.next_seq)
        opened: list[bytes] = []
        if self._is_empty:
            opened = [encode_opened(self._facts, offset_us, self.next_seq)]
        return [*opened, *encode_strings(self._strings.fresh, offset_us, self.next_seq), block]

    def _append(self, blocks: Sequence[bytes]) -> None:
        """Append blocks, and mark their strings as defined."""
        self._log.append(blocks)
        self.bytes_written += sum(map(record_size, map(len, blocks)))
        self._strings.fresh.clear()
        self._is_empty = False
