"""The index of a segment: it misses no id, and is made again if it does not fit its file."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.journal.rows import EVENTS, SPAN

from requite.chronicle import CALL_ID_SIZE, NO_CALL, EventRow, Kind, WriterRole
from requite.journal import index as module
from requite.journal.encode import encode_event_rows, encode_spans
from requite.journal.folder import LogFolder
from requite.journal.index import FileState, Indexer, SegmentIndex, decode, load, prune, store
from requite.journal.strings import Strings
from requite.storage import Damage, Record

NAME = "0123456789abcdef"
OFFSET_US = 1_700_000_000_000_000
STATE = FileState(16 << 20, 1_700_000_000_000_000_000)
_ORIGINS = st.sampled_from([bytes(7) + b"\1", b"client-1", b"client-2", b"\xff" * 8])
_NUMBERS = st.integers(1, 50_000) | st.integers(0, (1 << 64) - 1)
_IDS = st.builds(lambda origin, n: origin + n.to_bytes(8, "big"), _ORIGINS, _NUMBERS)


def log_in(path: Path) -> LogFolder:
    return LogFolder(str(path / f"broker-{NAME}"), WriterRole.BROKER, NAME)


def indexed(*blocks: bytes, log: LogFolder | None = None) -> SegmentIndex:
    indexer = Indexer(log or log_in(Path("journal")))
    for number, block in enumerate(blocks):
        indexer.add(Record(0, 64, number, memoryview(block)))
    return indexer.index()


def spans(ids: list[bytes]) -> bytes:
    rows = [(*SPAN[:4], call_id, *SPAN[5:]) for call_id in ids]
    return encode_spans(rows, Strings(), OFFSET_US, 0)


def event_rows(*rows: EventRow) -> bytes:
    return encode_event_rows(rows, Strings(), OFFSET_US, 0)


# --- ids --------------------------------------------------------------------------------------
@given(st.lists(st.lists(_IDS, min_size=1, max_size=40), max_size=8))
def test_no_id_is_missed(blocks):
    found = indexed(*map(spans, blocks))
    again = decode(found.encode(STATE), STATE)
    assert again == found
    assert all(found.may_have(call_id) for block in blocks for call_id in block)


@given(st.sets(_IDS, min_size=8, max_size=60))
def test_no_id_is_missed_if_there_are_too_many_ranges(ids):
    module.RANGES_MAX, before = 5, module.RANGES_MAX
    try:
        found = indexed(spans(sorted(ids)))
    finally:
        module.RANGES_MAX = before
    assert len(found.ranges) <= 5 * 2 * CALL_ID_SIZE
    assert all(map(found.may_have, ids))


def test_the_calls_of_a_client_are_one_range():
    ids = [b"client-1" + number.to_bytes(8, "big") for number in range(1, 5_000)]
    found = indexed(*(spans(ids[at : at + 500]) for at in range(0, len(ids), 500)))
    assert found.ranges == ids[0] + ids[-1]
    assert not found.may_have(b"client-1" + (5_000).to_bytes(8, "big"))
    assert not found.may_have(b"client-1" + bytes(8))
    assert not found.may_have(b"client-0" + ids[0][8:])


def test_clients_and_distant_calls_have_ranges_of_their_own():
    far = [b"client-1" + number.to_bytes(8, "big") for number in (7, 100_000)]
    other = b"client-2" + (7).to_bytes(8, "big")
    found = indexed(spans([*far, other, NO_CALL]))
    assert found.ranges == b"".join(each + each for each in (*far, other))
    assert not found.may_have(NO_CALL)
    assert not found.may_have(b"client-1" + (50_000).to_bytes(8, "big"))


# --- content ----------------------------------------------------------------------------------
def test_the_index_has_times_lost_rows_and_damage():
    indexer = Indexer(log_in(Path("journal")))
    indexer.add(Record(0, 64, 0, memoryview(spans([SPAN[4]]))))  # at 1.0 to 3.0
    indexer.add(Damage(0, 500, 8, "flipped", b""))
    rows = event_rows(*EVENTS, EventRow(7.0, Kind.DROPPED, value=12.0), EventRow(0.5, 77))
    indexer.add(Record(0, 600, 1, memoryview(rows)))
    indexer.add(Record(0, 700, 2, memoryview(b"short")))
    content = indexer.index().content
    assert (content.first_us, content.last_us) == (OFFSET_US + 500_000, OFFSET_US + 7_000_000)
    assert (content.dropped, content.damaged) == (12, 3)  # damage, the unknown kind, no header


def test_an_index_of_nothing_has_no_times():
    found = indexed()
    assert decode(found.encode(STATE), STATE) == found
    assert found.content.first_us is None
    assert not found.may_have(SPAN[4])


# --- files ------------------------------------------------------------------------------------
def test_an_index_is_kept_beside_the_log_for_its_user_only(tmp_path):
    log, found = log_in(tmp_path), indexed(spans([SPAN[4]]))
    assert load(log, 0, STATE) is None
    assert store(log, 0, STATE, found) == ""
    assert load(log, 0, STATE) == found
    (path,) = (Path(log.place) / ".index").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "state", [STATE._replace(size=STATE.size + 8), STATE._replace(changed_ns=1)]
)
def test_an_index_of_another_state_of_the_file_is_not_used(tmp_path, state):
    log = log_in(tmp_path)
    store(log, 0, STATE, indexed(spans([SPAN[4]])))
    assert load(log, 0, state) is None


def test_a_damaged_cut_or_newer_index_is_not_used():
    data = indexed(spans([SPAN[4]])).encode(STATE)
    assert decode(data, STATE) is not None
    for at in range(len(data)):
        assert decode(data[:at], STATE) is None
        assert decode(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], STATE) is None
    assert decode(data + bytes(32), STATE) is None


def test_indexes_of_segments_that_are_gone_are_removed(tmp_path):
    log, found = log_in(tmp_path), indexed(spans([SPAN[4]]))
    for segment in (0, 7, 9):
        store(log, segment, STATE, found)
    draft = Path(log.place) / ".index" / f"{0:020}.idx.4711"
    draft.touch()
    prune(log, [7, 9])
    kept = sorted(path.name for path in draft.parent.iterdir())
    assert kept == [f"{number:020}.idx" for number in (7, 9)]


def test_a_place_that_cannot_be_written_is_reported(tmp_path):
    log = log_in(tmp_path)
    Path(log.place).mkdir()
    (Path(log.place) / ".index").touch()
    assert store(log, 0, STATE, indexed()) != ""
    prune(log, [])  # changes nothing, and does not fail
    assert (Path(log.place) / ".index").is_file()
