"""The scribe: blocks and their order, and disks that are full, fail or lose the log."""

from __future__ import annotations

import logging
from collections import Counter
from itertools import count

import pytest
from tests.journal.faulty import STARTED_NS, ScribeHarness
from tests.journal.rows import CALL, EVENTS, SPAN

from requite.chronicle import EventRow, Kind
from requite.errors import LogFailed, LogFull, LogGone, StorageError
from requite.journal.blocks import BlockType, parse_header
from requite.journal.encode import ROWS_PER_BLOCK, press_spans
from requite.journal.meaning import KIND_NAMES

FULL = LogFull("cannot write: no space left on device")
FAILED = LogFailed("cannot write: input/output error")


def opened(**settings: float) -> ScribeHarness:
    harness = ScribeHarness(**settings)
    harness.scribe.open()
    return harness


def kinds(harness: ScribeHarness) -> Counter[str | None]:
    return Counter(event.kind for event in harness.disk.events())


def seqs(harness: ScribeHarness) -> list[int | None]:
    return [event.seq for event in harness.disk.events()]


def dropped(harness: ScribeHarness) -> list[int | None]:
    return [event.dropped for event in harness.disk.events() if event.kind == "dropped"]


# --- a working disk -------------------------------------------------------------------------------
def test_the_rows_of_an_engine_are_written_in_order():
    harness = opened()
    harness.chronicle.spans += [SPAN, SPAN]
    harness.chronicle.event_rows += EVENTS
    harness.advance(0.05)
    harness.scribe.close()
    assert [event.kind for event in harness.disk.events()] == [
        "opened",
        *["accepted", "queued", "dispatched", "answered"] * 2,
        *["accepted", "answered"],
        "closed",
    ]
    assert seqs(harness) == list(range(12))
    assert harness.scribe.events == 12


def test_pressed_spans_are_written():
    harness = opened()
    harness.chronicle.pressed.append(press_spans([SPAN] * 3))
    harness.chronicle.spans.append(SPAN)
    harness.advance(0.05)
    assert kinds(harness)["answered"] == 4
    assert seqs(harness) == list(range(17))


def test_a_flush_without_new_rows_writes_nothing():
    harness = opened()
    harness.advance(0.05)
    before = harness.disk.appends
    harness.advance(0.05)
    assert harness.disk.appends == before


def test_the_log_is_synced_at_most_once_per_interval():
    harness = opened(sync_every_s=1.0)
    for _ in range(40):  # two seconds
        harness.chronicle.spans.append(SPAN)
        harness.advance(0.05)
    assert harness.disk.syncs == 2
    harness.advance(1.0)  # no new rows, but rows written since the last sync
    assert harness.disk.syncs == 3
    harness.advance(5.0)
    assert harness.disk.syncs == 3


def test_many_rows_are_cut_into_blocks():
    harness = opened()
    harness.chronicle.spans += [SPAN] * (2 * ROWS_PER_BLOCK + 1)
    harness.advance(0.05)
    headers = [parse_header(item.payload) for item in harness.disk.items()]
    rows = [header.rows for header in headers if header.type == BlockType.SPANS]
    assert rows == [ROWS_PER_BLOCK, ROWS_PER_BLOCK, 1]
    assert kinds(harness)["answered"] == 2 * ROWS_PER_BLOCK + 1


def test_each_segment_begins_with_opened_and_defines_its_strings():
    harness = opened()
    for number in range(40):
        service = b"service-%d" % (number % 3)
        harness.chronicle.spans += [(*SPAN[:5], service, *SPAN[6:])] * ROWS_PER_BLOCK
        harness.advance(0.05)
    first = {item.segment: item for item in reversed(harness.disk.items())}
    assert len(first) > 1
    for item in first.values():
        assert parse_header(item.payload).type == BlockType.OPENED
    services = Counter(event.service for event in harness.disk.events() if event.kind == "answered")
    assert services.keys() == {"service-0", "service-1", "service-2"}
    assert services.total() == 40 * ROWS_PER_BLOCK
    assert seqs(harness) == list(range(1 + 4 * services.total()))


