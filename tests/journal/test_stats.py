"""Stats of a journal: counts of events, missing and dropped events, undecodable rows."""

from __future__ import annotations

from collections import Counter
from math import nan
from pathlib import Path

import pytest
from tests.journal.faulty import NAME
from tests.journal.rows import CALL, EVENTS, SPANS

from requite.chronicle import EventRow, Kind, WriterRole
from requite.journal import Journal
from requite.journal.blocks import PURPOSE
from requite.journal.encode import encode_event_rows, encode_spans
from requite.journal.reader import events
from requite.journal.stats import LogStats, stats
from requite.journal.strings import Strings
from requite.storage import Log, LogSettings

OFFSET_US = 1_700_000_000_000_000


def write(path: Path, *payloads: bytes) -> None:
    with Log.open(path / f"broker-{NAME}", purpose=PURPOSE) as log:
        log.append(payloads)


def only(path: Path) -> LogStats:
    (found,) = stats(path)
    return found


@pytest.mark.parametrize("role", [WriterRole.BROKER, WriterRole.CLIENT, WriterRole.WORKER])
def test_stats_agree_with_the_events(tmp_path, role):
    with Journal(tmp_path, role, bytes(8)) as journal:
        journal.chronicle.spans += [*SPANS, (1.0, *SPANS[0][:1], *SPANS[0][2:])]
        journal.chronicle.event_rows += EVENTS
    found = only(tmp_path)
    every = list(events(tmp_path))
    assert found.events == Counter(event.kind for event in every)
    assert found.first == min(event.ts for event in every)
    assert found.last == max(event.ts for event in every)
    assert (found.first_seq, found.next_seq) == (0, every[-1].seq + 1)
    assert found.bytes == sum(file.stat().st_size for file in journal.path.glob("*.seg"))
    assert (found.segments, found.state) == (1, "closed")


def test_dropped_rows_are_added_up(tmp_path):
    rows = [EventRow(1.0, Kind.DROPPED, value=value) for value in (3.0, 4.0, nan)]
    write(tmp_path, encode_event_rows(rows, Strings(), OFFSET_US, 0))
    assert only(tmp_path).dropped == 7


def test_a_gap_in_the_numbers_counts_as_missing_events(tmp_path):
    blocks = [encode_spans(SPANS, Strings(), OFFSET_US, first) for first in (8, 16, 40, 48)]
    write(tmp_path, *blocks)
    found = only(tmp_path)
    assert (found.first_seq, found.next_seq, found.missing) == (8, 56, 16)


def test_undecodable_rows_and_blocks_are_counted_by_reason(tmp_path):
    rows = [EventRow(nan, Kind.QUEUED, CALL), EventRow(1.0, 77, CALL), EventRow(2.0, 77)]
    newer = bytearray(encode_spans(SPANS, Strings(), OFFSET_US, 0))
    newer[1] = 2
    write(tmp_path, encode_event_rows(rows, Strings(), OFFSET_US, 0), bytes(newer), b"short")
    assert only(tmp_path).flaws == {
        "its time is out of range": 1,
        "unknown kind 77": 2,
        "schema version 2; this reader supports 1": 1,
        "a block of 5 bytes is shorter than its header": 1,
    }
    assert only(tmp_path).events == {"queued": 1, "unknown:77": 2}


def test_damage_loses_one_block(tmp_path):
    blocks = [encode_spans(SPANS, Strings(), OFFSET_US, first) for first in (0, 8, 16)]
    write(tmp_path, *blocks)
    (file,) = tmp_path.glob("*/*.seg")
    data = bytearray(file.read_bytes())
    data[data.index(blocks[1]) + 40] ^= 1
    file.write_bytes(bytes(data))
    found = only(tmp_path)
    assert found.events["answered"] == 4
    assert found.missing == 8
    assert found.flaws.total() == 1
    assert len([event for event in events(tmp_path) if event.raw is not None]) == 1


def test_stats_of_a_log_without_records(tmp_path):
    Log.open(tmp_path / f"broker-{NAME}", purpose=PURPOSE, settings=LogSettings()).close()
    found = only(tmp_path)
    assert (found.first, found.last, found.events.total(), found.first_seq) == (None, None, 0, None)
    assert found.record()["first"] is None
