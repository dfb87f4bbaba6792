"""Blocks: the encoding of docs/protocols/log-format.md, round trips, and invalid blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.journal.rows import (
    CALL,
    EVENTS,
    SPAN,
    SPANS,
    event_rows,
    span_rows,
)

from requite.chronicle import EventRow, Kind, SpanRow
from requite.journal.blocks import (
    COLUMNS,
    EVENT_COLUMNS,
    HEADER_SIZE,
    ROW_SIZE,
    SPAN_COLUMNS,
    BlockType,
    Header,
    column_of,
    flaw_of,
    parse_header,
    raw_row,
    read_opened,
    read_strings,
    row_values,
)
from requite.journal.encode import (
    STRINGS_BLOCK_SIZE,
    encode_event_rows,
    encode_opened,
    encode_spans,
    encode_strings,
)
from requite.journal.strings import Strings

OFFSET_US = 1_700_000_000_000_000
PAGE = Path(__file__).parents[2] / "docs/protocols/log-format.md"


def head(kind: BlockType, count: int) -> bytes:
    return bytes([kind, 1, 0, 0]) + pack("<IqQ", count, OFFSET_US, 42)


def examples() -> list[bytes]:
    """Return the example blocks of the specification."""
    text = PAGE.read_text(encoding="utf-8").partition("## Example of a journal")[2]
    paragraphs = re.findall(
        r"(?:^    (?:[0-9a-f]{2} ?){1,8}(?: [0-9a-f ]+)?\n)+", text, re.MULTILINE
    )
    return [bytes.fromhex(paragraph) for paragraph in paragraphs]


def test_the_encoder_writes_the_examples_of_the_specification():
    strings = Strings()
    row = EVENTS[1]._replace(size=0, busy=0, capacity=0)
    spans = encode_spans(SPANS, strings, OFFSET_US, 42)
    defined = encode_strings(strings.fresh, OFFSET_US, 42)
    assert examples() == [*defined, spans, encode_event_rows([row], strings, OFFSET_US, 50)]


def test_the_specification_lists_every_kind_and_column():
    text = PAGE.read_text(encoding="utf-8")
    for kind in Kind:
        assert f"| {kind.value} | {kind.name.lower().replace('_', ' ')}" in text
    for column in (*SPAN_COLUMNS.values(), *EVENT_COLUMNS.values()):
        assert f"| `{column.name}` | {column.size} | {column.before} |" in text


def test_two_spans_byte_by_byte():
    block = encode_spans(SPANS, Strings(), OFFSET_US, 42)
    assert block.hex(" ", 8) == " ".join(
        [
            "0201000002000000 " + (1_700_000_000_000_000).to_bytes(8, "little").hex(),
            "2a00000000000000",
            "000000000000f03f 0000000000000840",  # first_at: 1.0, 3.0
            "000000000000f83f 0000000000000a40",  # second_at: 1.5, 3.25
            "0000000000000040 0000000000000c40",  # third_at: 2.0, 3.5
            "000000000000f07f 0000000000002040",  # deadline: none, 8.0
            "0001020304050607 08090a0b0c0d0e0f 1011121314151617 18191a1b1c1d1e1f",
            "0100000002000000",  # service
            "0300000004000000",  # worker
            "0a0000001e000000",  # request_size: 10, 30
            "1400000028000000",  # reply_size: 20, 40
        ]
    )


def test_two_event_rows_byte_by_byte():
    strings = Strings()
    block = encode_event_rows(EVENTS, strings, OFFSET_US, 42)
    assert block == b"".join(
        [
            head(BlockType.EVENTS, 2),
            pack("<2d", 5.0, 6.0),
            pack("<2d", 9.0, float("inf")),
            CALL * 2,
            pack("<2I", 1, 1),  # service: echo
            pack("<2I", 0, 2),  # worker: none, worker-1
            pack("<2I", 0, 3),  # error
            pack("<2I", 0, 4),  # reason
            pack("<2I", 7, 11),  # size
            pack("<2I", 0, 12),  # busy
            pack("<2I", 0, 13),  # capacity
            pack("<2H", 0, 2),  # attempt
            bytes([1, 5]),  # kind
            bytes([255, 1]),  # outcome
        ]
    )
    assert strings.fresh == [
        (1, b"echo"),
        (2, b"worker-1"),
        (3, b"RemoteFailure"),
        (4, b"out of stock"),
    ]


def test_strings_byte_by_byte():
    (block,) = encode_strings([(1, b"echo"), (2, b"ab")], OFFSET_US, 42)
    assert block == b"".join(
        [
            head(BlockType.STRINGS, 2),
            bytes.fromhex("01000000 0400") + b"echo",
            bytes.fromhex("02000000 0200") + b"ab",
            bytes(6),
        ]
    )


def test_an_opened_block_byte_by_byte():
    block = encode_opened({"role": "broker"}, OFFSET_US, 42)
    assert block == head(BlockType.OPENED, 1) + b'{"role": "broker"}' + b" " * 6


@pytest.mark.parametrize("columns", COLUMNS.values(), ids=("spans", "event_rows"))
def test_the_columns_fill_a_row_and_large_cells_come_first(columns):
    ends = [column.before + column.size for column in columns.values()]
    assert [column.before for column in columns.values()] == [0, *ends[:-1]]
    assert ends[-1] == ROW_SIZE
    for column in columns.values():  # aligned for any number of rows
        assert column.offset(3) % min(column.size, 8) == 0


def test_the_columns_match_the_fields_of_the_rows():
    assert SPAN_COLUMNS.keys() == {
        *("first_at", "second_at", "third_at", "deadline", "call_id", "service", "worker"),
        *("request_size", "reply_size"),
    }
    assert EVENT_COLUMNS.keys() == set(EventRow._fields)


def test_numpy_reads_the_columns_as_they_are_declared():
    numpy = pytest.importorskip("numpy")
    block = encode_spans(SPANS, Strings(), OFFSET_US, 42)
    found = {
        name: numpy.frombuffer(block, column.dtype, count=2, offset=column.offset(2)).tolist()
        for name, column in SPAN_COLUMNS.items()
    }
    assert found["third_at"] == [2.0, 3.5]
    assert found["call_id"] == [row[4] for row in SPANS]
    assert found["reply_size"] == [20, 40]


# --- round trips ----------------------------------------------------------------------------------
@dataclass
class Decoded:
    """A decoded block, with the strings that it refers to."""

    block: bytes
    header: Header
    strings: dict[int, bytes]

    def rows(self) -> list[dict[str, object]]:
        names = COLUMNS[self.header.type]
        return [
            dict(zip(names, cells, strict=True)) for cells in row_values(self.block, self.header)
        ]


def read_back(block: bytes, strings: Strings) -> Decoded:
    assert flaw_of(block) == ""
    header = parse_header(block)
    assert header is not None
    defined = {0: b""}
    for each in encode_strings(strings.fresh, 0, 0):
        assert flaw_of(each) == ""
        assert len(each) % 8 == 0
        defined.update(read_strings(each))
    return Decoded(block, header, defined)


@given(st.lists(span_rows, min_size=1, max_size=20))
def test_spans_survive_a_round_trip(rows: list[SpanRow]):
    strings = Strings()
    found = read_back(encode_spans(rows, strings, -5, 7), strings)
    assert found.header == (BlockType.SPANS, 1, len(rows), -5, 7)
    for row, cells in zip(rows, found.rows(), strict=True):
        cells["service"] = found.strings[cells["service"]]
        cells["worker"] = found.strings[cells["worker"]]
        assert tuple(cells.values()) == row


@given(st.lists(event_rows, min_size=1, max_size=20))
def test_event_rows_survive_a_round_trip(rows: list[EventRow]):
    strings = Strings()
    found = read_back(encode_event_rows(rows, strings, -5, 7), strings)
    assert found.header == (BlockType.EVENTS, 1, len(rows), -5, 7)
    for row, cells in zip(rows, found.rows(), strict=True):
        for name in ("service", "worker"):
            cells[name] = found.strings[cells[name]]
        for name in ("error", "reason"):
            cells[name] = found.strings[cells[name]].decode()
        assert EventRow(**cells) == row


def test_one_column_can_be_read_alone():
    block = encode_spans(SPANS, Strings(), OFFSET_US, 42)
    header = parse_header(block)
    assert column_of(block, "call_id", header).tobytes() == SPANS[0][4] + SPANS[1][4]


def test_a_raw_row_has_its_cells_in_the_order_of_the_columns():
    block = encode_spans(SPANS, Strings(), OFFSET_US, 42)
    alone = encode_spans(SPANS[1:], Strings(), OFFSET_US, 46)
    found = raw_row(block, parse_header(block), 1)
    assert found[:48] == alone[HEADER_SIZE:][:48]
    assert found[48:] == pack("<IIII", 2, 4, 30, 40)


# --- values out of range --------------------------------------------------------------------------
def test_sizes_out_of_range_are_clamped():
    rows = [(*SPAN[:7], 1 << 40, 3), (*SPAN[:7], 4, -1)]
    found = read_back(encode_spans(rows, strings := Strings(), 0, 0), strings).rows()
    assert [row["request_size"] for row in found] == [(1 << 32) - 1, 4]
    assert [row["reply_size"] for row in found] == [3, 0]
    rows = [EventRow(1.0, Kind.DISPATCHED, attempt=1 << 20)]
    found = read_back(encode_event_rows(rows, strings := Strings(), 0, 0), strings).rows()
    assert found[0]["attempt"] == (1 << 16) - 1


def test_a_call_id_of_another_size_does_not_shift_other_cells():
    rows = [(*SPAN[:4], b"short", *SPAN[5:]), SPAN]
    found = read_back(encode_spans(rows, strings := Strings(), 0, 0), strings).rows()
    assert [row["call_id"] for row in found] == [b"short" + bytes(11), CALL]


@pytest.mark.parametrize("text", ["x" * 5000, "é" * 5000, "x" + "é" * 5000])
def test_a_long_reason_is_cut_between_characters(text):
    rows = [EventRow(1.0, Kind.REFUSED, reason=text)]
    found = read_back(encode_event_rows(rows, strings := Strings(), 0, 0), strings)
    kept = found.strings[found.rows()[0]["reason"]]
    assert 1023 <= len(kept) <= 1024
    assert text.startswith(kept.decode())


def test_a_reason_that_utf_8_cannot_encode_is_escaped():
    rows = [EventRow(1.0, Kind.REFUSED, reason="\ud800")]
    found = read_back(encode_event_rows(rows, strings := Strings(), 0, 0), strings)
    assert found.strings[found.rows()[0]["reason"]] == rb"\ud800"


def test_many_strings_take_several_blocks():
    strings = Strings()
    for number in range(2000):
        assert strings[b"%d" % number * 50] == number + 1
    blocks = encode_strings(strings.fresh, 0, 0)
    assert len(blocks) > 1
    assert max(map(len, blocks)) < STRINGS_BLOCK_SIZE + 2048
    found = [each for block in blocks for each in read_strings(block)]
    assert [number for number, _ in found] == list(range(1, 2001))


# --- invalid blocks -------------------------------------------------------------------------------
SOUND = encode_spans(SPANS, Strings(), OFFSET_US, 42)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (b"", "0 bytes is shorter"),
        (SOUND[:23], "23 bytes is shorter"),
        (SOUND[:1] + b"\2" + SOUND[2:], "schema version 2; this reader supports 1"),
        (SOUND[:1] + b"\0" + SOUND[2:], "schema version 0"),
        (b"\x09" + SOUND[1:], "unknown block type 9"),
        (SOUND[:-1], "2 rows do not make a block of 151 bytes"),
        (SOUND + bytes(8), "2 rows do not make"),
        (SOUND[:8] + bytes([255] * 7 + [127]) + SOUND[16:], "clock offset"),
    ],
)
def test_the_flaw_of_an_undecodable_block_is_described(block, message):
    assert message in flaw_of(block)


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_have_a_flaw(block: bytes):
    if flaw_of(block):
        return
    header = parse_header(block)
    if header.type in COLUMNS:
        assert len(list(row_values(block, header))) == header.rows
    assert isinstance(list(read_strings(block)), list)
    assert isinstance(read_opened(block), dict)


def test_a_truncated_strings_block_defines_its_whole_strings():
    (block,) = encode_strings([(1, b"echo"), (2, b"worker")], 0, 0)
    assert list(read_strings(block[:-8])) == [(1, b"echo")]
