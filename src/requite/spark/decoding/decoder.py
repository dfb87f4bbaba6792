"""Decodes blocks of a journal to Arrow batches, column by column.

A block stores its columns one after the other, and a row of a span stands for three or four events
(`requite.journal.meaning`). The decoder gathers the rows of many blocks (`rows.py`) and expands
each step of the spans to one batch (`expand.py`). Most columns of such a batch are constants;
expensive ones, such as the hexadecimal request ids, are computed once and shared. Only rows that do
not decode are handled one by one in Python.

Events are not yielded in order; `seq` gives their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from requite.journal import blocks
from requite.journal.blocks import BlockType
from requite.journal.meaning import STEPS, kind_name
from requite.spark.decoding import expand
from requite.spark.decoding.columns import Constant, Numbers, arrow_types, booleans
from requite.spark.decoding.rows import INT64, STRING, Block, Rows, SegmentSource, Strings
from requite.spark.schemas import SOURCE

TYPES: Final[Mapping[str, Any]] = arrow_types(SOURCE)
NAMES: Final = tuple(TYPES)

# Rows decoded together: enough to amortise the cost of a batch, few enough for the CPU caches.
ROWS_TOGETHER: Final = 1 << 14
RAW_SIZE_MAX: Final = 4096

Batch: TypeAlias = Any  # a pyarrow.RecordBatch


class Unread(NamedTuple):
    """Undecodable data: its offset, its first bytes (up to 4,096), and the reason."""

    byte_offset: int
    raw: bytes
    reason: str


def arrow_schema(names: Sequence[str]) -> Any:
    """Return the Arrow schema of the named columns."""
    return pa.schema([(name, TYPES[name]) for name in names])


class Decoder:
    """Decodes the blocks of one segment, in order, to batches of the named columns.

    `feed` and `skip` yield batches when enough rows are gathered, `finish` yields the rest. Spans'
    events of unwanted kinds are left out; other unwanted events may be yielded. A segment that
    belongs to another log yields only that error.
    """

    def __init__(
        self,
        place: SegmentSource,
        names: Sequence[str],
        wants: Callable[[str], bool] = lambda kind: True,
    ) -> None:
        self._place = place
        self._wants = wants
        self._schema = arrow_schema(names)
        self._strings = Strings()
        self._gathered: dict[int, list[Block]] = {}
        self._unread: list[Unread] = []
        self._waiting = 0
        self._is_stranger = False

    def define(self, payload: memoryview) -> None:
        """Read strings and owner from a block that precedes the range to decode."""
        header = blocks.parse_header(payload)
        if header and header.type == BlockType.STRINGS and not blocks.flaw_of(payload):
            self._strings.define(blocks.read_strings(payload))
        elif header and header.type == BlockType.OPENED and self._flaw_of_owner(payload):
            self._is_stranger = True

    def _flaw_of_owner(self, payload: memoryview) -> str:
        if blocks.flaw_of(payload):
            return ""
        return blocks.owner_mismatch(payload, self._place.role_name, self._place.name)

    def _redefine(self, payload: memoryview) -> Iterator[Batch]:
        """Read strings; if they redefine some, first decode the rows that refer to the old ones."""
        definitions = list(blocks.read_strings(payload))
        if self._strings.contradict(definitions):
            yield from self.finish()
        self._strings.define(definitions)

    def feed(self, payload: memoryview, at: int) -> Iterator[Batch]:
        """Decode a block whose payload starts at `at` in the segment's file."""
        if self._is_stranger:
            return iter(())
        header = blocks.parse_header(payload)
        flaw = blocks.flaw_of(payload)
        if header is not None and header.type == BlockType.OPENED and not flaw:
            flaw = self._flaw_of_owner(payload)
            self._is_stranger = bool(flaw)
        if header is None or flaw:
            return self.skip(Unread(at, bytes(payload[:RAW_SIZE_MAX]), flaw))
        if header.type in blocks.COLUMNS and header.rows:
            self._gathered.setdefault(header.type, []).append(Block(header, payload, at))
            return self._take_in(header.rows)
        return self._redefine(payload) if header.type == BlockType.STRINGS else iter(())

    def skip(self, unread: Unread) -> Iterator[Batch]:
        """Add undecodable data."""
        self._unread.append(unread)
        return self._take_in(1)

    def _take_in(self, rows: int) -> Iterator[Batch]:
        self._waiting += rows
        return self.finish() if self._waiting >= ROWS_TOGETHER else iter(())

    def finish(self) -> Iterator[Batch]:
        """Yield the batches of all gathered rows."""
        gathered, self._gathered = self._gathered, {}
        unread, self._unread = self._unread, []
        self._waiting = 0
        for kind, together in gathered.items():
            rows = Rows(together, self._strings, self._place)
            if kind == BlockType.SPANS:
                yield from self._spans(rows)
            else:
                yield self._batch(expand.event_rows(rows), rows.count)
        if unread:
            yield self._batch(self._flawed(unread), len(unread))

    def _spans(self, rows: Rows) -> Iterator[Batch]:
        for step in STEPS[self._place.role]:
            happened = expand.happened(rows, step)
            if happened.any() and self._wants(kind_name(step.kind)):
                yield self._batch(expand.spans(rows, step), rows.count, happened)

    def _flawed(self, unread: Sequence[Unread]) -> expand.Makers:
        place = self._place
        offsets, raws, reasons = zip(*unread, strict=True)
        return {
            "log": Constant(place.log, STRING),
            "role": Constant(place.role_name, STRING),
            "broker": Constant(place.broker, STRING),
            "segment": Constant(place.segment, INT64),
            "byte_offset": lambda: pa.array(offsets, INT64),
            "raw": lambda: pa.array(raws, pa.binary()),
            "reason": lambda: pa.array(reasons, STRING),
        }

    def _batch(self, makers: expand.Makers, count: int, happened: Numbers | None = None) -> Batch:
        """Build a batch of `count` rows, or of those where `happened` is True."""
        chosen, left = None, count
        if happened is not None and not happened.all():
            chosen, left = booleans(happened), int(np.count_nonzero(happened))
        arrays = []
        for field in self._schema:
            maker = makers.get(field.name) or Constant(None, field.type)
            made = maker if isinstance(maker, Constant) else maker()
            if isinstance(made, Constant):
                arrays.append(made.of(left))
            else:
                arrays.append(made if chosen is None else made.filter(chosen))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
