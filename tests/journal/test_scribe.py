"""The scribe: what is written when, and a disk that is full, fails or loses the log."""

from __future__ import annotations

import logging
from collections import Counter
from itertools import count

import pytest
from tests.journal.faulty import STARTED_NS, Desk
from tests.journal.rows import CALL, EVENTS, SPAN

from requite.chronicle import EventRow, Kind
from requite.errors import LogFailed, LogFull, LogGone, StorageError
from requite.journal.blocks import BlockType, parse_header
from requite.journal.encode import ROWS_PER_BLOCK, press_spans
from requite.journal.meaning import KIND_NAMES

FULL = LogFull("cannot write: no space left on device")
FAILED = LogFailed("cannot write: input/output error")


def opened(**settings: float) -> Desk:
    desk = Desk(**settings)
    desk.scribe.open()
    return desk


def kinds(desk: Desk) -> Counter[str | None]:
    return Counter(event.kind for event in desk.disk.events())


def seqs(desk: Desk) -> list[int | None]:
    return [event.seq for event in desk.disk.events()]


def dropped(desk: Desk) -> list[int | None]:
    return [event.dropped for event in desk.disk.events() if event.kind == "dropped"]


# --- in good order --------------------------------------------------------------------------------
def test_what_engines_tell_is_on_the_log_in_order():
    desk = opened()
    desk.chronicle.spans += [SPAN, SPAN]
    desk.chronicle.event_rows += EVENTS
    desk.pass_time(0.05)
    desk.scribe.close()
    assert [event.kind for event in desk.disk.events()] == [
        "opened",
        *["accepted", "queued", "dispatched", "answered"] * 2,
        *["accepted", "answered"],
        "closed",
    ]
    assert seqs(desk) == list(range(12))
    assert desk.scribe.events == 12


def test_pressed_spans_are_written_like_others():
    desk = opened()
    desk.chronicle.pressed.append(press_spans([SPAN] * 3))
    desk.chronicle.spans.append(SPAN)
    desk.pass_time(0.05)
    assert kinds(desk)["answered"] == 4
    assert seqs(desk) == list(range(17))


def test_a_second_look_finds_nothing_to_write():
    desk = opened()
    desk.pass_time(0.05)
    before = desk.disk.appends
    desk.pass_time(0.05)
    assert desk.disk.appends == before


def test_the_disk_is_waited_for_at_most_once_per_interval():
    desk = opened(sync_every_s=1.0)
    for _ in range(40):  # two seconds
        desk.chronicle.spans.append(SPAN)
        desk.pass_time(0.05)
    assert desk.disk.syncs == 2
    desk.pass_time(1.0)  # nothing new, but what came after the last one
    assert desk.disk.syncs == 3
    desk.pass_time(5.0)
    assert desk.disk.syncs == 3


def test_many_rows_are_cut_into_blocks():
    desk = opened()
    desk.chronicle.spans += [SPAN] * (2 * ROWS_PER_BLOCK + 1)
    desk.pass_time(0.05)
    headers = [parse_header(item.payload) for item in desk.disk.items()]
    rows = [header.rows for header in headers if header.type == BlockType.SPANS]
    assert rows == [ROWS_PER_BLOCK, ROWS_PER_BLOCK, 1]
    assert kinds(desk)["answered"] == 2 * ROWS_PER_BLOCK + 1


def test_each_segment_begins_with_opened_and_defines_its_strings():
    desk = opened()
    for number in range(40):
        service = b"service-%d" % (number % 3)
        desk.chronicle.spans += [(*SPAN[:5], service, *SPAN[6:])] * ROWS_PER_BLOCK
        desk.pass_time(0.05)
    first = {item.segment: item for item in reversed(desk.disk.items())}
    assert len(first) > 1
    for item in first.values():
        assert parse_header(item.payload).type == BlockType.OPENED
    services = Counter(event.service for event in desk.disk.events() if event.kind == "answered")
    assert services.keys() == {"service-0", "service-1", "service-2"}
    assert services.total() == 40 * ROWS_PER_BLOCK
    assert seqs(desk) == list(range(1 + 4 * services.total()))


