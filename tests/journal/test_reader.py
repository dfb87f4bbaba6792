"""Events: the meaning of rows by role, undecodable rows, and logs that grow while read."""

from __future__ import annotations

from datetime import UTC, date, datetime
from math import inf, nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.journal.faulty import NAME, decode
from tests.journal.rows import CALL, SPAN, event_rows, span_rows

from requite.chronicle import EventRow, Kind, SpanRow, WriterRole
from requite.errors import ConfigurationError
from requite.journal import Journal
from requite.journal.blocks import EVENT_COLUMNS, ROW_SIZE, SPAN_COLUMNS
from requite.journal.encode import (
    encode_event_rows,
    encode_opened,
    encode_spans,
    encode_strings,
)
from requite.journal.event import Event
from requite.journal.folder import find_logs
from requite.journal.reader import JournalTail, LogTail, Selection, events, newest
from requite.journal.strings import Strings
from requite.request import Status
from requite.spark.schemas import SOURCE
from requite.storage import Damage, Log, Record
from requite.storage.layout import RECORD_HEADER_SIZE

OFFSET_US = 1_700_000_000_000_000
AT = 128  # of the record in its segment
CELLS = AT + RECORD_HEADER_SIZE + 24


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(OFFSET_US // 10**6 + seconds, UTC)


def record(payload: bytes) -> Record:
    return Record(7, AT, 3, memoryview(payload))


def spans(*rows: SpanRow, role: WriterRole = WriterRole.BROKER) -> list[Event]:
    strings = Strings()
    block = encode_spans(rows, strings, OFFSET_US, 40)
    return decode([*map(record, encode_strings(strings.fresh, 0, 0)), record(block)], role)


def read_rows(*rows: EventRow) -> list[Event]:
    strings = Strings()
    block = encode_event_rows(rows, strings, OFFSET_US, 40)
    return decode([*map(record, encode_strings(strings.fresh, 0, 0)), record(block)])


# --- the meaning of rows --------------------------------------------------------------------------
def test_the_fields_are_the_columns_that_spark_reads():
    columns = [part.split()[0] for part in SOURCE.split(",")]
    assert list(Event._fields) == columns


def test_a_span_of_a_broker():
    accepted, queued, dispatched, answered = spans(SPAN)
    assert accepted == Event(
        schema_version=1,
        log=f"broker-{NAME}",
        segment=7,
        byte_offset=CELLS,
        seq=40,
        ts=at(1.0),
        kind="accepted",
        request_id=CALL.hex(),
        service="echo",
        client=CALL[:8].hex(),
        broker=NAME,
        bytes=5,
        date=date(2023, 11, 14),
        role="broker",
        deadline=at(4.0),
    )
    assert (queued.kind, queued.ts, queued.seq) == ("queued", at(1.0), 41)
    assert queued.byte_offset == CELLS + SPAN_COLUMNS["deadline"].before
    assert (dispatched.kind, dispatched.ts, dispatched.seq) == ("dispatched", at(2.0), 42)
    assert (dispatched.worker, dispatched.attempt) == (b"worker-1".hex(), 1)
    assert (answered.kind, answered.ts, answered.seq) == ("answered", at(3.0), 43)
    assert (answered.outcome, answered.bytes, answered.worker) == ("OK", 6, b"worker-1".hex())


def test_a_request_that_was_dispatched_at_once_has_no_queued_event():
    row = (1.0, 1.0, *SPAN[2:])
    assert [event.kind for event in spans(row)] == ["accepted", "dispatched", "answered"]
    assert [event.seq for event in spans(row)] == [40, 42, 43]


@pytest.mark.parametrize(
    ("role", "kinds"),
    [
        (WriterRole.CLIENT, ["accepted", "sent", "answered"]),
        (WriterRole.WORKER, ["delivered", "started", "finished"]),
    ],
)
def test_a_span_of_a_client_or_worker(role, kinds):
    found = spans(SPAN, role=role)
    assert [event.kind for event in found] == kinds
    assert [event.ts for event in found] == [at(1.0), at(2.0), at(3.0)]
    assert [event.bytes for event in found] == [5, None, 6]
    assert found[-1].outcome == "OK"
    assert {event.broker for event in found} == {None}
    has_worker = role is WriterRole.WORKER
    assert [event.worker is not None for event in found] == [has_worker] * 3


@given(st.lists(span_rows, min_size=1, max_size=10), st.lists(event_rows, max_size=10))
def test_every_event_has_a_unique_offset_and_number(rows: list[SpanRow], others: list[EventRow]):
    found = spans(*rows)
    assert len({event.byte_offset for event in found}) == len(found)
    assert len({event.seq for event in found}) == len(found)
    first, end = CELLS, CELLS + ROW_SIZE * len(rows)
    assert all(first <= event.byte_offset < end for event in found)
    assert all(40 <= event.seq < 40 + 4 * len(rows) for event in found)
    if others:
        places = [event.byte_offset for event in read_rows(*others)]
        assert places == [CELLS + 8 * row for row in range(len(others))]


def test_fields_that_do_not_apply_to_an_event_row_are_none():
    (event,) = read_rows(EventRow(1.0, Kind.QUEUED, CALL))
    assert event == Event(
        schema_version=1,
        log=f"broker-{NAME}",
        segment=7,
        byte_offset=CELLS,
        seq=40,
        ts=at(1.0),
        kind="queued",
        request_id=CALL.hex(),
        client=CALL[:8].hex(),
        broker=NAME,
        date=date(2023, 11, 14),
        role="broker",
    )


@pytest.mark.parametrize(
    ("row", "facts"),
    [
        (EventRow(1.0, Kind.ACCEPTED, size=0, value=3.0), {"bytes": 0, "deadline": at(3.0)}),
        (EventRow(1.0, Kind.ACCEPTED, value=inf), {"bytes": 0, "deadline": None}),
        (EventRow(1.0, Kind.DELIVERED, value=3.0), {"deadline": at(3.0)}),
        (EventRow(1.0, Kind.DISPATCHED, value=3.0, size=9), {"deadline": None, "bytes": None}),
        (
            EventRow(1.0, Kind.HEARTBEAT, value=0.5, busy=2, capacity=1 << 31),
            {"gap_s": 0.5, "busy": 2, "capacity": (1 << 31) - 1, "deadline": None},
        ),
        (EventRow(1.0, Kind.WORKER_LOST, value=nan), {"gap_s": None, "busy": 0}),
        (EventRow(1.0, Kind.QUEUED, value=0.5, busy=2), {"gap_s": None, "busy": None}),
        (EventRow(1.0, Kind.DROPPED, value=12.0), {"dropped": 12, "request_id": None}),
        (
            EventRow(1.0, Kind.ANSWERED, CALL, outcome=Status.POISONED, error="Poisoned"),
            {"outcome": "POISONED", "error_class": "Poisoned", "attempt": None},
        ),
        (EventRow(1.0, Kind.ANSWERED, CALL, outcome=99), {"outcome": "unknown:99"}),
        (EventRow(1.0, Kind.REFUSED, service=b"\xff"), {"service": r"\xff"}),
    ],
)
def test_what_a_cell_means_depends_on_the_kind(row, facts):
    (event,) = read_rows(row)
    assert event.raw is None
    assert {name: getattr(event, name) for name in facts} == facts


# --- undecodable rows and blocks ------------------------------------------------------------------
def test_an_event_of_an_unknown_kind_has_its_raw_cells():
    sound, unknown = read_rows(
        EventRow(1.0, Kind.QUEUED, reason="kept"), EventRow(2.0, 77, CALL, b"echo")
    )
    assert (sound.raw, sound.reason) == (None, "kept")
    assert (unknown.kind, unknown.reason, unknown.service) == (
        "unknown:77",
        "unknown kind 77",
        "echo",
    )
    assert len(unknown.raw) == ROW_SIZE
    assert unknown.raw[EVENT_COLUMNS["kind"].before] == 77


@pytest.mark.parametrize("instant", [nan, inf, -inf, 1e300, -1e300, 1e13, -OFFSET_US / 1e6 - 1])
def test_an_instant_out_of_range_is_a_reason(instant):
    (event,) = read_rows(EventRow(instant, Kind.QUEUED, CALL))
    assert (event.ts, event.date, event.reason) == (None, None, "its time is out of range")
    assert len(event.raw) == ROW_SIZE
    found = spans((instant, 2.0, *SPAN[2:]))
    assert found[0].raw is not None
    assert (found[-1].raw, found[-1].ts) == (None, at(3.0))


@pytest.mark.parametrize("deadline", [nan, -inf, 1e300])
def test_an_invalid_deadline_is_none(deadline):
    found = spans((*SPAN[:3], deadline, *SPAN[4:]))
    assert {event.deadline for event in found} == {None}
    assert {event.raw for event in found} == {None}


def test_a_block_of_a_newer_version_is_one_event():
    block = bytearray(encode_spans([SPAN], Strings(), OFFSET_US, 40))
    block[1] = 2
    (event,) = decode([record(bytes(block))])
    assert event.reason == "schema version 2; this reader supports 1"
    assert (event.kind, event.seq, event.raw) == (None, None, bytes(block))
    assert event.byte_offset == AT + RECORD_HEADER_SIZE


def test_damage_is_one_event():
    damage = Damage(7, 512, 9000, "the checksum of a record does not match", b"x" * 4096)
    (event,) = decode([damage])
    assert (event.segment, event.byte_offset, event.raw) == (7, 512, damage.raw)
    assert (event.reason, event.role, event.broker) == (damage.reason, "broker", NAME)


def test_lost_strings_are_named_by_their_numbers():
    block = encode_spans([SPAN], Strings(), OFFSET_US, 40)
    (accepted, *_others, answered) = decode([record(block)])
    assert (accepted.service, answered.worker) == ("unknown:1", "unknown:2")
    assert accepted.raw is None


@given(st.binary(max_size=300))
def test_any_block_becomes_events_with_a_kind_or_a_reason(payload: bytes):
    for event in decode([record(payload)]):
        assert event.kind or event.reason


# --- journals -------------------------------------------------------------------------------------
def test_json_has_times_as_text_and_bytes_in_hexadecimal():
    (event,) = read_rows(EventRow(1.5, 77, CALL))
    found = event.record()
    assert (found["ts"], found["date"]) == ("2023-11-14T22:13:21.500000+00:00", "2023-11-14")
    assert bytes.fromhex(found["raw"]) == event.raw
    assert "deadline" not in found


def journal_of(path: Path, role: WriterRole, number: int, *rows: EventRow) -> Journal:
    journal = Journal(path, role, bytes([number] * 8))
    journal.start()
    journal.chronicle.event_rows += rows
    return journal


def call(number: int) -> bytes:
    return bytes(8) + number.to_bytes(8, "big")


def test_the_newest_events_of_all_logs_come_in_order_of_time(tmp_path):
    for log in range(3):
        rows = [EventRow(10.0 * i + log, Kind.QUEUED, call(3 * i + log)) for i in range(5)]
        journal_of(tmp_path, WriterRole.BROKER, log, *rows).close()
    found = newest(tmp_path, 4, Selection(kind="queued"))
    assert [event.request_id for event in found] == [call(n).hex() for n in (11, 12, 13, 14)]
    assert len(newest(tmp_path, 1000)) == 3 * 7
    assert newest(tmp_path, 0) == []


def test_the_newest_events_are_found_in_several_segments(tmp_path):
    log = Log.open(tmp_path / f"broker-{NAME}", purpose=b"JRNL")
    for segment in range(3):
        strings = Strings()
        rows = [
            EventRow(10.0 * segment + i, Kind.QUEUED, call(i), b"s%d" % segment) for i in (1, 2)
        ]
        block = encode_event_rows(rows, strings, OFFSET_US, 2 * segment)
        opened = encode_opened({}, OFFSET_US, 2 * segment)
        log.append([opened, *encode_strings(strings.fresh, 0, 0), block])
        log.rotate()
    log.close()
    found = newest(tmp_path, 3)
    assert [(event.service, event.seq) for event in found] == [("s1", 3), ("s2", 4), ("s2", 5)]


def test_a_selection_keeps_matching_and_undecodable_events(tmp_path):
    rows = [
        EventRow(1.0, Kind.QUEUED, call(1), b"echo"),
        EventRow(2.0, Kind.QUEUED, call(2), b"sum"),
        EventRow(3.0, Kind.PARTIAL, call(2), b"sum"),
        EventRow(nan, Kind.QUEUED, call(2), b"sum"),
    ]
    journal_of(tmp_path, WriterRole.BROKER, 1, *rows).close()

    def seqs(**wanted: str) -> list[int | None]:
        return [event.seq for event in events(tmp_path, Selection(**wanted))]

    assert seqs(service="sum") == [2, 3, 4]
    assert seqs(kind="queued") == [1, 2, 4]
    assert seqs(request_id=call(2).hex(), kind="partial") == [3]
    assert seqs(request_id=call(9).hex()) == []


def test_a_tail_yields_new_events_and_finds_new_logs(tmp_path):
    first = journal_of(tmp_path, WriterRole.BROKER, 1, EventRow(1.0, Kind.QUEUED, call(1), b"old"))
    first.close()
    tail = JournalTail(tmp_path)
    assert tail.news() == []
    second = journal_of(tmp_path, WriterRole.CLIENT, 2, EventRow(2.0, Kind.SENT, call(2), b"new"))
    second.close()
    assert [event.kind for event in tail.news()] == ["sent", "opened", "closed"]
    assert tail.news() == []


def test_a_tail_knows_the_strings_of_skipped_blocks(tmp_path):
    path = tmp_path / f"broker-{NAME}"
    log = Log.open(path, purpose=b"JRNL")
    strings = Strings()
    block = encode_spans([SPAN], strings, OFFSET_US, 0)
    log.append([*encode_strings(strings.fresh, 0, 0), block])
    tail = LogTail(find_logs(path)[0])
    tail.skip()
    log.append([encode_spans([SPAN], strings, OFFSET_US, 4)])
    assert {event.service for event in tail.news()} == {"echo"}
    log.close()


def test_a_tail_of_a_removed_log_yields_nothing(tmp_path):
    journal_of(tmp_path, WriterRole.BROKER, 1).close()
    (log,) = find_logs(tmp_path)
    tail = LogTail(log)
    for file in Path(log.place).iterdir():
        file.unlink()
    Path(log.place).rmdir()
    assert list(tail.news()) == []


def test_a_missing_journal_is_an_error(tmp_path):
    with pytest.raises(ConfigurationError, match="no such folder"):
        list(events(tmp_path / "absent"))
