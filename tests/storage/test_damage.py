"""Logs that are truncated at any byte, or of which any byte is changed."""

from __future__ import annotations

import os
from pathlib import Path
from zlib import crc32

import pytest
from tests.storage.helpers import (
    copy_of,
    damages,
    open_small,
    payloads,
    read_all,
    segment_file,
)

from requite.errors import LogCorrupt, LogMismatch
from requite.storage import Damage, LogReader, Position, Record, scan
from requite.storage.ending import CUT, TORN
from requite.storage.layout import (
    HEADER_SIZE,
    MARKER,
    RECORD_HEADER_SIZE,
    encode_records,
    record_size,
)

BATCH = [b"first", b"", b"third, of 24 bytes in all", b"4" * 40, MARKER * 3, b"the last"]


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A log whose writer was killed: one segment, with preallocated space after the records."""
    log = open_small(tmp_path / "live")
    log.append(BATCH)
    directory = copy_of(tmp_path / "live", tmp_path / "killed")
    log.close()
    return directory


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A log of two sealed segments with the records of `BATCH` in each."""
    with open_small(tmp_path / "sealed") as log:
        log.append(BATCH)
        log.rotate()
        log.append(BATCH)
    return tmp_path / "sealed"


def ends() -> list[int]:
    """Return the offset at which each record of `BATCH` ends in its segment."""
    found = [HEADER_SIZE]
    for payload in BATCH:
        found.append(found[-1] + record_size(len(payload)))
    return found[1:]


@pytest.mark.parametrize("padded", [False, True], ids=["cut", "zeros"])
def test_recovery_from_truncation_at_every_byte(killed: Path, padded: bool) -> None:
    file = segment_file(killed)
    written = file.read_bytes()
    assert len(written) == 4096
    for cut in range(HEADER_SIZE, ends()[-1] + 1):
        left = written[:cut] + bytes(4096 - cut if padded else 0)
        file.write_bytes(left)
        intact = sum(left[:end] == written[:end] for end in ends())
        assert payloads(read_all(killed)) == BATCH[:intact]
        start = [HEADER_SIZE, *ends()][intact]
        torn = left[start:].rstrip(b"\0")
        found = [(damage.offset, damage.reason) for damage in damages(read_all(killed))]
        assert found == ([(start, TORN if padded else CUT)] if torn or not padded else [])

        with open_small(killed) as log:
            assert log.recovered.cut_bytes == len(torn)
            assert log.recovered.torn_at == (Position(0, start, intact) if torn else None)
            assert log.recovered.damaged == ()
            assert log.append([b"next"])[0].number == intact
        assert read_all(killed)[:intact] == [
            Record(0, offset, number, memoryview(BATCH[number]))
            for number, offset in enumerate([HEADER_SIZE, *ends()][:intact])
        ]
        assert payloads(read_all(killed)) == [*BATCH[:intact], b"next"]
        for entry in killed.glob("*.seg"):
            entry.unlink()


def test_a_segment_cut_off_within_its_header_is_replaced(killed: Path) -> None:
    file = segment_file(killed)
    written = file.read_bytes()
    for cut in range(HEADER_SIZE):
        file.write_bytes(written[:cut])
        [damage] = read_all(killed)
        assert isinstance(damage, Damage)
        assert damage[:3] == (0, 0, cut)
        with open_small(killed) as log:
            assert log.recovered.cut_bytes == cut
            log.append([b"next"])
        assert payloads(read_all(killed)) == [b"next"]
        assert damages(read_all(killed)) == []


def test_every_truncation_of_an_earlier_segment_is_reported(sealed: Path) -> None:
    file = segment_file(sealed)
    written = file.read_bytes()
    for cut in range(len(written)):
        file.write_bytes(written[:cut])
        items = read_all(sealed)
        intact = sum(end <= cut for end in ends())
        assert payloads(items) == [*BATCH[:intact], *BATCH]
        # A missing end mark after complete records is no damage; a partial end mark is.
        assert bool(damages(items)) == (cut != ends()[-1])
        if HEADER_SIZE <= cut < ends()[-1]:
            assert damages(items)[-1].reason.startswith("the segment is cut off (record")


@pytest.mark.parametrize("mask", [0xFF, 0x01, 0x80])
def test_every_changed_byte_is_reported(sealed: Path, mask: int) -> None:
    file = segment_file(sealed)
    written = file.read_bytes()
    starts = [HEADER_SIZE, *ends()]
    for at in range(len(written)):
        file.write_bytes(written[:at] + bytes([written[at] ^ mask]) + written[at + 1 :])
        items = read_all(sealed)
        hit = next((n for n, end in enumerate(ends()) if starts[n] <= at < end), None)
        expected = [payload for n, payload in enumerate(BATCH) if n != hit]
        assert payloads(items) == [*expected, *BATCH], at
        [damage] = damages(items)
        assert damage.offset <= at < damage.end
        assert written[damage.offset : at] == damage.raw[: at - damage.offset]
        if hit is not None:
            assert (damage.offset, damage.end) == (starts[hit], starts[hit + 1])
            assert damage.reason.endswith(f"(record {hit})")