def test_instants_are_utc_and_a_stepped_clock_shows():
    desk = opened()
    desk.chronicle.event_rows.append(EventRow(100.5, Kind.PARTIAL, CALL))
    desk.pass_time(1.0)
    desk.clock.ahead_ns -= 3600 * 10**9  # somebody sets it back by an hour
    desk.chronicle.event_rows.append(EventRow(102.5, Kind.PARTIAL, CALL))
    desk.pass_time(1.0)
    found = [event.ts.timestamp() for event in desk.disk.events() if event.kind == "partial"]
    assert found == [STARTED_NS / 1e9 + 100.5, STARTED_NS / 1e9 + 102.5 - 3600]


# --- a full disk ----------------------------------------------------------------------------------
def test_rows_wait_for_a_full_disk_and_are_written_when_there_is_space():
    desk = opened()
    desk.disk.fault = FULL
    for _ in range(10):
        desk.chronicle.spans.append(SPAN)
        desk.pass_time(0.05)
    assert (desk.scribe.backlog, desk.scribe.dropped) == (10, 0)
    assert "no space" in desk.scribe.failure
    desk.disk.fault = None
    desk.pass_time(1.0)
    assert (desk.scribe.backlog, desk.scribe.failure) == (0, "")
    assert kinds(desk)["answered"] == 10
    assert seqs(desk) == list(range(41))


def test_rows_that_wait_too_long_are_dropped_and_the_log_tells_how_many():
    desk = opened(backlog_rows_max=100)
    desk.disk.fault = FULL
    for _ in range(300):
        desk.chronicle.spans.append(SPAN)
        desk.pass_time(0.05)
        assert desk.scribe.backlog <= 101
    lost = desk.scribe.dropped
    assert lost + desk.scribe.backlog == 300
    desk.disk.fault = None
    desk.pass_time(1.0)
    assert kinds(desk)["answered"] == 300 - lost
    assert dropped(desk) == [lost]
    desk.pass_time(1.0)
    assert dropped(desk) == [lost]  # told once


def test_rows_dropped_by_the_engine_are_told_as_well():
    desk = opened()
    desk.chronicle.dropped = 7
    desk.pass_time(0.05)
    desk.chronicle.dropped = 9
    desk.pass_time(0.05)
    assert dropped(desk) == [7, 2]
    assert desk.scribe.dropped == 9


def test_a_full_disk_is_asked_now_and_then_and_warned_about_once(caplog):
    caplog.set_level(logging.INFO, "requite.journal")
    desk = opened(retry_every_s=1.0)
    desk.disk.fault = FULL
    for _ in range(100):  # five seconds
        desk.chronicle.spans.append(SPAN)
        desk.pass_time(0.05)
    assert len(caplog.records) == 1
    assert "cannot write the journal" in caplog.messages[0]
    desk.disk.fault = None
    desk.pass_time(1.0)
    assert len(caplog.records) == 2
    assert "written again" in caplog.messages[1]


def test_strings_of_a_failed_write_are_defined_by_the_next_one():
    desk = opened()
    desk.disk.fault = FULL
    desk.chronicle.spans.append((*SPAN[:5], b"new", *SPAN[6:]))
    desk.pass_time(0.05)
    desk.disk.fault = None
    desk.pass_time(1.0)
    assert {event.service for event in desk.disk.events()} == {None, "new"}


def test_a_segment_that_could_not_be_begun_begins_like_any_other():
    desk = opened()
    fills = [SPAN] * ROWS_PER_BLOCK
    for _ in range(31):  # nearly the whole segment
        desk.chronicle.spans += fills
        desk.pass_time(0.05)
    desk.disk.fault = FULL
    desk.chronicle.spans += fills * 2
    desk.pass_time(0.05)
    desk.disk.fault = None
    desk.pass_time(1.0)
    events = desk.disk.events()
    assert len({event.segment for event in events}) == 2
    assert {event.service for event in events} == {None, "echo"}
    assert [event.seq for event in events] == list(range(1 + 4 * 33 * ROWS_PER_BLOCK))


