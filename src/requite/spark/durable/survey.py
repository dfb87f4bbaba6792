"""Reads the state of each request from Titanic's log, while Titanic may be writing it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from requite.errors import ConfigurationError, LogGone, RemoteViolation
from requite.protocols.titanic.records import (
    Answered,
    Closed,
    Submitted,
    Tried,
    body_size,
    decode,
)
from requite.storage import Damage, LogReader, Position, Record, SegmentInfo

PURPOSE: Final = b"TITN"

WAITING: Final = "waiting"
ANSWERED: Final = "answered"
POISONED: Final = "poisoned"
UNREADABLE: Final = "unreadable"


class RecordLocation(NamedTuple):
    """The position of a record, and the bytes of its bodies."""

    position: Position
    size: int


@dataclass(slots=True)
class StoredRequest:
    """A request as recorded in the log; times are microseconds since 1970.

    An UNREADABLE one stands for a part of the log that cannot be read; `reason` says why.
    """

    uuid: bytes = b""
    service: str | None = None
    attempts: int = 0
    submitted_us: int | None = None
    answered_us: int | None = None
    poisoned: bool = False
    reason: str | None = None
    request: RecordLocation | None = None
    reply: RecordLocation | None = None

    @property
    def state(self) -> str:
        """The state of the request; WAITING includes requests that a worker is handling."""
        if not self.uuid:
            return UNREADABLE
        if self.reply is not None:
            return ANSWERED
        return POISONED if self.poisoned else WAITING

    @property
    def size(self) -> int:
        """Total bytes of its bodies."""
        places = (self.request, self.reply)
        return sum(place.size for place in places if place is not None)


def survey(folder: Path) -> list[StoredRequest]:
    """Return the stored requests in order of submission, then the unreadable parts of the log.

    Raises `ConfigurationError` if the folder is not a store of Titanic.
    """
    reader = LogReader(folder)
    found, closed, unreadable = dict[bytes, StoredRequest](), set[bytes](), list[StoredRequest]()
    for item in _items(reader, _segments(reader, folder)):
        try:
            reason = item.reason if isinstance(item, Damage) else _take(item, found, closed)
        except RemoteViolation as violation:
            reason = str(violation)
        if reason:
            place = f"segment {item.segment}, offset {item.offset}"
            unreadable.append(StoredRequest(reason=f"{reason} ({place})"))
    for uuid in closed:
        found.pop(uuid, None)
    requests = (stored for stored in found.values() if stored.request is not None)
    return [*sorted(requests, key=lambda stored: stored.submitted_us or 0), *unreadable]


def _segments(reader: LogReader, folder: Path) -> list[SegmentInfo]:
    try:
        infos = reader.segments()
    except LogGone:
        raise ConfigurationError(f"{folder}: the folder does not exist on this machine") from None
    if not any(info.purpose == PURPOSE for info in infos):
        raise ConfigurationError(f"{folder} is not a store of Titanic (`requite titanic --dir`)")
    return infos


def _items(reader: LogReader, infos: list[SegmentInfo]) -> Iterator[Record | Damage]:
    """Yield all records; compaction copies a segment to a later one before it removes it."""
    for info in infos:
        try:
            yield from reader.read(info.number)
        except LogGone:
            continue


def _take(record: Record, found: dict[bytes, StoredRequest], closed: set[bytes]) -> str:
    """Apply a record, which may occur twice: compaction copies records forward."""
    payload = record.payload
    entry = decode(payload, bodies=False)
    if isinstance(entry, Closed):
        closed.add(entry.uuid)
    elif isinstance(entry, Submitted | Answered | Tried):
        stored = found.setdefault(entry.uuid, StoredRequest(entry.uuid))
        if isinstance(entry, Submitted):
            stored.service = entry.service.decode("utf-8", "replace")
            stored.submitted_us = entry.at_us
            stored.request = RecordLocation(record.position, body_size(payload))
        elif isinstance(entry, Answered):
            stored.answered_us, stored.attempts = entry.at_us, entry.attempts
            stored.poisoned, stored.reason = False, None
            if entry.is_negative:
                whole = decode(payload)
                assert isinstance(whole, Answered)
                stored.reason = whole.frames[0].decode("utf-8", "replace")
            stored.reply = RecordLocation(record.position, body_size(payload))
        elif stored.reply is None:
            stored.attempts, stored.poisoned = entry.attempts, entry.poisoned
            stored.reason = entry.reason or None
    return ""