def test_instants_are_utc_and_follow_a_step_of_the_clock():
    harness = opened()
    harness.chronicle.event_rows.append(EventRow(100.5, Kind.PARTIAL, CALL))
    harness.advance(1.0)
    harness.clock.ahead_ns -= 3600 * 10**9  # the clock is set back by an hour
    harness.chronicle.event_rows.append(EventRow(102.5, Kind.PARTIAL, CALL))
    harness.advance(1.0)
    found = [event.ts.timestamp() for event in harness.disk.events() if event.kind == "partial"]
    assert found == [STARTED_NS / 1e9 + 100.5, STARTED_NS / 1e9 + 102.5 - 3600]


# --- a full disk ----------------------------------------------------------------------------------
def test_rows_wait_for_a_full_disk_and_are_written_when_there_is_space():
    harness = opened()
    harness.disk.fault = FULL
    for _ in range(10):
        harness.chronicle.spans.append(SPAN)
        harness.advance(0.05)
    assert (harness.scribe.backlog, harness.scribe.dropped) == (10, 0)
    assert "no space" in harness.scribe.failure
    harness.disk.fault = None
    harness.advance(1.0)
    assert (harness.scribe.backlog, harness.scribe.failure) == (0, "")
    assert kinds(harness)["answered"] == 10
    assert seqs(harness) == list(range(41))


def test_rows_beyond_the_backlog_are_dropped_and_the_log_records_their_count():
    harness = opened(backlog_rows_max=100)
    harness.disk.fault = FULL
    for _ in range(300):
        harness.chronicle.spans.append(SPAN)
        harness.advance(0.05)
        assert harness.scribe.backlog <= 101
    lost = harness.scribe.dropped
    assert lost + harness.scribe.backlog == 300
    harness.disk.fault = None
    harness.advance(1.0)
    assert kinds(harness)["answered"] == 300 - lost
    assert dropped(harness) == [lost]
    harness.advance(1.0)
    assert dropped(harness) == [lost]  # recorded once


def test_rows_dropped_by_the_engine_are_recorded():
    harness = opened()
    harness.chronicle.dropped = 7
    harness.advance(0.05)
    harness.chronicle.dropped = 9
    harness.advance(0.05)
    assert dropped(harness) == [7, 2]
    assert harness.scribe.dropped == 9


def test_a_full_disk_is_retried_and_causes_one_warning(caplog):
    caplog.set_level(logging.INFO, "requite.journal")
    harness = opened(retry_every_s=1.0)
    harness.disk.fault = FULL
    for _ in range(100):  # five seconds
        harness.chronicle.spans.append(SPAN)
        harness.advance(0.05)
    assert len(caplog.records) == 1
    assert "cannot write the journal" in caplog.messages[0]
    harness.disk.fault = None
    harness.advance(1.0)
    assert len(caplog.records) == 2
    assert "written again" in caplog.messages[1]


def test_strings_of_a_failed_write_are_defined_by_the_next_one():
    harness = opened()
    harness.disk.fault = FULL
    harness.chronicle.spans.append((*SPAN[:5], b"new", *SPAN[6:]))
    harness.advance(0.05)
    harness.disk.fault = None
    harness.advance(1.0)
    assert {event.service for event in harness.disk.events()} == {None, "new"}


def test_a_rotation_that_failed_is_completed_later():
    harness = opened()
    fills = [SPAN] * ROWS_PER_BLOCK
    for _ in range(31):  # nearly the whole segment
        harness.chronicle.spans += fills
        harness.advance(0.05)
    harness.disk.fault = FULL
    harness.chronicle.spans += fills * 2
    harness.advance(0.05)
    harness.disk.fault = None
    harness.advance(1.0)
    events = harness.disk.events()
    assert len({event.segment for event in events}) == 2
    assert {event.service for event in events} == {None, "echo"}
    assert [event.seq for event in events] == list(range(1 + 4 * 33 * ROWS_PER_BLOCK))