@pytest.mark.parametrize("mask", [0xFF, 0x10])
def test_every_changed_byte_of_a_reopened_segment_is_reported(killed: Path, mask: int) -> None:
    file = segment_file(killed)
    written = file.read_bytes()
    starts = [HEADER_SIZE, *ends()]
    last = len(BATCH) - 1
    for at in range(starts[-1]):
        file.write_bytes(written[:at] + bytes([written[at] ^ mask]) + written[at + 1 :])
        hit = next((n for n, end in enumerate(ends()) if starts[n] <= at < end), None)
        kept = [payload for n, payload in enumerate(BATCH) if n != hit]
        assert payloads(read_all(killed)) == kept
        with open_small(killed) as log:
            torn = hit == last
            assert bool(log.recovered.cut_bytes) == torn
            assert len(log.recovered.damaged) == (not torn)
            assert log.append([b"next"])[0].number == (last if torn else last + 1)
        items = read_all(killed)
        assert payloads(items) == [*kept, b"next"]
        assert len(damages(items)) == (not torn)
        for entry in killed.iterdir():
            entry.unlink()


def test_an_unreadable_segment_is_not_overwritten(killed: Path) -> None:
    file = segment_file(killed)
    broken = bytes(HEADER_SIZE) + file.read_bytes()[HEADER_SIZE:]
    file.write_bytes(broken)
    with pytest.raises(LogCorrupt, match="cannot be read"):
        open_small(killed)
    assert file.read_bytes() == broken


def test_zeros_in_place_of_records_are_damage(sealed: Path) -> None:
    file = segment_file(sealed)
    written = bytearray(file.read_bytes())
    start, stop = ends()[0], ends()[2]
    written[start:stop] = bytes(stop - start)
    file.write_bytes(written)
    items = read_all(sealed)
    assert payloads(items) == [*BATCH[:1], *BATCH[3:], *BATCH]
    [damage] = damages(items)
    assert (damage.offset, damage.end) == (start, stop)
    assert damage.reason == "zeros in place of a record (records 1 to 2)"


def test_zeros_before_the_last_records_of_a_killed_writer_are_damage(tmp_path: Path) -> None:
    log = open_small(tmp_path / "live", segment_size_bytes=1 << 20)
    page = bytes(range(256)) * 16
    log.append([page] * 20)
    killed = copy_of(tmp_path / "live", tmp_path / "killed")
    log.close()
    file = segment_file(killed)
    written = bytearray(file.read_bytes())
    written[4096:40960] = bytes(36864)  # never reached the disk
    file.write_bytes(written)
    reader = LogReader(killed)
    items = list(reader.tail())
    assert payloads(items) == [page] * 10
    assert [damage.reason for damage in damages(items)] == [
        "the checksum of a record does not match (records 0 to 9)"
    ]
    assert list(reader.tail()) == items
    [info] = reader.segments()
    assert info.next_number == 20


def test_appended_garbage_is_damage(sealed: Path) -> None:
    with segment_file(sealed).open("ab") as file:
        file.write(b"garbage" * 1000)
    items = read_all(sealed)
    assert payloads(items) == BATCH * 2
    assert [(damage.size, damage.raw) for damage in damages(items)] == [
        (7000, (b"garbage" * 1000)[:4096])
    ]


def test_bytes_within_a_payload_are_not_read_as_records(tmp_path: Path) -> None:
    """A client can send any bytes, including those of a valid record."""
    with open_small(tmp_path / "other") as other:
        other.append([b"imitation"] * 3)
        stolen = segment_file(tmp_path / "other").read_bytes()[HEADER_SIZE:200]
    forged = b"".join(
        encode_records([b"imitation"], n, 0, seed)[0] for n in (0, 1, 5) for seed in (0, crc32(b""))
    )
    with open_small(tmp_path / "log") as log:
        log.append([b"one", stolen + forged, b"three"])
    file = segment_file(tmp_path / "log")
    written = bytearray(file.read_bytes())
    written[HEADER_SIZE + record_size(3) + 8] ^= 1
    file.write_bytes(written)
    items = read_all(tmp_path / "log")
    assert payloads(items) == [b"one", b"three"]


def test_copied_records_of_the_same_segment_are_not_read_as_new(tmp_path: Path) -> None:
    with open_small(tmp_path / "log") as log:
        log.append([b"one"])
        copy = segment_file(tmp_path / "log").read_bytes()[HEADER_SIZE : HEADER_SIZE + 32]
        log.append([copy * 3, b"three"])
    file = segment_file(tmp_path / "log")
    written = bytearray(file.read_bytes())
    written[HEADER_SIZE + record_size(3) + 4] ^= 1
    file.write_bytes(written)
    assert payloads(read_all(tmp_path / "log")) == [b"one", b"three"]


