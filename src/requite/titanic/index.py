"""The index of live records: those that are still needed, and their locations.

A segment can be removed once it has no live records. A SUBMITTED, an ANSWERED and the last TRIED
are live until the request is closed. A CLOSED is live while its idempotency key is valid, and while
any other record of the request is on the disk: without it, a restart would restore the request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from requite.protocols.titanic.closed_keys import ClosedKeys
from requite.protocols.titanic.records import (
    ANSWERED,
    CLOSED,
    ROLE,
    SUBMITTED,
    TRIED,
    Closed,
    decode,
)
from requite.storage import Position
from requite.storage.layout import ALIGNMENT, RECORD_HEADER_SIZE

_WEIGHT: Final = 0.05  # of the newest reply in the average


class RecordLocation:
    """The location of a record; compaction updates it when it moves the record."""

    __slots__ = ("number", "offset", "segment", "size")

    def __init__(self, position: Position, payload_size: int) -> None:
        self.segment, self.offset, self.number = position
        self.size = RECORD_HEADER_SIZE + payload_size + -payload_size % ALIGNMENT

    def __repr__(self) -> str:
        return f"<RecordLocation {self.number} in {self.segment}>"

    @property
    def position(self) -> Position:
        """The current position."""
        return Position(self.segment, self.offset, self.number)

    def move(self, position: Position) -> None:
        """Set a new position."""
        self.segment, self.offset, self.number = position


class Item:
    """The live records of one request that has more than a SUBMITTED. `others` are the segments
    with dead records of it; `is_closed`: only the CLOSED is live."""

    __slots__ = ("answered", "closed", "is_closed", "others", "submitted", "tried", "until_us")

    def __init__(self) -> None:
        self.submitted: RecordLocation | None = None
        self.answered: RecordLocation | None = None
        self.tried: RecordLocation | None = None
        self.closed: RecordLocation | None = None
        self.others: set[int] | None = None
        self.is_closed = False
        self.until_us = 0

    @property
    def is_open(self) -> bool:
        """Whether the request has no reply."""
        return self.submitted is not None and self.answered is None

    def location(self, kind: int) -> RecordLocation | None:
        """Return the location of the live record of that kind, if any."""
        if kind == SUBMITTED:
            return self.submitted
        if kind == ANSWERED:
            return self.answered
        return self.tried if kind == TRIED else self.closed


class Index:
    """All live records by request, and the live bytes of each segment.

    `items`: of a request that has only a SUBMITTED, as all have that wait, the location takes the
    place of an `Item`, which would be a tenth of the memory that the request takes.
    `seal_size`: how many bytes encryption adds to each record.
    """

    def __init__(self, seal_size: int = 0) -> None:
        self._seal_size = seal_size
        self.outdated: set[int] = set()  # segments with records to be encrypted with the first key
        self.items: dict[bytes, Item | RecordLocation] = {}
        self.role: RecordLocation | None = None
        self.live: dict[int, int] = {}
        self.unanswered = 0  # requests without a stored reply
        self.erase_to = -1  # records up to this number that are not needed must be removed
        self._reply_size = 0.0  # moving average
        self._waiting: dict[int, list[bytes]] = {}  # closed requests, by segments with dead records
        self._keys = ClosedKeys()  # by the UUID of the closed request

    def add_all(
        self, payloads: Sequence[bytes], positions: Sequence[Position]
    ) -> list[RecordLocation]:
        """Add the records of a commit, and return their locations.

        This is the hot path of the store's thread, which competes with the event loop for the
        interpreter. So new requests are added in place, and counted once per run.
        """
        items, seal_size = self.items, self._seal_size
        locations: list[RecordLocation] = []
        add = locations.append
        segment = count = size = 0
        for payload, position in zip(payloads, positions, strict=True):
            if payload[0] == SUBMITTED and (uuid := payload[4:20]) not in items:
                if position[0] != segment:
                    self._count(segment, count, size)
                    segment = position[0]
                    count = size = 0
                location = items[uuid] = RecordLocation(position, len(payload) + seal_size)
                count += 1
                size += location.size
                add(location)
            else:
                self._count(segment, count, size)
                count = size = 0
                add(self.add(payload, position))
        self._count(segment, count, size)
        return locations

    def add(self, payload: bytes | memoryview, position: Position) -> RecordLocation:
        """Add a record that has been written, and return its location. Kind and UUID are sliced
        from the payload without `decode`."""
        kind, uuid = payload[0], bytes(payload[4:20])
        location = RecordLocation(position, len(payload) + self._seal_size)
        if kind == SUBMITTED and uuid not in self.items:
            self.items[uuid] = location
            self._count(location.segment, 1, location.size)
        elif kind == ROLE:
            self._shrink(self.role)
            self.role = location
            self._grow(location)
        else:
            item = self._item(uuid) or Item()
            self.items[uuid] = item
            self._add_to(item, kind, uuid, payload, location)
        return location

    def is_needed(self, kind: int, uuid: bytes, segment: int, offset: int) -> RecordLocation | None:
        """Return the location of a record if the record at that offset is live, else None."""
        if kind == ROLE:
            location = self.role
        else:
            item = self.items.get(uuid)
            if isinstance(item, RecordLocation):
                location = item if kind == SUBMITTED else None
            else:
                location = None if item is None else item.location(kind)
        if location is None or location.segment != segment or location.offset != offset:
            return None
        return location

    def moved(self, uuid: bytes, location: RecordLocation, position: Position) -> None:
        """Record that a record was copied to another position; its old copy still exists."""
        item = self._item(uuid)
        if item is None or location is self.role:
            self._shrink(location)
        else:
            self._discard(uuid, item, location)
        location.move(position)
        self._grow(location)

    def bytes_to_come(self, records: int) -> int:
        """Estimate the size of the replies to all unanswered requests and `records` more, from the
        average of recent replies, or, without any, from the first requests."""
        return int((self.unanswered + records) * self._reply_size)

    def removed(self, segment: int) -> None:
        """Forget a deleted segment's records."""
        self.outdated.discard(segment)
        self.live.pop(segment, None)
        for uuid in self._waiting.pop(segment, ()):
            item = self.items.get(uuid)
            if isinstance(item, Item) and item.others is not None:
                item.others.discard(segment)
                self._maybe_forget(uuid, item)

    def expire_keys(self, now_us: int) -> None:
        """Drop CLOSED records whose idempotency keys have expired, or are too many."""
        for _, uuid, until_us in self._keys.take(now_us):
            item = self.items.get(uuid)
            if isinstance(item, Item) and item.is_closed and item.until_us <= until_us:
                item.until_us = 0
                self._maybe_forget(uuid, item)

    def has_key(self, uuid: bytes) -> bool:
        """Whether the idempotency key of a closed request is remembered."""
        item = self.items.get(uuid)
        return isinstance(item, Item) and item.until_us > 0

    def is_closed(self, uuid: bytes) -> bool:
        """Whether a request is closed, or unknown."""
        item = self.items.get(uuid)
        return item is None or (isinstance(item, Item) and item.is_closed)

    def records_of(self, uuid: bytes) -> Item:
        """Return the live records of a known request."""
        item = self._item(uuid)
        assert item is not None
        return item

    def locations(self) -> Iterator[RecordLocation]:
        """Yield the locations of all live records."""
        if self.role is not None:
            yield self.role
        for item in self.items.values():
            if isinstance(item, RecordLocation):
                yield item
                continue
            locations = (item.submitted, item.answered, item.tried, item.closed)
            yield from (location for location in locations if location is not None)

    # --- inside -----------------------------------------------------------------------------------
    def _item(self, uuid: bytes) -> Item | None:
        """Return the `Item` of a request, which is made if there is only a location."""
        found = self.items.get(uuid)
        if isinstance(found, RecordLocation):
            item = self.items[uuid] = Item()
            item.submitted = found
            return item
        return found

    def _count(self, segment: int, records: int, size: int) -> None:
        """Count SUBMITTED records of new requests."""
        if records:
            self.live[segment] = self.live.get(segment, 0) + size
            self.unanswered += records
            self._reply_size = self._reply_size or size / records

    def _add_to(
        self,
        item: Item,
        kind: int,
        uuid: bytes,
        payload: bytes | memoryview,
        location: RecordLocation,
    ) -> None:
        if item.is_closed and kind != CLOSED:
            self._wait_for(uuid, item, location.segment)
            return
        self._discard(uuid, item, item.location(kind))
        was_open = item.is_open
        if kind == SUBMITTED:
            item.submitted = location
        elif kind == ANSWERED:
            item.answered = location
            self._reply_size += (location.size - self._reply_size) * _WEIGHT
        elif kind == TRIED:
            item.tried = location
        else:
            item.closed = location
        self._grow(location)
        if kind == CLOSED:
            self._close(uuid, item, payload)
        self.unanswered += item.is_open - was_open

    def _close(self, uuid: bytes, item: Item, payload: bytes | memoryview) -> None:
        """Discard all records but the CLOSED, and that too if it is not needed."""
        closed = decode(payload)
        assert isinstance(closed, Closed)
        if closed.erasure and item.closed is not None:
            self.erase_to = item.closed.number
        item.until_us = closed.key_until_us if closed.key else 0
        if item.until_us:
            self._keys.add(closed.owner, uuid, item.until_us)
        item.is_closed = True
        for location in (item.submitted, item.answered, item.tried):
            self._discard(uuid, item, location)
        item.submitted = item.answered = item.tried = None
        self._maybe_forget(uuid, item)

    def _discard(self, uuid: bytes, item: Item, location: RecordLocation | None) -> None:
        """Mark a record as dead; it remains on the disk until its segment is removed."""
        if location is not None:
            self._shrink(location)
            self._wait_for(uuid, item, location.segment)

    def _wait_for(self, uuid: bytes, item: Item, segment: int) -> None:
        if item.others is None:
            item.others = set()
        if segment not in item.others:
            item.others.add(segment)
            self._waiting.setdefault(segment, []).append(uuid)

    def _maybe_forget(self, uuid: bytes, item: Item) -> None:
        """Drop a closed request once its other records are deleted, or all in the segment of its
        CLOSED, with which they will be deleted."""
        closed = item.closed
        if not item.is_closed or closed is None or item.until_us:
            return
        if not item.others or item.others == {closed.segment}:
            self._shrink(closed)
            del self.items[uuid]

    def _grow(self, location: RecordLocation) -> None:
        self.live[location.segment] = self.live.get(location.segment, 0) + location.size

    def _shrink(self, location: RecordLocation | None) -> None:
        if location is not None and location.segment in self.live:
            self.live[location.segment] -= location.size