# --- a failing disk -------------------------------------------------------------------------------
@pytest.mark.parametrize("where", ["fault", "sync_fault"])
def test_a_failed_log_is_reopened_and_continued(where):
    harness = opened(sync_every_s=0.0)
    harness.chronicle.spans.append(SPAN)
    setattr(harness.disk, where, FAILED)
    harness.advance(0.05)
    assert harness.scribe.failure
    setattr(harness.disk, where, None)
    harness.chronicle.spans.append(SPAN)
    harness.advance(1.0)
    assert not harness.scribe.failure
    assert harness.disk.opened == 2
    assert kinds(harness)["answered"] == 2
    assert seqs(harness) == list(range(9))


def test_a_failed_log_is_reopened_even_without_new_rows():
    harness = opened(sync_every_s=0.0)
    harness.disk.sync_fault = FAILED
    harness.advance(0.05)
    harness.disk.fault = FAILED  # now it cannot be opened either
    for _ in range(5):
        harness.advance(1.0)
        assert harness.scribe.failure
    harness.disk.fault = harness.disk.sync_fault = None
    harness.advance(1.0)
    assert not harness.scribe.failure


def test_a_removed_log_is_started_again_and_records_the_rows_it_may_have_lost():
    harness = opened(sync_every_s=1.0)
    harness.advance(1.0)
    harness.chronicle.spans += [SPAN] * 5
    harness.advance(0.5)
    harness.disk.is_here = False
    harness.advance(0.5)
    assert harness.scribe.dropped == 5
    harness.disk.is_here = True
    harness.advance(1.0)
    assert dropped(harness) == [5]
    assert not harness.scribe.failure


@pytest.mark.parametrize("operation", ["sync", "append"])
def test_rows_of_a_removed_log_are_counted_whichever_operation_fails(operation):
    harness = opened(sync_every_s=1.0)
    harness.advance(1.0)
    harness.chronicle.spans += [SPAN] * 5
    harness.advance(0.5)
    gone = LogGone("the file that is being written has been removed")
    if operation == "sync":
        harness.disk.checks = iter([True])  # removed between the check and the sync
        harness.disk.sync_fault = gone
    else:
        harness.chronicle.spans.append(SPAN)
        harness.disk.fault = gone
    harness.disk.is_here = False
    harness.advance(0.5)
    assert harness.scribe.dropped == 5
    harness.disk.is_here, harness.disk.fault, harness.disk.sync_fault = True, None, None
    harness.advance(1.0)
    assert dropped(harness) == [5]


def test_a_row_that_cannot_be_encoded_does_not_end_the_journal(caplog):
    harness = opened()
    harness.chronicle.spans += [SPAN, (*SPAN[:4], "no bytes", *SPAN[5:])]  # type: ignore[list-item]
    harness.advance(0.05)
    assert "a bug in requite" in caplog.text
    harness.chronicle.spans.append(SPAN)
    harness.advance(0.05)
    assert kinds(harness)["answered"] == 1
    assert dropped(harness) == [2]


# --- opening and closing --------------------------------------------------------------------------
def test_a_log_that_cannot_be_opened_is_an_error_at_the_start():
    harness = ScribeHarness()
    harness.disk.fault = FAILED
    with pytest.raises(StorageError, match="input/output error"):
        harness.scribe.open()


def test_a_journal_starts_on_a_full_disk(caplog):
    harness = ScribeHarness()
    harness.disk.fault = FULL
    harness.scribe.open()
    for _ in range(3):
        harness.chronicle.spans.append(SPAN)
        harness.advance(1.0)
    assert "no space" in harness.scribe.failure
    assert caplog.text.count("cannot write the journal") == 1
    harness.disk.fault = None
    harness.advance(1.0)
    harness.scribe.close()
    assert kinds(harness) == Counter(
        opened=1, accepted=3, queued=3, dispatched=3, answered=3, closed=1
    )
    assert harness.scribe.dropped == 0


