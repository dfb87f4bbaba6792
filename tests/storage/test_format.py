"""The encoding that docs/protocols/log-format.md specifies."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from zlib import crc32

import pytest
from tests.storage.helpers import open_small, segment_file

from requite.storage import LogReader, Record
from requite.storage.layout import (
    SegmentHeader,
    encode_end,
    encode_header,
    encode_records,
    header_fault,
    header_seeds,
    segment_name,
    segment_number,
)

HEADER = SegmentHeader(7, 1_700_000_000_000_000, bytes(range(16)), b"JRNL")
SPECIFICATION = Path(__file__).parents[2] / "docs" / "protocols" / "log-format.md"


@pytest.fixture(scope="module")
def examples() -> list[bytes]:
    """The example blocks of the specification: header, records, END."""
    text = SPECIFICATION.read_text().split("### Example", 1)[1].split("## Writing", 1)[0]
    blocks = re.findall(r"(?:^    (?:[0-9a-f]{2} +)+[0-9a-f]{2}\n)+", text, re.MULTILINE)
    return [bytes.fromhex("".join(block.split())) for block in blocks]


def test_the_encoder_writes_the_examples(examples: list[bytes]) -> None:
    header, records, end = examples
    assert encode_header(HEADER) == header
    [seed] = header_seeds(header)
    assert encode_records([b"hello", b""], 7, 64, seed) == (records, [64, 96])
    assert encode_end(9, seed) == end


def test_the_reader_reads_the_examples(examples: list[bytes], tmp_path: Path) -> None:
    (tmp_path / segment_name(7)).write_bytes(b"".join(examples))
    assert list(LogReader(tmp_path).tail()) == [
        Record(7, 64, 7, memoryview(b"hello")),
        Record(7, 96, 8, memoryview(b"")),
    ]
    [info] = LogReader(tmp_path).segments()
    assert info == (
        str(tmp_path / "00000000000000000007.seg"),
        7,
        144,
        True,
        bytes(range(16)),
        b"JRNL",
        1_700_000_000_000_000,
        9,
        "",
        0,
    )


def test_the_fields_of_the_specification(tmp_path: Path) -> None:
    """Parse a segment by the tables of the specification, without the code of the log."""
    with open_small(tmp_path) as log:
        log.append([b"abc", b"defghijkl"])
    data = segment_file(tmp_path).read_bytes()
    magic, version, size, flags, first, created = struct.unpack_from("<8sHHIQq", data)
    assert (magic, version, size, flags, first) == (b"RQTLOG01", 1, 64, 0, 0)
    assert created > 1_700_000_000_000_000
    assert data[48:60] == b"TEST" + (4096).to_bytes(8, "little")
    seed = struct.unpack_from("<I", data, 60)[0]
    assert seed == crc32(data[:60])
    at, found = 64, []
    while at < len(data):
        marker, length, number, kind, check, checksum = struct.unpack_from("<4sIQHHI", data, at)
        head = crc32(data[at : at + 18], seed)
        end = at + 24 + (length + 7) // 8 * 8
        assert marker == bytes.fromhex("f55251b1")
        assert check == head % 65536
        assert checksum == crc32(data[at + 24 : end], head)
        found.append((number, kind, data[at + 24 : at + 24 + length]))
        at = end
    assert found == [(0, 0, b"abc"), (1, 0, b"defghijkl"), (2, 1, b"")]
    assert at == len(data)


def test_a_flipped_bit_in_a_header_is_detected() -> None:
    data = encode_header(HEADER)
    assert header_fault(data, 7) == ""
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert header_fault(bytes(flipped), 7) != ""
    assert "first record" in header_fault(data, 8)
    other = b"ANYLOG01" + data[8:60]
    assert "not a segment" in header_fault(other + crc32(other).to_bytes(4, "little"), 7)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("00000000000000000000.seg", 0),
        ("18446744073709551615.seg", 2**64 - 1),
        ("0000000000000000000.seg", None),
        ("000000000000000000000.seg", None),
        ("00000000000000000000.seg.new", None),
        ("0000000000000000000x.seg", None),
        ("-0000000000000000001.seg", None),
        ("\N{ARABIC-INDIC DIGIT ONE}" * 20 + ".seg", None),
        ("\N{SUPERSCRIPT TWO}" * 20 + ".seg", None),
        ("18446744073709551616.seg", None),
        ("lock", None),
    ],
)
def test_names_of_segments(name: str, number: int | None) -> None:
    assert segment_number(name) == number
