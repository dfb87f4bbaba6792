"""The search for requests: it finds what a full read finds, in journals of every condition."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.spark.source.journals import LogWriter, call_id, failure, span

from requite.chronicle import EventRow, Kind, WriterRole
from requite.errors import ConfigurationError
from requite.journal import search as module
from requite.journal.event import Event
from requite.journal.reader import events, sort_by_time
from requite.journal.search import Findings, search
from requite.storage import LogReader
from requite.storage.recovery import segment_numbers

CALLS = 60_000  # three segments of the smallest size, and a part of a fourth


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed journal of a broker whose log has several segments."""
    path = tmp_path_factory.mktemp("big") / "journal"
    with LogWriter(path) as writer:
        for first in range(0, CALLS, 1000):
            writer.spans([span(number, number / 1000) for number in range(first, first + 1000)])
        writer.event_rows([failure(77, at=61.0), EventRow(62.0, Kind.DROPPED, value=3.0)])
        assert len(writer.segments()) >= 4
    return path


@pytest.fixture(scope="module")
def expected(big: Path) -> Callable[..., list[Event]]:
    """A function that returns the events of calls, as a full read of the journal finds them."""
    by_id: dict[str | None, list[Event]] = defaultdict(list)
    for event in events(big):
        by_id[event.request_id].append(event)
    return lambda *numbers: sort_by_time([e for each in ids(*numbers) for e in by_id[each.hex()]])


@pytest.fixture
def journal(big: Path, tmp_path: Path) -> Path:
    """A copy of the journal without indexes."""
    path = tmp_path / "journal"
    shutil.copytree(big, path, ignore=shutil.ignore_patterns(".index"))
    for lock in path.glob("*/lock"):
        lock.unlink()
    return path


def ids(*numbers: int) -> list[bytes]:
    return [call_id(number) for number in numbers]


