"""Readers of a log that is being written: polling, rotation, removal and damage."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from tests.storage.conftest import Opener
from tests.storage.helpers import damages, open_small, payloads, read_all, segment_file

from requite.errors import LogGone
from requite.storage import Damage, LogReader, Position, Record, scan
from requite.storage.disk import LOCK_NAME
from requite.storage.ending import CUT, SETTLED_AFTER_S
from requite.storage.layout import HEADER_SIZE, segment_name

KIB = b"k" * 1000


def test_tail_continues_after_an_item(opened: Opener) -> None:
    with opened() as log:
        reader = log.reader()
        assert list(reader.tail()) == []
        log.append([b"a", b"b"])
        first = list(reader.tail())
        assert list(reader.tail(first[-1])) == []
        log.append([b"c"])
        log.rotate()
        log.append([b"d"])
        assert payloads(reader.tail(first[-1])) == [b"c", b"d"]
        assert payloads(reader.tail(first[0])) == [b"b", b"c", b"d"]


def test_tail_continues_after_a_position(opened: Opener) -> None:
    with opened() as log:
        positions = log.append([b"a", b"b"])
        log.rotate()
        positions += log.append([b"c"])
        found = [payloads(log.reader().tail(position)) for position in positions]
    assert found == [[b"b", b"c"], [b"c"], []]


def test_polling_sees_each_record_once(opened: Opener) -> None:
    with opened() as log:
        reader, last, seen = log.reader(), None, []
        for number in range(50):
            log.append([b"%d" % number + KIB[: number * 20]])
            for item in reader.tail(last):
                last = item
                seen += payloads([item])
            [info] = [info for info in reader.segments() if not info.sealed]
            assert info.next_number == number + 1
    assert seen == [b"%d" % number + KIB[: number * 20] for number in range(50)]


def test_a_later_read_continues_at_written_bytes(opened: Opener) -> None:
    with opened() as log:
        reader, at, seen = log.reader(), 0, []
        for number in range(5):
            log.append([b"%d" % number])
            [info] = reader.segments()
            seen += payloads(reader.read(0, at, info.written_bytes))
            at = info.written_bytes
        assert seen == [b"0", b"1", b"2", b"3", b"4"]
        assert payloads(reader.read(0, 0, at)) == seen
        assert payloads(reader.read(0, HEADER_SIZE, HEADER_SIZE + 1)) == [b"0"]


def test_adjacent_byte_ranges_yield_each_record_once(tmp_path: Path) -> None:
    with open_small(tmp_path, segment_size_bytes=1 << 20) as log:
        log.append([b"%d" % number * (number % 17) for number in range(1000)])
    file = segment_file(tmp_path)
    boundaries = [0, *(item.offset for item in scan(file) if item.offset % 7 == 0)]
    ranges = zip(boundaries, [*boundaries[1:], file.stat().st_size], strict=True)
    parts = [item for start, stop in ranges for item in scan(file, start, stop)]
    assert parts == list(scan(file))
    assert len(parts) == 1000


def test_a_segment_may_be_sealed_and_removed_while_it_is_read(opened: Opener) -> None:
    with opened() as log:
        log.append([b"a" * 10, b"b" * 10])
        items = log.reader().tail()
        first = next(items)
        log.append([b"c"])
        log.rotate()
        log.append([b"d"])
        log.remove(0)
        rest = list(items)
        assert payloads([first, *rest])[:2] == [b"a" * 10, b"b" * 10]
        assert damages(rest) == []


def test_records_removed_before_they_were_read_are_reported(opened: Opener) -> None:
    with opened() as log:
        reader = log.reader()
        log.append([b"0", b"1"])
        last = next(iter(reader.tail()))
        for number in range(2, 5):
            log.rotate()
            log.append([b"%d" % number])
        log.remove(0)
        log.remove(2)
        gap, *items = reader.tail(last)
        assert gap == Damage(3, 0, 0, "removed before it was read (records 1 to 2)", b"")
        assert payloads(items) == [b"3", b"4"]
        assert payloads(reader.tail(gap)) == [b"3", b"4"]
        assert damages(reader.tail(gap)) == []


def test_records_removed_after_they_were_read_are_not_reported(opened: Opener) -> None:
    with opened() as log:
        log.append([b"0", b"1"])
        *_, last = log.reader().tail()
        log.rotate()
        log.append([b"2"])
        log.remove(0)
        assert damages(log.reader().tail(last)) == []
        assert payloads(log.reader().tail(last)) == [b"2"]


def test_segments_removed_during_a_read_are_reported(opened: Opener) -> None:
    with opened() as log:
        for number in range(4):
            log.append([b"%d" % number])
            log.rotate()
        log.append([b"4"])
        items = log.reader().tail()
        got = [next(items)]
        log.remove(1)
        log.remove(2)
        got += items
        assert payloads(got) == [b"0", b"3", b"4"]
        assert [damage.reason for damage in damages(got)] == [
            "removed before it was read (records 1 to 2)"
        ]


def test_segments_removed_before_the_first_read_are_not_reported(opened: Opener) -> None:
    with opened() as log:
        for number in range(4):
            log.append([b"%d" % number])
            log.rotate()
        log.remove(1)
        log.append([b"4"])
        assert payloads(log.reader().tail()) == [b"0", b"2", b"3", b"4"]
        assert damages(log.reader().tail()) == []


def test_damage_in_the_active_segment_is_reported_once(tmp_path: Path) -> None:
    with open_small(tmp_path) as log:
        log.append([b"zero", b"one", b"two"])
        reader = LogReader(tmp_path)
        assert len(list(reader.tail())) == 3
        with segment_file(tmp_path).open("r+b") as file:
            file.seek(HEADER_SIZE + 32 + 24)
            file.write(b"ONE")
        items = list(reader.tail())
        assert payloads(items) == [b"zero", b"two"]
        [damage] = damages(items)
        assert damage.reason == "the checksum of a record does not match (record 1)"
        log.append([b"three"])
        assert payloads(reader.tail(damage)) == [b"two", b"three"]
        assert payloads(reader.tail(items[-1])) == [b"three"]


def test_tail_waits_for_an_incomplete_record(tmp_path: Path) -> None:
    with open_small(tmp_path) as log:
        log.append([b"zero"])
        reader = LogReader(tmp_path)
        items = list(reader.tail())
        before = segment_file(tmp_path).read_bytes()
        log.append([b"one" * 100])
        complete = segment_file(tmp_path).read_bytes()
        end = HEADER_SIZE + 32 + 24 + 304
        for cut in range(HEADER_SIZE + 32, end, 7):
            segment_file(tmp_path).write_bytes(complete[:cut] + before[cut:])
            assert list(reader.tail(items[-1])) == []
            [info] = reader.segments()
            assert info.written_bytes == HEADER_SIZE + 32
        segment_file(tmp_path).write_bytes(complete)
        assert payloads(reader.tail(items[-1])) == [b"one" * 100]
        assert reader.segments()[0].written_bytes == end


def test_polling_does_not_read_the_preallocated_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path, segment_size_bytes=16 << 20) as log:
        log.append([b"a"])
        reader = LogReader(tmp_path)
        reader.segments()
        last = next(reader.tail())
        read = _count_bytes_read(monkeypatch)
        for _ in range(10):
            assert list(reader.tail(last)) == []
            reader.segments()
    assert 0 < sum(read) < 10 * 128 * 1024


def test_tail_continues_after_a_damaged_record(tmp_path: Path) -> None:
    with open_small(tmp_path) as log:
        [position, _] = log.append([b"zero", b"one"])
        with segment_file(tmp_path).open("r+b") as file:
            file.seek(position.offset)
            file.write(b"broken")
        items = list(LogReader(tmp_path).tail(position))
    assert payloads(items) == [b"one"]


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LogGone):
        LogReader(tmp_path / "nowhere").segments()
    with pytest.raises(LogGone):
        list(LogReader(tmp_path).read(0))
    with pytest.raises(LogGone, match="not have the name of a segment"):
        scan(tmp_path / "other.txt")
    assert LogReader(tmp_path).segments() == []
    assert read_all(tmp_path) == []


def test_other_files_are_ignored(tmp_path: Path) -> None:
    with open_small(tmp_path) as log:
        log.append([b"a"])
        for name in ("notes.txt", "1.seg", segment_name(7) + ".new", "0" * 19 + "x.seg"):
            (tmp_path / name).write_bytes(b"?" * 100)
        assert payloads(read_all(tmp_path)) == [b"a"]
        assert [info.number for info in LogReader(tmp_path).segments()] == [0]


def test_records_have_positions(opened: Opener) -> None:
    with opened() as log:
        positions = log.append([b"a", b"b" * 9])
        records = [item for item in log.reader().tail() if isinstance(item, Record)]
        assert [record.position for record in records] == positions
        assert [record.end for record in records] == [positions[1].offset, 136]
        assert isinstance(positions[0], Position)


def _count_bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    import os

    counted: list[int] = []
    pread = os.pread

    def counting(descriptor: int, size: int, offset: int) -> bytes:
        data = pread(descriptor, size, offset)
        counted.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counting)
    return counted


@pytest.mark.parametrize("kind", ["with the lock", "segments alone"])
def test_tail_waits_for_the_torn_end_of_a_copy(tmp_path: Path, kind: str) -> None:
    original, copy = tmp_path / "log", tmp_path / "copy"
    with open_small(original) as log:
        log.append([b"zero"])
        before = segment_file(original).read_bytes()
        log.append([b"one" * 100])
        complete = segment_file(original).read_bytes()
        shutil.copytree(original, copy)
        if kind == "segments alone":
            (copy / LOCK_NAME).unlink()
    torn, end = len(before.rstrip(b"\0")) + 40, HEADER_SIZE + 32 + 24 + 304
    segment_file(copy).write_bytes(complete[:torn] + before[torn:])
    reader = LogReader(copy)
    items = list(reader.tail())
    assert (payloads(items), damages(items)) == ([b"zero"], [])
    [info] = reader.segments()
    assert (info.written_bytes, info.torn, reader.may_grow()) == (HEADER_SIZE + 32, "", True)

    segment_file(copy).write_bytes(complete)  # copied again
    assert payloads(reader.tail(items[-1])) == [b"one" * 100]
    assert reader.segments()[0].written_bytes == end


def test_the_torn_end_of_an_old_copy_is_reported(tmp_path: Path) -> None:
    original, copy = tmp_path / "log", tmp_path / "copy"
    with open_small(original) as log:
        log.append([b"zero"])
        shutil.copytree(original, copy)
    file = segment_file(copy)
    os.truncate(file, HEADER_SIZE + 32 + 8)
    assert damages(read_all(copy)) == []
    long_ago = time.time() - SETTLED_AFTER_S - 1
    os.utime(file, (long_ago, long_ago))
    assert [damage.reason for damage in damages(read_all(copy))] == [CUT]
    assert not LogReader(copy).may_grow()
