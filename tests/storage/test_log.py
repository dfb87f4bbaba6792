"""Behaviour that `Log` and `MemoryLog` share."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.storage.conftest import Opener
from tests.storage.helpers import SMALL, copy_of, damages, open_small, payloads

from requite.errors import (
    ConfigurationError,
    LocalViolation,
    LogFailed,
    LogGone,
    LogLocked,
    LogMismatch,
)
from requite.storage import Log, LogSettings, Position
from requite.storage import segment as segment_module
from requite.storage.layout import HEADER_SIZE, PAYLOAD_SIZE_MAX, record_size

KIB = b"k" * 1000  # three fit into a segment of 4 KiB


def test_records_are_read_in_order(opened: Opener) -> None:
    with opened() as log:
        positions = log.append([b"a", b"", b"ccccccccc"])
        assert positions == [Position(0, 64, 0), Position(0, 96, 1), Position(0, 120, 2)]
        assert payloads(log.reader().tail()) == [b"a", b"", b"ccccccccc"]
        assert [log.read_at(position) for position in positions] == [b"a", b"", b"ccccccccc"]


def test_an_empty_batch_appends_nothing(opened: Opener) -> None:
    with opened() as log:
        assert log.append([]) == []
        assert list(log.reader().tail()) == []


def test_record_numbers_continue_after_reopening(opened: Opener) -> None:
    with opened() as log:
        log.commit([b"a", b"b"])
    with opened() as log:
        assert log.next_number == 2
        assert log.recovered == ((0, None, ()))
        assert [position.number for position in log.commit([b"c"])] == [2]
        assert payloads(log.reader().tail()) == [b"a", b"b", b"c"]
        assert [info.log_id for info in log.reader().segments()] == [
            log.reader().segments()[0].log_id
        ] * 2


def test_a_log_without_records_leaves_one_small_segment(opened: Opener) -> None:
    for _ in range(3):
        opened().close()
    with opened() as log:
        before = log.reader().segments()
        log.append([b"a"])
    assert [info.number for info in before] == [0]
    assert [info.written_bytes for info in before] == [HEADER_SIZE]


def test_a_batch_that_does_not_fit_goes_to_a_new_segment_as_a_whole(opened: Opener) -> None:
    with opened() as log:
        log.append([KIB])
        assert {position.segment for position in log.append([KIB] * 3)} == {1}
        assert log.segment == 1


def test_a_batch_larger_than_a_segment_is_split(opened: Opener) -> None:
    with opened() as log:
        segments = [position.segment for position in log.append([KIB] * 8)]
        assert segments == [0, 0, 0, 3, 3, 3, 6, 6]
        assert payloads(log.reader().tail()) == [KIB] * 8


def test_a_record_larger_than_a_segment_gets_a_segment_of_its_own(opened: Opener) -> None:
    large = bytes(range(256)) * 64
    with opened() as log:
        positions = log.append([b"a", large, b"b"])
        assert [position.segment for position in positions] == [0, 1, 2]
        assert payloads(log.reader().tail()) == [b"a", large, b"b"]
    with opened() as log:
        log.append([large])
        assert payloads(log.reader().tail()) == [b"a", large, b"b", large]


def test_a_payload_beyond_the_limit_is_refused(opened: Opener) -> None:
    with opened() as log:
        with pytest.raises(LocalViolation, match="16777216"):
            log.append([b"a", bytes(PAYLOAD_SIZE_MAX + 1)])
        assert log.next_number == 0


def test_the_largest_payload_is_read_back(opened: Opener) -> None:
    with opened() as log:
        [position] = log.append([bytes(PAYLOAD_SIZE_MAX)])
        assert log.read_at(position) == bytes(PAYLOAD_SIZE_MAX)


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_payloads_that_fill_the_room_stay_in_the_segment(opened: Opener, count: int) -> None:
    with opened() as log:
        log.append([b"a"])
        each, rest = divmod(log.room(count), count)
        log.append([bytes(each)] * (count - 1) + [bytes(each + rest)])
        assert log.segment == 0
        assert log.room(2) < 64


def test_rotation_starts_a_segment_unless_the_last_one_is_empty(opened: Opener) -> None:
    with opened() as log:
        log.rotate()
        assert log.segment == 0
        log.append([b"a"])
        log.rotate()
        log.rotate()
        assert log.segment == 1
        infos = log.reader().segments()
        assert [(info.number, info.next_number, info.sealed) for info in infos] == [
            (0, 1, True),
            (1, 1, False),
        ]


def test_segment_info_describes_a_segment(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_module, "wall_clock_us", lambda: 1_700_000_000_000_000)
    with opened() as log:
        log.append([b"a", b"b"])
        [info] = log.reader().segments()
    assert info.purpose == b"TEST"
    assert len(info.log_id) == 16
    assert info.written_bytes == HEADER_SIZE + 2 * record_size(1)
    assert (info.number, info.next_number, info.sealed) == (0, 2, False)


def test_closing_seals_the_active_segment(opened: Opener) -> None:
    log = opened()
    log.append([b"a"])
    reader = log.reader()
    log.close()
    log.close()
    [info] = reader.segments()
    assert info.sealed
    assert info.written_bytes == HEADER_SIZE + record_size(1) + record_size(0)
    assert payloads(reader.tail()) == [b"a"]


def test_a_closed_log_refuses_operations(opened: Opener) -> None:
    log = opened()
    log.close()
    for use in (lambda: log.append([b"a"]), log.sync, log.rotate):
        with pytest.raises(LogFailed, match="closed"):
            use()


def test_sealed_segments_can_be_removed(opened: Opener) -> None:
    with opened() as log:
        first, second = log.append([b"a"])[0], None
        log.rotate()
        [second] = log.append([b"b"])
        log.rotate()
        [third] = log.append([b"c"])
        log.remove(second.segment)
        assert payloads(log.reader().tail()) == [b"a", b"c"]
        assert damages(log.reader().tail()) == []
        assert log.read_at(first) == b"a"
        with pytest.raises(LogGone):
            log.read_at(second)
        for number in (second.segment, third.segment, 77):
            with pytest.raises(LocalViolation):
                log.remove(number)


def test_segments_of_former_runs_can_be_removed(opened: Opener) -> None:
    with opened() as log:
        log.append([b"a"])
    with opened() as log:
        log.append([b"b"])
        log.remove(0)
        assert payloads(log.reader().tail()) == [b"b"]
    with opened() as log:
        assert log.next_number == 2


def test_the_oldest_segments_beyond_the_size_are_removed(opened: Opener) -> None:
    settings = LogSettings(segment_size_bytes=4096, retain_bytes=3 * 4096, sync=False)
    with opened(settings) as log:
        for number in range(20):
            log.append([b"%d" % number + KIB])
            paths = [Path(info.place) for info in log.reader().segments()]
            assert sum(path.stat().st_size for path in paths if path.exists()) <= 3 * 4096
        kept = payloads(log.reader().tail())
    assert kept == [b"%d" % number + KIB for number in range(20 - len(kept), 20)]
    assert 3 <= len(kept) <= 9


def test_retention_never_removes_the_active_segment(opened: Opener) -> None:
    with opened(LogSettings(segment_size_bytes=4096, retain_bytes=0, sync=False)) as log:
        log.append([b"a"])
        log.rotate()
        log.append([b"b"])
        assert payloads(log.reader().tail()) == [b"b"]


def test_segments_beyond_the_age_are_removed(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000_000_000_000_000]
    monkeypatch.setattr("requite.storage.log.wall_clock_us", lambda: now[0])
    with opened(LogSettings(segment_size_bytes=4096, retain_s=60, sync=False)) as log:
        for number in range(10):
            log.append([b"%d" % number])
            log.rotate()
            now[0] += 25_000_000
        assert payloads(log.reader().tail()) == [b"7", b"8", b"9"]


def test_a_clock_that_runs_backwards_removes_nothing(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000_000_000_000_000]
    monkeypatch.setattr("requite.storage.log.wall_clock_us", lambda: now[0])
    with opened(LogSettings(segment_size_bytes=4096, retain_s=60, sync=False)) as log:
        for number in range(5):
            log.append([b"%d" % number])
            log.rotate()
            now[0] -= 3_600_000_000
        assert len(payloads(log.reader().tail())) == 5


def test_retention_removes_segments_of_former_runs(opened: Opener) -> None:
    for number in range(5):
        with opened() as log:
            log.append([b"%d" % number])
    with opened(LogSettings(segment_size_bytes=4096, retain_bytes=4096, sync=False)) as log:
        assert list(log.reader().tail()) == []
        assert log.next_number == 5


def test_retention_does_not_count_space_that_a_killed_writer_preallocated(
    tmp_path: Path,
) -> None:
    large = LogSettings(segment_size_bytes=1 << 20, sync=False)
    log = Log.open(tmp_path / "live", purpose=b"TEST", settings=large)
    log.append([b"a"])
    killed = copy_of(tmp_path / "live", tmp_path / "killed")
    log.close()
    with open_small(killed, retain_bytes=8192) as log:
        log.append([b"b"])
        log.rotate()
        assert payloads(log.reader().tail()) == [b"a", b"b"]


def test_a_log_has_one_writer_at_a_time(opened: Opener) -> None:
    log = opened()
    with pytest.raises(LogLocked):
        opened()
    log.append([b"a"])
    log.close()
    opened().close()


def test_a_log_for_another_purpose_is_refused_and_not_changed(opened: Opener) -> None:
    with opened() as log:
        log.append([b"a"])
        reader = log.reader()
    before = reader.segments()
    with pytest.raises(LogMismatch, match="another purpose"):
        opened(SMALL, b"ELSE")
    assert reader.segments() == before
    opened().close()


@pytest.mark.parametrize("purpose", [b"", b"ABC", b"ABCDE"])
def test_a_purpose_has_four_bytes(opened: Opener, purpose: bytes) -> None:
    with pytest.raises(ConfigurationError, match="4 bytes"):
        opened(SMALL, purpose)


@pytest.mark.parametrize(
    "settings",
    [
        {"segment_size_bytes": 4095},
        {"segment_size_bytes": 1 << 40},
        {"retain_bytes": -1},
        {"retain_s": -0.5},
        {"retain_s": float("nan")},
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        LogSettings(**settings)  # type: ignore[arg-type]
