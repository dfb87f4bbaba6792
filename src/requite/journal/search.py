"""Find the events of requests in journals, without reading most files.

    findings = search(["journal"], [bytes.fromhex("37318fdeaa15e1b00000000000000007")])

Each sealed segment is skipped if its index (`requite.journal.index`) does not have the ids; a
missing index is made and kept. The segment that a process writes is always read.
Journals may be written, rotated and removed meanwhile. In a store there are no indexes, and all
segments are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from requite.errors import LogGone
from requite.journal.blocks import column_of
from requite.journal.decode import Block, SegmentDecoder
from requite.journal.event import Event, from_us
from requite.journal.folder import LogFolder, find_logs, missing_logs, of_each
from requite.journal.index import Content, FileState, Indexer, load, prune, store
from requite.journal.reader import sort_by_time
from requite.storage import Damage, LogReader, Record
from requite.storage.layout import segment_name
from requite.storage.place import is_store
from requite.storage.recovery import segment_numbers
from requite.storage.walk import OpenSegment


class LogCover(NamedTuple):
    """What a log covers: the time of its events, and what is missing from it.

    `dropped` rows were lost before they could be written, `damaged` places cannot be read, and
    `removed` files were deleted while they were read. `lacks_beginning`: retention has deleted its
    oldest files. `is_behind`: it is a copy, whose original may have more events.
    """

    log: LogFolder
    first: datetime | None = None
    last: datetime | None = None
    files: int = 0
    dropped: int = 0
    damaged: int = 0
    removed: int = 0
    lacks_beginning: bool = False
    is_behind: bool = False

    def record(self) -> dict[str, object]:
        """Return the figures as a JSON-ready dict."""
        times = {
            name: time and time.isoformat(timespec="microseconds")
            for name, time in (("first", self.first), ("last", self.last))
        }
        return {"log": self.log.log, **times, **dict(zip(self._fields[3:], self[3:], strict=True))}


class Findings(NamedTuple):
    """The events of requests, by time, and the logs that were searched.

    `missing` are logs that began there and whose files are gone. `unkept` is the reason why an
    index could not be kept ("": none).
    """

    events: list[Event]
    logs: list[LogCover]
    missing: list[str]
    unkept: str = ""

    @property
    def newest(self) -> datetime | None:
        """The time of the newest event in the logs."""
        return max((log.last for log in self.logs if log.last), default=None)


def search(places: Sequence[Path | str], call_ids: Collection[bytes]) -> Findings:
    """Return the events of requests in journals or single logs.

    Raises `ConfigurationError` if a place is not a journal.
    """
    logs = [log for place in places for log in find_logs(place)]
    missing = [log.log for place in places for log in missing_logs(place)]
    found = of_each(logs, lambda log: _search_log(log, frozenset(call_ids)))
    # A journal and a copy of it have the same events.
    events = {
        (event.log, event.segment, event.byte_offset): event
        for each in found
        for event in each.events
    }
    unkept = next((each.unkept for each in found if each.unkept), "")
    return Findings(
        sort_by_time(list(events.values())), [each.cover() for each in found], missing, unkept
    )


def _search_log(log: LogFolder, call_ids: frozenset[bytes]) -> _LogSearch:
    found = _LogSearch(log, call_ids)
    found.run()
    return found


class IndexKeeper:
    """Makes the indexes of segments that will not grow, one at a time, so that searches find them.

    `places` are journals or single logs.
    """

    def __init__(self, places: Sequence[Path | str]) -> None:
        self._places: Final = places
        self._done: set[tuple[LogFolder, int]] = set()

    def make_one(self) -> bool:
        """Make an index that is missing; return whether there was one.

        Raises `ConfigurationError` if a place is not a journal.
        """
        there: set[tuple[LogFolder, int]] = set()
        has_made = False
        for log in (log for place in self._places for log in find_logs(place)):
            found = _LogSearch(log, frozenset())
            numbers = found.numbers()
            there.update((log, number) for number in numbers)
            for number in numbers:
                if has_made or (log, number) in self._done:
                    continue
                is_kept, has_made = found.keep_index(number, is_last=number == numbers[-1])
                if is_kept:
                    self._done.add((log, number))
        self._done &= there
        return has_made


class _LogSearch:
    """The search of one log, and its findings."""

    def __init__(self, log: LogFolder, call_ids: frozenset[bytes]) -> None:
        self.events: list[Event] = []
        self.unkept = ""
        self._log = log
        self._call_ids = call_ids
        self._reader = LogReader(log.place)
        self._contents: list[Content] = []
        self._removed = 0
        self._lacks_beginning = False
        self._is_behind = False

    def run(self) -> None:
        numbers = self.numbers()
        self._lacks_beginning = bool(numbers) and numbers[0] > 0
        has_stored = False
        for number in numbers:
            try:
                has_stored |= self._search(number, is_last=number == numbers[-1])
            except LogGone:
                self._removed += 1
        if has_stored:
            prune(self._log, numbers)

    def numbers(self) -> Sequence[int]:
        """Return the segments that there are."""
        try:
            self._is_behind = self._reader.is_behind()
            return segment_numbers(self._reader.folder)
        except LogGone:  # removed since the logs were listed
            self._removed += 1
            return ()

    def keep_index(self, number: int, *, is_last: bool) -> tuple[bool, bool]:
        """Return whether a segment needs no other index, and whether one was made for it."""
        try:
            state = self._state(number, is_last=is_last)
            if state is None:
                return is_store(self._log.place), False
            if load(self._log, number, state) is not None:
                return True, False
            self._search(number, is_last=is_last)
        except LogGone:
            return True, False
        return True, True

    def _search(self, number: int, *, is_last: bool) -> bool:
        """Search a segment; return whether an index was made for it."""
        state = self._state(number, is_last=is_last)
        index = None if state is None else load(self._log, number, state)
        if index is not None:
            self._contents.append(index.content)
            if any(map(index.may_have, self._call_ids)):
                self._read(number, None)
            return False
        indexer = Indexer(self._log)
        self._read(number, indexer)
        self._contents.append(indexer.content)
        if state is None or state != self._state(number, is_last=is_last):
            return False
        self.unkept = self.unkept or store(self._log, number, state, indexer.index())
        return not self.unkept

    def _state(self, number: int, *, is_last: bool) -> FileState | None:
        """Return the state of a segment that will not grow; None for one without an index."""
        if is_store(self._log.place):
            return None
        with closing(self._reader.folder.open(segment_name(number))) as file:
            is_open = is_last and OpenSegment(file, number).end_number() is None
            if is_open and self._reader.may_grow():
                return None
            return FileState(file.size(), file.changed_ns())

    def _read(self, number: int, indexer: Indexer | None) -> None:
        decoder = SegmentDecoder(self._log, number)
        for item in self._reader.read(number):
            if indexer is not None:
                indexer.add(item)
            self.events += self._events(decoder, item)

    def _events(self, decoder: SegmentDecoder, item: Record | Damage) -> Iterable[Event]:
        block = decoder.take_in(item)
        if not isinstance(block, Block):
            return ()
        column = bytes(column_of(block.payload, "call_id", block.header))
        if not any(call_id in column for call_id in self._call_ids):
            return ()
        return decoder.events(block, self._call_ids)

    def cover(self) -> LogCover:
        """Return what was searched."""
        contents = self._contents
        return LogCover(
            self._log,
            from_us(min((each.first_us for each in contents if each.first_us), default=None)),
            from_us(max((each.last_us for each in contents if each.last_us), default=None)),
            len(contents),
            sum(each.dropped for each in contents),
            sum(each.damaged for each in contents),
            self._removed,
            self._lacks_beginning,
            self._is_behind,
        )