# --- a failing disk -------------------------------------------------------------------------------
@pytest.mark.parametrize("where", ["fault", "sync_fault"])
def test_a_log_that_failed_is_opened_again_and_goes_on(where):
    desk = opened(sync_every_s=0.0)
    desk.chronicle.spans.append(SPAN)
    setattr(desk.disk, where, FAILED)
    desk.pass_time(0.05)
    assert desk.scribe.failure
    setattr(desk.disk, where, None)
    desk.chronicle.spans.append(SPAN)
    desk.pass_time(1.0)
    assert not desk.scribe.failure
    assert desk.disk.opened == 2
    assert kinds(desk)["answered"] == 2
    assert seqs(desk) == list(range(9))


def test_after_a_failure_the_log_is_opened_even_if_there_is_nothing_to_write():
    desk = opened(sync_every_s=0.0)
    desk.disk.sync_fault = FAILED
    desk.pass_time(0.05)
    desk.disk.fault = FAILED  # now it cannot be opened either
    for _ in range(5):
        desk.pass_time(1.0)
        assert desk.scribe.failure
    desk.disk.fault = desk.disk.sync_fault = None
    desk.pass_time(1.0)
    assert not desk.scribe.failure


def test_a_log_that_was_removed_begins_anew_and_tells_what_it_may_have_lost():
    desk = opened(sync_every_s=1.0)
    desk.pass_time(1.0)
    desk.chronicle.spans += [SPAN] * 5
    desk.pass_time(0.5)
    desk.disk.is_here = False
    desk.pass_time(0.5)
    assert desk.scribe.dropped == 5
    desk.disk.is_here = True
    desk.pass_time(1.0)
    assert dropped(desk) == [5]
    assert not desk.scribe.failure


@pytest.mark.parametrize("operation", ["sync", "append"])
def test_rows_of_a_log_that_is_removed_are_counted_whatever_notices_it(operation):
    desk = opened(sync_every_s=1.0)
    desk.pass_time(1.0)
    desk.chronicle.spans += [SPAN] * 5
    desk.pass_time(0.5)
    gone = LogGone("the file that is being written has been removed")
    if operation == "sync":
        desk.disk.looks = iter([True])  # there when it was looked for, and gone when it is synced
        desk.disk.sync_fault = gone
    else:
        desk.chronicle.spans.append(SPAN)
        desk.disk.fault = gone
    desk.disk.is_here = False
    desk.pass_time(0.5)
    assert desk.scribe.dropped == 5
    desk.disk.is_here, desk.disk.fault, desk.disk.sync_fault = True, None, None
    desk.pass_time(1.0)
    assert dropped(desk) == [5]


def test_a_row_that_cannot_be_encoded_does_not_end_the_journal(caplog):
    desk = opened()
    desk.chronicle.spans += [SPAN, (*SPAN[:4], "no bytes", *SPAN[5:])]  # type: ignore[list-item]
    desk.pass_time(0.05)
    assert "a bug in requite" in caplog.text
    desk.chronicle.spans.append(SPAN)
    desk.pass_time(0.05)
    assert kinds(desk)["answered"] == 1
    assert dropped(desk) == [2]


# --- beginning and end ----------------------------------------------------------------------------
def test_a_log_that_cannot_be_opened_is_an_error_at_the_start():
    desk = Desk()
    desk.disk.fault = FAILED
    with pytest.raises(StorageError, match="input/output error"):
        desk.scribe.open()


def test_a_disk_that_is_full_from_the_start_is_no_reason_not_to_start(caplog):
    desk = Desk()
    desk.disk.fault = FULL
    desk.scribe.open()
    for _ in range(3):
        desk.chronicle.spans.append(SPAN)
        desk.pass_time(1.0)
    assert "no space" in desk.scribe.failure
    assert caplog.text.count("cannot write the journal") == 1
    desk.disk.fault = None
    desk.pass_time(1.0)
    desk.scribe.close()
    assert kinds(desk) == Counter(
        opened=1, accepted=3, queued=3, dispatched=3, answered=3, closed=1
    )
    assert desk.scribe.dropped == 0