def test_closing_writes_the_last_rows():
    harness = opened()
    harness.chronicle.spans.append(SPAN)
    harness.scribe.close()
    assert [event.kind for event in harness.disk.events()][-2:] == ["answered", "closed"]


def test_closing_retries_a_full_disk_once():
    harness = opened()
    harness.disk.fault = FULL
    harness.chronicle.spans.append(SPAN)
    harness.advance(0.05)
    harness.disk.fault = None
    harness.scribe.close()
    assert [event.kind for event in harness.disk.events()][-2:] == ["answered", "closed"]


def test_closing_on_a_full_disk_counts_the_lost_rows(caplog):
    harness = opened()
    harness.disk.fault = FULL
    harness.chronicle.spans.append(SPAN)
    harness.scribe.close()
    assert harness.scribe.dropped == 2  # the span, and the CLOSED row
    assert "ends incomplete" in caplog.text


# --- a disk that stays full -----------------------------------------------------------------------
def filled(**settings: float) -> ScribeHarness:
    """Return a harness whose segment is full, on a disk without space for another segment."""
    harness = opened(**settings)
    harness.disk.is_full = True
    reasons = (f"{number:01000}" for number in count())  # long, so a few rows fill the segment
    while not harness.scribe.failure:
        row = EventRow(1.0, Kind.REFUSED, reason=next(reasons))
        harness.chronicle.event_rows += [row] * 2
        harness.advance(1.0)
    return harness


def test_a_log_on_a_full_disk_ends_with_the_count_of_dropped_rows():
    harness = filled()
    harness.chronicle.spans += [SPAN] * 1000
    harness.scribe.close()
    assert dropped(harness) == [harness.scribe.dropped]
    assert [event.kind for event in harness.disk.events()][-2:] == ["dropped", "closed"]
    assert harness.scribe.dropped == 1000 + 2
    assert seqs(harness) == list(range(1 + kinds(harness)["refused"] + 2))


def test_a_log_on_a_full_disk_records_dropped_rows_less_and_less_often(caplog):
    harness = filled(backlog_rows_max=10)
    for _ in range(300):
        harness.chronicle.spans += [SPAN] * 50
        harness.advance(1.0)
        assert harness.scribe.failure
    recorded = sum(dropped(harness))  # a process killed now leaves this count
    assert harness.scribe.dropped / 2 < recorded <= harness.scribe.dropped
    assert len(dropped(harness)) < 20
    assert caplog.text.count("cannot write the journal") == 1
    assert "written again" not in caplog.text
    harness.scribe.close()
    assert sum(dropped(harness)) == harness.scribe.dropped
    assert harness.disk.events()[-1].kind == "closed"


def test_a_log_continues_in_a_new_segment_once_there_is_space():
    harness = filled(backlog_rows_max=10)
    harness.advance(1.0)
    harness.disk.is_full = False
    harness.advance(1.0)
    assert not harness.scribe.failure
    harness.chronicle.spans += [SPAN] * 7
    harness.advance(1.0)
    harness.scribe.close()
    events = harness.disk.events()
    assert [event.kind for event in events if event.segment == events[-1].segment] == [
        *["refused"] * 2,  # rows that waited while the disk was full
        *["accepted", "queued", "dispatched", "answered"] * 7,
        "closed",
    ]
    assert harness.scribe.dropped == 0


def test_rows_that_cannot_be_encoded_when_closing_are_counted(caplog):
    harness = opened()
    harness.chronicle.spans += [SPAN, (*SPAN[:4], "no bytes", *SPAN[5:])]  # type: ignore[list-item]
    harness.scribe.close()
    assert [event.kind for event in harness.disk.events()] == ["opened", "dropped", "closed"]
    assert dropped(harness) == [2]
    assert "ends incomplete: 2 rows" in caplog.text


def test_every_kind_has_a_name():
    assert set(KIND_NAMES) == set(map(int, Kind))