def reads_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each segment that is read is added."""
    found: list[int] = []
    read = LogReader.read

    def noted(self, segment, start=0, end=None):
        found.append(segment)
        return read(self, segment, start, end)

    monkeypatch.setattr(LogReader, "read", noted)
    return found


def indexes(journal: Path) -> list[Path]:
    return sorted(journal.glob("*/.index/*"))


# --- findings ---------------------------------------------------------------------------------
@pytest.mark.parametrize("number", [0, 77, 12_345, 30_000, CALLS - 1])
def test_a_search_finds_what_a_full_read_finds(big, number, expected):
    assert len(expected(number)) == (4 if number == 77 else 3)
    for _ in range(2):  # without and with indexes
        assert search([big], ids(number)).events == expected(number)


def test_several_requests_are_found_at_once(big, expected):
    numbers = (1, 2, 40_000)
    assert search([big], ids(*numbers)).events == expected(*numbers)


def test_a_request_that_is_in_no_log_is_not_found(big):
    found = search([big], [b"nobody-1" + bytes(8)])
    assert found.events == []
    (log,) = found.logs
    assert (log.files, log.dropped, log.damaged) == (len([*big.glob("*/*.seg")]), 3, 0)
    assert log.first is not None
    assert log.last is not None
    assert (log.last - log.first).total_seconds() == 62.0
    assert found.newest == log.last


def test_a_journal_and_its_copy_give_each_event_once(journal, tmp_path, expected):
    copy = tmp_path / "copy"
    shutil.copytree(journal, copy)
    found = search([journal, copy], ids(77))
    assert found.events == expected(77)
    assert len(found.logs) == 2


# --- the index --------------------------------------------------------------------------------
def test_later_searches_read_only_the_segments_that_have_the_request(
    journal, monkeypatch, expected
):
    read = reads_of(monkeypatch)
    search([journal], ids(30_000))
    numbers = segment_numbers(LogReader(next(journal.iterdir())).folder)
    assert read == numbers
    assert len(indexes(journal)) == len(numbers)
    read.clear()
    assert search([journal], ids(30_000)).events == expected(30_000)
    assert len(read) == 1


@pytest.mark.parametrize("change", ["flip", "cut", "remove", "empty"])
def test_a_damaged_index_is_made_again(journal, change, expected):
    search([journal], ids(30_000))
    whole = {path: path.read_bytes() for path in indexes(journal)}
    for path, data in whole.items():
        if change == "remove":
            path.unlink()
        else:
            made = {"flip": data[:40] + bytes([data[40] ^ 1]) + data[41:], "cut": data[:-5]}
            path.write_bytes(made.get(change, b""))
    assert search([journal], ids(30_000)).events == expected(30_000)
    assert {path: path.read_bytes() for path in indexes(journal)} == whole


def test_the_index_of_a_changed_segment_is_made_again(journal, expected):
    (log,) = search([journal], ids(5)).logs
    assert log.damaged == 0
    segment = sorted(journal.glob("*/*.seg"))[0]
    data = bytearray(segment.read_bytes())
    data[data.index(call_id(5))] ^= 1
    segment.write_bytes(bytes(data))
    found = search([journal], ids(5, 30_000))
    assert found.logs[0].damaged == 1
    assert found.events == expected(30_000)


def test_a_journal_that_cannot_be_written_is_searched_without_an_index(journal, expected):
    (next(journal.iterdir()) / ".index").touch()
    found = search([journal], ids(30_000))
    assert found.events == expected(30_000)
    assert found.unkept


# --- journals in use --------------------------------------------------------------------------
def test_a_log_that_is_being_written_is_searched_up_to_its_end(tmp_path):
    with LogWriter(tmp_path) as writer:
        writer.spans([span(1)])
        assert len(search([tmp_path], ids(1, 2)).events) == 3
        assert indexes(tmp_path) == []
        writer.spans([span(2)])
        assert len(search([tmp_path], ids(1, 2)).events) == 6
    assert len(search([tmp_path], ids(1, 2)).events) == 6
    assert len(indexes(tmp_path)) == 1


def test_a_torn_end_is_damage_and_all_else_is_found(tmp_path):
    writer = LogWriter(tmp_path)
    writer.spans([span(1)])
    path = writer.segments()[0]
    end = len(path.read_bytes().rstrip(b"\0"))
    writer.spans([span(2)])
    writer.log._folder.unlock()  # its process was killed in the middle of the write
    data = path.read_bytes()
    path.write_bytes(data[: end + 60] + bytes(len(data) - end - 60))
    for _ in range(2):
        found = search([tmp_path], ids(1, 2))
        assert {event.request_id for event in found.events} == {call_id(1).hex()}
        assert found.logs[0].damaged == 1
    assert len(indexes(tmp_path)) == 1  # nothing will be added


def test_files_that_are_deleted_meanwhile_are_reported(journal, monkeypatch, expected):
    monkeypatch.setattr(
        module, "segment_numbers", lambda folder: [*segment_numbers(folder), 9_999_999]
    )
    found = search([journal], ids(30_000))
    assert found.events == expected(30_000)
    assert found.logs[0].removed == 1


def test_a_log_that_is_deleted_meanwhile_is_reported(journal, monkeypatch):
    def find_then_delete(place):
        logs = find_logs(place)
        shutil.rmtree(logs[0].place)
        return logs

    find_logs = module.find_logs
    monkeypatch.setattr(module, "find_logs", find_then_delete)
    found = search([journal], ids(1))
    assert found.events == []
    assert found.logs[0].removed == 1


def test_a_log_whose_oldest_files_were_deleted_says_so(journal, expected):
    search([journal], ids(5))
    first = sorted(journal.glob("*/*.seg"))[0]
    first.unlink()
    before = len(indexes(journal))
    found = search([journal], ids(5, 30_000))
    assert found.events == expected(30_000)
    assert found.logs[0].lacks_beginning
    last = sorted(journal.glob("*/.index/*"))[-1]
    last.unlink()
    search([journal], ids(5))
    assert len(indexes(journal)) == before - 1  # that of the deleted file is gone, too


def test_an_event_of_a_newer_version_is_found_as_unknown(tmp_path):
    with LogWriter(tmp_path) as writer:
        writer.event_rows([EventRow(1.0, 77, call_id(1), b"echo")])
    found = search([tmp_path], ids(1))
    assert [event.kind for event in found.events] == ["unknown:77"]
    assert found.logs[0].damaged == 1


# --- folders ----------------------------------------------------------------------------------
def test_an_empty_journal_has_no_logs(tmp_path):
    assert search([tmp_path], ids(1)) == Findings([], [], [])


def test_a_missing_log_is_named(tmp_path):
    roll = tmp_path / ".logs"
    roll.mkdir()
    (roll / "client-0123456789abcdef").touch()
    with LogWriter(tmp_path, WriterRole.CLIENT) as writer:
        writer.spans([span(1)])
    assert search([tmp_path], ids(1)).missing == ["client-0123456789abcdef"]


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="no such folder"):
        search([tmp_path / "x"], ids(1))
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(ConfigurationError, match="is not a journal"):
        search([tmp_path], ids(1))
