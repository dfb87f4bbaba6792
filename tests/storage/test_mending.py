"""Repair of records with one flipped bit."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requite.errors import LogCorrupt
from requite.storage import Damage, Log, LogReader
from requite.storage.layout import DATA, HEADER_SIZE, RECORD_HEADER_SIZE, encode_end, encode_records
from requite.storage.mending import MEND_SIZE_MAX, mend, mend_all

SEED = 0x12345678


def encoded(*payloads: bytes, number: int = 7) -> bytearray:
    return bytearray(encode_records(payloads, number, 0, SEED)[0])


@pytest.mark.parametrize("size", [0, 1, 8, 41])
def test_any_bit_of_a_record_is_mended(size: int) -> None:
    payload = Random(size).randbytes(size)
    whole = encoded(payload)
    for bit in range(8 * len(whole)):
        flipped = whole.copy()
        flipped[bit // 8] ^= 1 << bit % 8
        assert mend(bytes(flipped), SEED) == (DATA, 7, payload, len(whole)), bit


@given(st.binary(max_size=300))
def test_bytes_that_are_not_a_record_are_not_mended(raw: bytes) -> None:
    assert mend(raw, SEED) is None


def test_two_flipped_bits_are_not_mended() -> None:
    whole = encoded(b"some payload of a record")
    for one in range(0, 8 * len(whole), 5):
        flipped = whole.copy()
        for bit in (one, (one + 77) % (8 * len(whole))):
            flipped[bit // 8] ^= 1 << bit % 8
        assert mend(bytes(flipped), SEED) is None, one


def test_several_records_with_one_flipped_bit_each_are_mended() -> None:
    whole = encoded(b"one", b"two", b"three") + encode_end(10, SEED)
    size = RECORD_HEADER_SIZE + 8
    for at in (30, size + 3, 2 * size + 20, 3 * size + 1):
        whole[at] ^= 16
    assert [one[:3] for one in mend_all(bytes(whole), SEED)] == [
        (0, 7, b"one"),
        (0, 8, b"two"),
        (0, 9, b"three"),
        (1, 10, b""),
    ]


def test_a_reader_mends_damaged_records(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", purpose=b"TEST") as log:
        positions = log.commit([b"one", b"x" * (MEND_SIZE_MAX - RECORD_HEADER_SIZE), b"y" * 5000])
    [file] = (tmp_path / "log").glob("*.seg")
    data = bytearray(file.read_bytes())
    for position in positions:
        data[position.offset + RECORD_HEADER_SIZE + 1] ^= 1
    file.write_bytes(data)
    reader = LogReader(tmp_path / "log")
    for position in positions:
        with pytest.raises(LogCorrupt):
            reader.read_at(position)
    assert reader.mend_at(positions[0]) == b"one"
    assert reader.mend_at(positions[1]).strip(b"x") == b""
    with pytest.raises(LogCorrupt):
        reader.mend_at(positions[2])
    [damage] = [item for item in reader.read(0) if isinstance(item, Damage)]
    assert reader.mend(damage) is None  # the three records exceed `RAW_SIZE_MAX`


def test_a_damaged_header_is_not_mended(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", purpose=b"TEST") as log:
        log.commit([b"one"])
    [file] = (tmp_path / "log").glob("*.seg")
    data = bytearray(file.read_bytes())
    data[HEADER_SIZE - 1] ^= 1
    file.write_bytes(data)
    reader = LogReader(tmp_path / "log")
    [damage, record] = list(reader.read(0))
    assert isinstance(damage, Damage)
    assert reader.mend(damage) is None
    assert not isinstance(record, Damage)