def test_a_reader_skips_damage_of_any_size(tmp_path: Path) -> None:
    with open_small(tmp_path / "log", segment_size_bytes=16 << 20) as log:
        log.append([b"one", bytes(range(256)) * 4096 * 5, b"three"])
    file = segment_file(tmp_path / "log")
    written = bytearray(file.read_bytes())
    written[HEADER_SIZE + record_size(3) + RECORD_HEADER_SIZE + 3_000_000] ^= 1
    file.write_bytes(written)
    items = read_all(tmp_path / "log")
    assert payloads(items) == [b"one", b"three"]
    [damage] = damages(items)
    assert damage.size == record_size(5 << 20)
    assert len(damage.raw) == 4096


def test_read_at_reports_damage(sealed: Path) -> None:
    file = segment_file(sealed)
    written = bytearray(file.read_bytes())
    written[ends()[2] - 1] ^= 1
    file.write_bytes(written)
    reader = LogReader(sealed)
    assert reader.read_at(Position(0, ends()[0], 1)) == b""
    for position in (
        Position(0, ends()[1], 2),  # damaged
        Position(0, ends()[0], 2),  # another record
        Position(0, ends()[0] + 8, 1),  # no record
        Position(0, ends()[-1], 6),  # the end mark
        Position(0, 1 << 30, 1),
    ):
        with pytest.raises(LogCorrupt, match=f"record {position.number} "):
            reader.read_at(position)


def test_a_newer_format_version_is_reported_and_not_changed(sealed: Path) -> None:
    file = segment_file(sealed)
    written = bytearray(file.read_bytes())
    written[8] = 2
    written[60:64] = crc32(written[:60]).to_bytes(4, "little")
    file.write_bytes(written)
    items = read_all(sealed)
    assert payloads(items) == BATCH
    [damage] = damages(items)
    assert damage.reason == "version 2 of the format is not supported"
    assert damage.size == len(written)
    with pytest.raises(LogMismatch, match="newer requite"):
        open_small(sealed)
    assert file.read_bytes() == written


def test_an_invalid_file_with_the_name_of_a_segment_is_damage(sealed: Path) -> None:
    segment_file(sealed, 99).write_bytes(b"not a segment, but named like one" * 10)
    items = read_all(sealed)
    assert payloads(items) == BATCH * 2
    assert {damage.segment for damage in damages(items)} == {99}


def test_a_bounded_scan_reports_missing_bytes(killed: Path) -> None:
    file = segment_file(killed)
    [info] = LogReader(killed).segments()
    assert info.written_bytes == ends()[-1]
    file.write_bytes(file.read_bytes()[: ends()[-1] - 1])
    [damage] = damages(scan(file, 0, info.written_bytes))
    assert (damage.offset, damage.end) == (ends()[-2], ends()[-1])
    assert damages(scan(file)) == [damage]


@pytest.mark.parametrize("cut", [0, 3, 24])
def test_a_torn_end_is_reported_after_the_writer_exits(tmp_path: Path, cut: int) -> None:
    with open_small(tmp_path / "log") as log:
        log.append(BATCH)
        file, reader = segment_file(tmp_path / "log"), LogReader(tmp_path / "log")
        written = file.read_bytes()
        os.truncate(file, ends()[-1] - cut)
        [info] = reader.segments()
        assert (info.torn, damages(reader.tail())) == ("", [])
        file.write_bytes(written)
        log._folder.unlock()  # killed
        assert ([info.torn for info in reader.segments()], damages(reader.tail())) == ([""], [])
        os.truncate(file, ends()[-1] - cut)
        reader = LogReader(tmp_path / "log")
        [info] = reader.segments()
        items = list(reader.tail())
        [damage] = damages(items)
        assert damage.reason == info.torn == CUT
        assert damage.end == info.written_bytes
        assert list(reader.tail(damage)) == []  # reported once
        assert list(LogReader(tmp_path / "log").read(0, 0, info.written_bytes)) == items
        file.write_bytes(written)


def test_a_torn_end_is_not_reported_again_after_recovery(killed: Path) -> None:
    os.truncate(segment_file(killed), ends()[-1] - 3)
    reader = LogReader(killed)
    [damage] = damages(reader.tail())
    with open_small(killed) as log:
        log.append([b"next"])
        assert payloads(reader.tail(damage)) == [b"next"]
        assert damages(reader.tail(damage)) == []


def test_a_damaged_header_does_not_hide_the_purpose_of_the_log(sealed: Path) -> None:
    before = LogReader(sealed).segments()
    for at in (0, 35, 50, 61):  # magic, log id, purpose, checksum
        file = segment_file(sealed)
        written = bytearray(file.read_bytes())
        written[at] ^= 0x20
        file.write_bytes(written)
        after = LogReader(sealed).segments()
        assert [(info.log_id, info.purpose) for info in after] == [
            (info.log_id, info.purpose) for info in before
        ]
        assert [info.sealed for info in after] == [True, True]
        written[at] ^= 0x20
        file.write_bytes(written)