def test_closing_writes_what_engines_told_last():
    desk = opened()
    desk.chronicle.spans.append(SPAN)
    desk.scribe.close()
    assert [event.kind for event in desk.disk.events()][-2:] == ["answered", "closed"]


def test_closing_tries_a_full_disk_once_more():
    desk = opened()
    desk.disk.fault = FULL
    desk.chronicle.spans.append(SPAN)
    desk.pass_time(0.05)
    desk.disk.fault = None
    desk.scribe.close()
    assert [event.kind for event in desk.disk.events()][-2:] == ["answered", "closed"]


def test_closing_on_a_full_disk_counts_what_is_lost(caplog):
    desk = opened()
    desk.disk.fault = FULL
    desk.chronicle.spans.append(SPAN)
    desk.scribe.close()
    assert desk.scribe.dropped == 2  # the end could not be told either
    assert "ends incomplete" in caplog.text


# --- a disk that is full and stays so -------------------------------------------------------------
def filled(**settings: float) -> Desk:
    """Return a desk whose log has no room for rows any more, nor the disk for another segment."""
    desk = opened(**settings)
    desk.disk.is_full = True
    reasons = (f"{number:01000}" for number in count())  # long strings fill it with few rows
    while not desk.scribe.failure:
        row = EventRow(1.0, Kind.REFUSED, reason=next(reasons))
        desk.chronicle.event_rows += [row] * 2
        desk.pass_time(1.0)
    return desk


def test_a_log_on_a_full_disk_ends_with_what_was_dropped():
    desk = filled()
    desk.chronicle.spans += [SPAN] * 1000
    desk.scribe.close()
    assert dropped(desk) == [desk.scribe.dropped]
    assert [event.kind for event in desk.disk.events()][-2:] == ["dropped", "closed"]
    assert desk.scribe.dropped == 1000 + 2
    assert seqs(desk) == list(range(1 + kinds(desk)["refused"] + 2))


def test_it_tells_so_while_it_goes_on_and_ever_more_rarely(caplog):
    desk = filled(backlog_rows_max=10)
    for _ in range(300):
        desk.chronicle.spans += [SPAN] * 50
        desk.pass_time(1.0)
        assert desk.scribe.failure
    told = sum(dropped(desk))  # this is what a process leaves that is killed now
    assert desk.scribe.dropped / 2 < told <= desk.scribe.dropped
    assert len(dropped(desk)) < 20
    assert caplog.text.count("cannot write the journal") == 1
    assert "written again" not in caplog.text
    desk.scribe.close()
    assert sum(dropped(desk)) == desk.scribe.dropped
    assert desk.disk.events()[-1].kind == "closed"


def test_after_that_it_goes_on_in_the_next_segment():
    desk = filled(backlog_rows_max=10)
    desk.pass_time(1.0)
    desk.disk.is_full = False
    desk.pass_time(1.0)
    assert not desk.scribe.failure
    desk.chronicle.spans += [SPAN] * 7
    desk.pass_time(1.0)
    desk.scribe.close()
    events = desk.disk.events()
    assert [event.kind for event in events if event.segment == events[-1].segment] == [
        *["refused"] * 2,  # which were to be written when the disk was full
        *["accepted", "queued", "dispatched", "answered"] * 7,
        "closed",
    ]
    assert desk.scribe.dropped == 0


def test_rows_that_cannot_be_encoded_at_the_end_are_told(caplog):
    desk = opened()
    desk.chronicle.spans += [SPAN, (*SPAN[:4], "no bytes", *SPAN[5:])]  # type: ignore[list-item]
    desk.scribe.close()
    assert [event.kind for event in desk.disk.events()] == ["opened", "dropped", "closed"]
    assert dropped(desk) == [2]
    assert "ends incomplete: 2 rows" in caplog.text


def test_every_kind_has_a_name():
    assert set(KIND_NAMES) == set(map(int, Kind))
