"""The columnar decoder, without Spark, compared with the pure Python decoder."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.journal import rows
from tests.spark.source.journals import NOON_US, Row, in_order, span

from requite.chronicle import EventRow, Kind, SpanRow, WriterRole
from requite.journal.blocks import BlockType
from requite.journal.decode import SegmentDecoder
from requite.journal.encode import encode_event_rows, encode_spans, encode_strings
from requite.journal.folder import LogFolder, log_name
from requite.journal.strings import Strings
from requite.spark.decoding.decoder import NAMES, Decoder, SegmentSource, arrow_schema
from requite.storage import Damage, Record
from requite.storage.layout import RECORD_HEADER_SIZE

ROLES = [WriterRole.BROKER, WriterRole.CLIENT, WriterRole.WORKER]
NAME = b"\x01nstance"


def records(payloads: Sequence[bytes]) -> list[Record]:
    found, offset = [], 64
    for number, payload in enumerate(payloads):
        found.append(Record(7, offset, number, memoryview(payload)))
        offset = found[-1].end
    return found


def by_columns(
    role: WriterRole, items: Sequence[Record | Damage], names: Sequence[str] = NAMES
) -> list[Row]:
    """Return the rows of the columnar decoder."""
    decoder = Decoder(SegmentSource(log_name(role, NAME), role, NAME.hex(), 7), names)
    batches = [batch for item in items for batch in decoder.feed(item.payload, item.offset + 24)]
    batches += decoder.finish()
    assert all(batch.schema == arrow_schema(names) for batch in batches)
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def by_rows(role: WriterRole, items: Sequence[Record]) -> Iterator[Row]:
    """Yield the rows of the pure Python decoder."""
    log = LogFolder(log_name(role, NAME), role, NAME.hex())
    decoder = SegmentDecoder(log, 7)
    for item in items:
        found = decoder.take_in(item)
        if found is None:
            continue
        events = [found] if not hasattr(found, "payload") else decoder.events(found)
        yield from (event._asdict() for event in events)


def payloads(
    spans: Sequence[SpanRow], event_rows: Sequence[EventRow], clock_offset_us: int = NOON_US
) -> list[bytes]:
    """Return the blocks of rows, with the blocks of their strings first."""
    strings = Strings()
    blocks = []
    if spans:
        blocks.append(encode_spans(spans, strings, clock_offset_us, 100))
    if event_rows:
        blocks.append(encode_event_rows(event_rows, strings, clock_offset_us - 5, 500))
    return [*encode_strings(strings.fresh, clock_offset_us, 0), *blocks]


@pytest.mark.parametrize("role", ROLES)
@given(
    spans=st.lists(rows.span_rows, max_size=6),
    event_rows=st.lists(rows.event_rows, max_size=6),
    clock_offset_us=st.integers(-(10**15), 4 * 10**15) | st.just(1 << 61),
)
def test_agrees_with_the_reader_in_pure_python(
    role: WriterRole, spans: list[SpanRow], event_rows: list[EventRow], clock_offset_us: int
) -> None:
    items = records(payloads(spans, event_rows, clock_offset_us))
    assert in_order(by_columns(role, items)) == in_order(by_rows(role, items))


@given(st.lists(st.binary(max_size=200), max_size=4))
def test_agrees_about_garbage(garbage: list[bytes]) -> None:
    items = records(garbage)
    assert in_order(by_columns(WriterRole.BROKER, items)) == in_order(
        by_rows(WriterRole.BROKER, items)
    )


@given(st.data())
def test_agrees_about_changed_bytes(data: st.DataObject) -> None:
    """A writer with a bug may write any bytes with a valid checksum."""
    changed = [bytearray(each) for each in payloads(rows.SPANS, rows.EVENTS)]
    for _ in range(data.draw(st.integers(1, 4))):
        block = changed[data.draw(st.integers(0, len(changed) - 1))]
        block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))
    items = records([bytes(block) for block in changed])
    assert in_order(by_columns(WriterRole.BROKER, items)) == in_order(
        by_rows(WriterRole.BROKER, items)
    )


def test_rows_of_many_blocks_are_combined() -> None:
    blocks = [payloads([span(n, n / 4, queued=n % 2 == 0)], []) for n in range(20)]
    # All blocks number their strings alike, so one block of strings serves them all.
    items = records([blocks[0][0], *(each[-1] for each in blocks)])
    decoder = Decoder(SegmentSource("broker-x", WriterRole.BROKER, "x", 7), NAMES)
    for item in items:
        assert not list(decoder.feed(item.payload, item.offset + RECORD_HEADER_SIZE))
    batches = list(decoder.finish())
    assert [batch.num_rows for batch in batches] == [20, 10, 20, 20]
    assert not list(decoder.finish())


@pytest.mark.parametrize("at", [nan, inf, -inf, 1e300, -1e10])
def test_an_instant_out_of_range_is_a_reason(at: float) -> None:
    good = span(1)
    items = records(payloads([(at, *good[1:]), good], [EventRow(at, Kind.OPENED)]))
    found = by_columns(WriterRole.CLIENT, items)
    flawed = [row for row in found if row["raw"] is not None]
    assert len(flawed) == 2
    assert {row["reason"] for row in flawed} == {"its time is out of range"}
    assert all(row["ts"] is None and len(row["raw"]) == 64 for row in flawed)
    assert len(found) == 7


def test_a_row_of_an_unknown_kind_has_its_raw_cells() -> None:
    odd = EventRow(3.0, 77, rows.CALL, b"echo", reason="a later version knows")
    (found,) = by_columns(WriterRole.BROKER, records(payloads([], [odd])))
    assert found["kind"] == "unknown:77"
    assert found["reason"] == "unknown kind 77"
    assert found["raw"].startswith(struct.pack("<d", 3.0))
    assert found["request_id"] == rows.CALL.hex()


@pytest.mark.parametrize("names", [("ts",), ("kind", "ts", "raw"), ("date", "request_id")])
def test_only_requested_columns_are_decoded(names: tuple[str, ...]) -> None:
    items = records(payloads(rows.SPANS, rows.EVENTS))
    every = by_columns(WriterRole.BROKER, items)
    assert by_columns(WriterRole.BROKER, items, names) == [
        {name: row[name] for name in names} for row in every
    ]


def test_undefined_strings_are_named_by_their_numbers() -> None:
    items = records(payloads(rows.SPANS, []))
    lost = items[1:]  # without the first block, which defines them
    assert items[0].payload[0] == BlockType.STRINGS
    found = by_columns(WriterRole.BROKER, lost)
    assert {row["service"] for row in found} == {"unknown:1", "unknown:2"}
    assert [row["worker"] for row in found if row["worker"]] == ["unknown:3", "unknown:4"] * 2
