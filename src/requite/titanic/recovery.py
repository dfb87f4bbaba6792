"""Recovery of a store: reads every record once, and rebuilds the index."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from requite.errors import LogMismatch, RemoteViolation
from requite.protocols.titanic import records
from requite.protocols.titanic.requests import (
    ClosedKey,
    Recovered,
    RecoveredRequest,
)
from requite.storage import Damage, Log, LogReader, Record
from requite.storage.cipher import require_plain
from requite.storage.layout import HEADER_SIZE
from requite.titanic.index import Index, Item, RecordLocation

_SUBMITTED: Final = bytes((records.SUBMITTED,))
_ONE_WRITE_US: Final = 10_000_000
_ONE_WRITE_BYTES: Final = 8 << 20


@dataclass(slots=True)
class StoreReport:
    """Damage that was found when a store was opened.

    `damaged`: places with an unreadable record; its content is lost, everything else is served.
    `mended`: places where a single flipped bit was corrected; nothing is lost. `cut_bytes`: an
    incomplete, never acknowledged write of the last process. `records`: number of records read.
    """

    records: int = 0
    cut_bytes: int = 0
    damaged: list[Damage] = field(default_factory=list)
    mended: list[Damage] = field(default_factory=list)


class _Suspicion:
    """Damage before the record `number`, up to the offset `end`, and after the time `since_us`.

    The damage may have destroyed acknowledged records, or be a write torn by a power cut: any part
    of the last, unacknowledged write may be on the disk. Only one write is in flight at a time. So
    acknowledged records are lost if the records that follow cannot all belong to one write, because
    of their size or their time span. (Copies made by compaction have their original times.)
    """

    def __init__(self, number: int, end: int, since_us: int) -> None:
        self.number = number
        self._end = end
        self._since_us = since_us
        self._first_us: int | None = None

    def is_confirmed_by(self, at_us: int, offset: int) -> bool:
        """Whether a record with that time and offset shows that acknowledged records are lost."""
        if offset - self._end > _ONE_WRITE_BYTES:
            return True
        if at_us < self._since_us:
            return False
        if self._first_us is None:
            self._first_us = at_us
        return at_us - self._first_us > _ONE_WRITE_US


class Survey:
    """Reads a log from its beginning; the results are `index`, `report` and `recovered`.

    `complete_from`: from this number on, no record has been removed. `mended`: records that were
    damaged in the log and corrected; they must be rewritten.
    """

    def __init__(self, log: Log) -> None:
        self.index = Index(log.seal_size)
        self.report = StoreReport(cut_bytes=log.recovered.cut_bytes)
        self._log = log
        self._requests: dict[bytes, RecoveredRequest] = {}
        self._keys: dict[bytes, ClosedKey] = {}
        self._role: records.StoreRole | None = None
        self.complete_from = 0
        self.mended: list[Record] = []
        self._doubtful_to = 0  # records before this number are followed by damage
        self._suspicions: list[_Suspicion] = []  # in this segment
        self._latest_us = 0  # time of the newest record so far; older ones behind it are copies
        reader = log.reader()
        end = 0
        for segment in reader.segments():
            if segment.number != end:
                self.complete_from = segment.number
            end = segment.next_number
            self._next_number = segment.number
            self._suspicions = []
            for item in reader.read(segment.number):
                if isinstance(item, Damage):
                    self._damage(reader, item)
                else:
                    self._read(item)
        self.index.outdated |= reader.outdated

    def recovered(self, now_us: int) -> Recovered:
        """Return the content of the store for the engine."""
        self.index.expire_keys(now_us)
        keys = sorted(
            (key for key in self._keys.values() if self.index.has_key(key.uuid)),
            key=attrgetter("until_us"),
        )
        requests = sorted(map(self._placed, self._requests.values()), key=_submitted_us)
        log, is_damaged = self._log, bool(self.report.damaged)
        return Recovered(requests, keys, self._role, log.log_id, log.next_number, is_damaged)

    def _damage(self, reader: LogReader, damage: Damage) -> None:
        """Correct damage, or remember that a request may have been closed there."""
        found = reader.mend(damage)
        if found is not None:
            self.report.mended.append(damage)
            for record in found:
                self._read(record)
                self.mended.append(record)
            return
        self.report.damaged.append(damage)
        if (damage.offset, damage.size) != (0, HEADER_SIZE):  # no record is in a header
            self._suspicions.append(_Suspicion(self._next_number, damage.end, self._latest_us))

    def _suspect(self, at_us: int, offset: int) -> None:
        """Check whether a record confirms earlier damage in its segment."""
        for suspicion in self._suspicions:
            if suspicion.is_confirmed_by(at_us, offset):
                self._doubtful_to = max(self._doubtful_to, suspicion.number)

    def _is_in_doubt(self, item: Item) -> bool:
        """Whether a request may have been answered or closed where the log is damaged.

        A record of the request behind the damage shows that it was not closed before: closed
        requests are neither copied nor tried.
        """
        later = (item.submitted, item.tried)
        return item.is_open and all(
            location is None or location.number < self._doubtful_to for location in later
        )

    def _read(self, record: Record) -> None:
        payload = record.payload
        require_plain(payload, "key_file, --titanic-key-file")
        entry: records.Outline | records.Entry
        try:
            if payload[:1] == _SUBMITTED:  # almost all records of a backlog
                entry = records.outline(payload)
            else:
                entry = records.decode(payload, bodies=False)
        except RemoteViolation as violation:
            raise LogMismatch(
                f"record {record.number} of the store in segment {record.segment} cannot be"
                f" read: {violation}. It may have been written by a newer requite; use that"
                " one."
            ) from violation
        self.report.records += 1
        self._next_number = record.number + 1
        self.index.add(payload, record.position)
        if entry.at_us > self._latest_us:
            self._latest_us = entry.at_us
        if self._suspicions:
            self._suspect(entry.at_us, record.offset)
        if isinstance(entry, records.StoreRole):
            self._role = entry
        elif isinstance(entry, records.Closed):
            self._closed(entry)
        elif not self.index.is_closed(entry.uuid):
            found = self._requests.get(entry.uuid)
            if found is None:
                found = self._requests[entry.uuid] = RecoveredRequest(entry.uuid)
            _take(found, entry, payload)

    def _closed(self, closed: records.Closed) -> None:
        self._requests.pop(closed.uuid, None)
        if closed.key:
            self._keys[closed.uuid] = ClosedKey(
                closed.key, closed.uuid, closed.key_until_us, closed.owner
            )
        else:
            self._keys.pop(closed.uuid, None)

    def _placed(self, found: RecoveredRequest) -> RecoveredRequest:
        """Set the locations of the records, including those that were copied forward."""
        item = self.index.items[found.uuid]
        if isinstance(item, RecordLocation):
            found.location = item
        else:
            found.location, found.reply_location = item.submitted, item.answered
        if self._doubtful_to:
            found.in_doubt = self._is_in_doubt(self.index.records_of(found.uuid))
        return found


def _take(
    found: RecoveredRequest,
    entry: records.Outline | records.Submitted | records.Answered | records.Tried,
    payload: bytes | memoryview,
) -> None:
    """Apply a record to a request."""
    found.owner = entry.owner
    if isinstance(entry, records.Outline):
        found.service, found.key = entry.service, entry.key
        found.trace = entry.trace
        found.submitted_us = entry.at_us
        found.size = entry.size
    elif isinstance(entry, records.Answered):
        found.answered_us = entry.at_us
        found.attempts = entry.attempts
        found.reply_size = records.body_size(payload)
        found.is_negative = entry.is_negative
    elif isinstance(entry, records.Tried):
        found.attempts = entry.attempts
        found.poisoned = entry.poisoned
        found.reason = entry.reason


def _submitted_us(found: RecoveredRequest) -> int:
    return found.submitted_us
