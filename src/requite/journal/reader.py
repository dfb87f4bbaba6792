"""Read journals, in any process, during or after writing.

    for event in events("journal"):
        print(event.ts, event.kind, event.request_id)

Reading never fails because of a log's contents: bytes that do not decode become an event with
`raw`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from requite.errors import LogGone
from requite.journal.decode import Block, SegmentDecoder
from requite.journal.event import Event
from requite.journal.folder import LogFolder, find_logs
from requite.storage import Damage, LogReader, Record
from requite.storage.walk import lost_records

Item = Record | Damage
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


class Selection(NamedTuple):
    """A filter of events: all fields that are not None must match; kind `without` is excluded."""

    request_id: str | None = None
    service: str | None = None
    kind: str | None = None
    without: str | None = None

    def wants(self, event: Event) -> bool:
        """Whether an event matches. Undecodable ones match unless `request_id` is set."""
        if event.kind is None:
            return self.request_id is None
        return (
            self.request_id in (None, event.request_id)
            and self.service in (None, event.service)
            and self.kind in (None, event.kind)
            and event.kind != self.without
        )

    def may_have(self, block: Block) -> bool:
        """Whether a block may have a matching event: a cheap test before its rows are decoded."""
        if self.request_id is None:
            return True
        return bytes.fromhex(self.request_id) in bytes(block.payload)


ALL: Final = Selection()


def events(directory: Path | str, selection: Selection = ALL) -> Iterator[Event]:
    """Yield the events of a journal or of one log, log by log, in the order of writing.

    Raises `ConfigurationError` if `directory` is not a journal.
    """
    for log in find_logs(directory):
        yield from LogTail(log).news(selection)


def newest(directory: Path | str, count: int, selection: Selection = ALL) -> list[Event]:
    """Return the newest `count` events of a journal, by time. Raises the errors of `events`."""
    found = [event for log in find_logs(directory) for event in _newest(log, count, selection)]
    return sort_by_time(heapq.nlargest(count, found, key=_when))


def sort_by_time(found: list[Event]) -> list[Event]:
    """Sort events by time; those of one log at one time stay in the order of writing."""
    return sorted(found, key=_when)


def _when(event: Event) -> tuple[datetime, str, int, int]:
    return event.ts or _NEVER, event.log, event.segment, event.byte_offset


class LogTail:
    """A growing log: `news` yields the events written since the last call."""

    def __init__(self, log: LogFolder) -> None:
        self.log = log
        self._reader = LogReader(log.place)
        self._last: Item | None = None
        self._decoder: SegmentDecoder | None = None

    def news(self, selection: Selection = ALL) -> Iterator[Event]:
        """Yield the events written since the last call; none if the log was removed."""
        for item in self._items():
            decoder = self._decoder_of(item.segment)
            yield from _select(decoder, decoder.take_in(item), selection)

    def skip(self) -> None:
        """Skip the events written so far, but learn their strings."""
        for item in self._items():
            self._decoder_of(item.segment).take_in(item)

    def _items(self) -> Iterator[Item]:
        try:
            for item in self._reader.tail(self._last):
                yield from _gap(self._last, item)
                self._last = item
                yield item
        except LogGone:
            return

    def _decoder_of(self, segment: int) -> SegmentDecoder:
        if self._decoder is None or self._decoder.segment != segment:
            self._decoder = SegmentDecoder(self.log, segment)
        return self._decoder


def _gap(last: Item | None, item: Item) -> Iterator[Damage]:
    """Report a missing segment, which shows as a gap in the record numbers."""
    if isinstance(last, Record) and isinstance(item, Record) and item.segment > last.segment:
        missing = lost_records(last.number + 1, item.number)
        if missing:
            yield Damage(item.segment, 0, 0, f"removed before it was read{missing}", b"")


class JournalTail:
    """A growing journal, including logs created meanwhile."""

    def __init__(self, directory: Path | str) -> None:
        self._directory = directory
        self._tails: dict[str, LogTail] = {}
        for tail in self._all():
            tail.skip()

    def news(self, selection: Selection = ALL) -> list[Event]:
        """Return the events written since the last call, by time."""
        return sort_by_time([event for tail in self._all() for event in tail.news(selection)])

    def _all(self) -> list[LogTail]:
        for log in find_logs(self._directory):
            if log.log not in self._tails:
                self._tails[log.log] = LogTail(log)
        return list(self._tails.values())


def _newest(log: LogFolder, count: int, selection: Selection) -> list[Event]:
    """Return at least the newest `count` events of a log, if it has as many.

    Decodes blocks from the end backwards, and only as many as needed.
    """
    reader = LogReader(log.place)
    found: list[Event] = []
    try:
        for info in reversed(reader.segments()):
            decoder = SegmentDecoder(log, info.number)
            taken = [decoder.take_in(item) for item in reader.read(info.number)]
            for each in reversed(taken):
                found += _select(decoder, each, selection)
                if len(found) >= count:
                    return found
    except LogGone:  # removed by retention meanwhile, as were all older ones
        pass
    return found


def _select(
    decoder: SegmentDecoder, item: Block | Event | None, selection: Selection
) -> list[Event]:
    if item is None:
        return []
    if isinstance(item, Event):
        return [item] if selection.wants(item) else []
    if not selection.may_have(item):
        return []
    return [event for event in decoder.events(item) if selection.wants(event)]
