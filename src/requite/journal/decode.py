"""Decode blocks to events, one by one, in pure Python: for the command and for tests.

`requite.spark.decoding` does the same for whole columns; both follow `requite.journal.meaning`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from math import isfinite
from typing import Any, NamedTuple

from requite.chronicle import NO_CALL, Kind, WriterRole
from requite.journal import meaning
from requite.journal.blocks import (
    COLUMNS,
    NO_STRING,
    BlockType,
    Header,
    flaw_of,
    owner_mismatch,
    parse_header,
    raw_row,
    read_strings,
    row_values,
)
from requite.journal.event import Event, from_us
from requite.journal.folder import LogFolder
from requite.journal.meaning import KIND_NAMES, STEPS
from requite.storage import Damage, Record
from requite.storage.layout import RECORD_HEADER_SIZE
from requite.storage.records import RAW_SIZE_MAX


class Block(NamedTuple):
    """A valid block of rows. `at` is the offset of its payload in the segment's file."""

    header: Header
    payload: memoryview
    at: int


class Row(NamedTuple):
    """A row of a block; `shared` has the fields that its events share."""

    block: Block
    number: int
    cells: dict[str, Any]
    shared: dict[str, Any]

    def event(self, cell: str, seq: int, at: float, facts: dict[str, Any]) -> Event:
        """Return the event of a cell of the row, at the instant `at`."""
        header = self.block.header
        column = COLUMNS[header.type][cell]
        ts = self.instant(at)
        if ts is None and "raw" not in facts:
            facts |= {"reason": meaning.INSTANT_OUT_OF_RANGE, "raw": self.raw()}
        return Event(
            byte_offset=self.block.at + column.offset(header.rows) + self.number * column.size,
            seq=header.first_seq + seq,
            ts=ts,
            date=ts and ts.date(),
            **facts,
            **self.shared,
        )

    def instant(self, at: float) -> datetime | None:
        """Convert an instant of the writer's clock to UTC; None if it is out of range."""
        return from_us(meaning.wall_us(at, self.block.header.clock_offset_us))

    def raw(self) -> bytes:
        """Return the encoded cells of the row."""
        return raw_row(self.block.payload, self.block.header, self.number)


class SegmentDecoder:
    """Decodes one segment of a log; `take_in` must be called for its blocks in order.

    `take_in` stores the strings of a block, and returns a block of rows; `events` decodes it, at
    any later time, since a string never changes within a segment. A segment that belongs to another
    log is not decoded.
    """

    def __init__(self, log: LogFolder, segment: int) -> None:
        self.segment = segment
        self._log = log
        self._role = log.role
        self._is_stranger = False
        self._texts: dict[int, str | None] = {NO_STRING: None}
        self._digits: dict[int, str | None] = {NO_STRING: None}
        # The fields that all events of the segment share.
        self._same: dict[str, Any] = {
            "log": log.log,
            "segment": segment,
            "broker": log.name if log.role is WriterRole.BROKER else None,
            "role": meaning.ROLE_NAMES[log.role],
        }

    def take_in(self, item: Record | Damage) -> Block | Event | None:
        """Return a block of rows, an event that describes damage, or None."""
        if isinstance(item, Damage):
            return self._flawed(item.offset, item.raw, item.reason)
        if self._is_stranger:
            return None
        at = item.offset + RECORD_HEADER_SIZE
        flaw = flaw_of(item.payload)
        header = parse_header(item.payload)
        if header is None or flaw:
            return self._flawed(at, bytes(item.payload[:RAW_SIZE_MAX]), flaw)
        if header.type == BlockType.STRINGS:
            self._learn(item.payload)
        if header.type == BlockType.OPENED:
            flaw = owner_mismatch(item.payload, meaning.ROLE_NAMES[self._role], self._log.name)
            if flaw:
                self._is_stranger = True
                return self._flawed(at, bytes(item.payload[:RAW_SIZE_MAX]), flaw)
        return Block(header, item.payload, at) if header.type in COLUMNS else None

    def events(self, block: Block, call_ids: Collection[bytes] | None = None) -> Iterator[Event]:
        """Yield the events of a block, row by row; with `call_ids`, those of these requests."""
        header = block.header
        names = tuple(COLUMNS[header.type])
        expand = self._span if header.type == BlockType.SPANS else self._event_row
        for number, values in enumerate(row_values(block.payload, header)):
            cells = dict(zip(names, values, strict=True))
            call_id = cells["call_id"]
            if call_ids is not None and call_id not in call_ids:
                continue
            request_id = None if call_id == NO_CALL else call_id.hex()
            shared = {
                "schema_version": header.version,
                "request_id": request_id,
                "client": request_id and request_id[:16],
                "service": self._text(cells["service"]),
            }
            yield from expand(Row(block, number, cells, self._same | shared))

    def _flawed(self, offset: int, raw: bytes, reason: str) -> Event:
        return Event(schema_version=None, byte_offset=offset, reason=reason, raw=raw, **self._same)

    def _span(self, row: Row) -> Iterator[Event]:
        cells = row.cells
        for step in STEPS[self._role]:
            if step.kind is Kind.QUEUED and not cells["second_at"] > cells["first_at"]:
                continue
            facts: dict[str, Any] = {
                "kind": KIND_NAMES[step.kind],
                "attempt": step.attempt,
            }
            if step.outcome is not None:
                facts["outcome"] = step.outcome.name
            if step.has_worker:
                facts["worker"] = self._hex(cells["worker"])
            if step.size:
                facts["bytes"] = cells[step.size]
            if step.has_deadline:
                facts["deadline"] = row.instant(cells["deadline"])
            yield row.event(step.cell, 4 * row.number + step.number, cells[step.at], facts)

    def _event_row(self, row: Row) -> Iterator[Event]:
        cells = row.cells
        kind = cells["kind"]
        facts: dict[str, Any] = {
            "kind": meaning.kind_name(kind),
            "worker": self._hex(cells["worker"]),
            "attempt": cells["attempt"] or None,
            "outcome": meaning.outcome_name(cells["outcome"]),
            "error_class": self._text(cells["error"]),
            "reason": self._text(cells["reason"]),
        }
        if kind in meaning.SIZE_KINDS:
            facts["bytes"] = cells["size"]
        if kind in meaning.DEADLINE_KINDS:
            facts["deadline"] = row.instant(cells["value"])
        if kind in meaning.GAP_KINDS and isfinite(cells["value"]):
            facts["gap_s"] = cells["value"]
        if kind == Kind.DROPPED and isfinite(cells["value"]):
            facts["dropped"] = int(cells["value"])
        if kind in meaning.STAFF_KINDS:
            facts |= {name: min(cells[name], meaning.INT_MAX) for name in ("busy", "capacity")}
        if kind not in KIND_NAMES:
            facts |= {"reason": meaning.unknown_kind(kind), "raw": row.raw()}
        yield row.event("at", row.number, cells["at"], facts)

    # --- strings --------------------------------------------------------------------------------
    def _learn(self, payload: memoryview) -> None:
        for number, string in read_strings(payload):
            if number != NO_STRING:
                self._texts[number] = meaning.text_of(string)
                self._digits[number] = string.hex()

    def _text(self, number: int) -> str | None:
        if number in self._texts:
            return self._texts[number]
        return meaning.undefined_string(number)

    def _hex(self, number: int) -> str | None:
        if number in self._digits:
            return self._digits[number]
        return meaning.undefined_string(number)
