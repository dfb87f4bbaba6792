"""Which records of the log are still needed, and where they are.

A segment can be removed when nothing in it is needed. A SUBMITTED, an ANSWERED and the last TRIED
are needed until the request is closed. A CLOSED is needed for as long as any of these records is on
the disk, in whichever segment: without it the request would be there again after a restart; and
for as long as its idempotency key holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Final

from requite.protocols.titanic.records import (
    ANSWERED,
    CLOSED,
    ROLE,
    SUBMITTED,
    TRIED,
    decode,
)
from requite.protocols.titanic.requests import CLOSED_KEYS_MAX
from requite.storage import Position
from requite.storage.layout import ALIGNMENT, RECORD_HEADER_SIZE

_WEIGHT: Final = 0.05  # of the newest reply in the average


class Place:
    """Where a record is. Compaction moves records, and with them this."""

    __slots__ = ("number", "offset", "segment", "size")

    def __init__(self, position: Position, payload_size: int) -> None:
        self.segment, self.offset, self.number = position
        self.size = RECORD_HEADER_SIZE + payload_size + -payload_size % ALIGNMENT

    def __repr__(self) -> str:
        return f"<Place {self.number} in {self.segment}>"

    @property
    def position(self) -> Position:
        """Where it is now."""
        return Position(self.segment, self.offset, self.number)

    def move(self, position: Position) -> None:
        """Note that the record is elsewhere."""
        self.segment, self.offset, self.number = position


class Item:
    """The records of one request. `others` are the segments with records of it that are not needed
    themselves; `is_closed` says that only the CLOSED is needed."""

    __slots__ = ("answered", "closed", "is_closed", "others", "submitted", "tried", "until_us")

    def __init__(self) -> None:
        self.submitted: Place | None = None
        self.answered: Place | None = None
        self.tried: Place | None = None
        self.closed: Place | None = None
        self.others: set[int] | None = None
        self.is_closed = False
        self.until_us = 0

    @property
    def is_open(self) -> bool:
        """Whether there is a request, and no reply."""
        return self.submitted is not None and self.answered is None

    def place(self, kind: int) -> Place | None:
        """Return where the record of that kind is, if it is needed."""
        if kind == SUBMITTED:
            return self.submitted
        if kind == ANSWERED:
            return self.answered
        return self.tried if kind == TRIED else self.closed


class Index:
    """All records that are needed, by request, and how many bytes of each segment they take."""

    def __init__(self) -> None:
        self.items: dict[bytes, Item] = {}
        self.role: Place | None = None
        self.live: dict[int, int] = {}
        self.unanswered = 0  # requests whose reply is yet to be stored
        self._reply_size = 0.0  # of late, on average
        self._waiting: dict[int, list[bytes]] = {}  # closed requests, by segments they wait for
        self._keys: list[tuple[int, int, bytes]] = []  # until when, of which closed request
        self._order = count()

    def add(self, payload: bytes | memoryview, position: Position) -> Place:
        """Take note of a record that has been written; it is one of ours (`decode`).

        The hot path: each record comes by here, in the store's thread, which leaves less of the
        processor to the event loop. So kind and UUID are taken from where they are.
        """
        kind, uuid = payload[0], bytes(payload[4:20])
        place = Place(position, len(payload))
        if kind == SUBMITTED and uuid not in self.items:
            item = self.items[uuid] = Item()
            item.submitted = place
            self.live[place.segment] = self.live.get(place.segment, 0) + place.size
            self.unanswered += 1
            self._reply_size = self._reply_size or place.size
        elif kind == ROLE:
            self._shrink(self.role)
            self.role = place
            self._grow(place)
        else:
            item = self.items.get(uuid) or self.items.setdefault(uuid, Item())
            self._add_to(item, kind, uuid, payload, place)
        return place

    def is_needed(self, kind: int, uuid: bytes, segment: int, offset: int) -> Place | None:
        """Return the place of a record if it is needed, and is this one."""
        if kind == ROLE:
            place = self.role
        else:
            item = self.items.get(uuid)
            place = None if item is None else item.place(kind)
        if place is None or place.segment != segment or place.offset != offset:
            return None
        return place

    def moved(self, uuid: bytes, place: Place, position: Position) -> None:
        """Take note that a record was copied to another place; the old one is still there."""
        item = self.items.get(uuid)
        if item is None or place is self.role:
            self._shrink(place)
        else:
            self._discard(uuid, item, place)
        place.move(position)
        self._grow(place)

    def bytes_to_come(self, records: int) -> int:
        """How much the replies to all that is unanswered, and to so many requests more, will take:
        as much as replies took of late, or, before there is any, as the first request."""
        return int((self.unanswered + records) * self._reply_size)

    def removed(self, segment: int) -> None:
        """Take note that a segment is gone."""
        self.live.pop(segment, None)
        for uuid in self._waiting.pop(segment, ()):
            item = self.items.get(uuid)
            if item is not None and item.others is not None:
                item.others.discard(segment)
                self._maybe_forget(uuid, item)

    def expire_keys(self, now_us: int) -> None:
        """Let go of what was kept for idempotency keys alone, when their time is over or they are
        too many."""
        keys = self._keys
        while keys and (keys[0][0] <= now_us or len(keys) > CLOSED_KEYS_MAX):
            until_us, _, uuid = heappop(keys)
            item = self.items.get(uuid)
            if item is not None and item.is_closed and item.until_us <= until_us:
                item.until_us = 0
                self._maybe_forget(uuid, item)

    def places(self) -> Iterator[Place]:
        """Yield the places of all records that are needed."""
        if self.role is not None:
            yield self.role
        for item in self.items.values():
            places = (item.submitted, item.answered, item.tried, item.closed)
            yield from (place for place in places if place is not None)

    # --- inside -----------------------------------------------------------------------------------
    def _add_to(
        self, item: Item, kind: int, uuid: bytes, payload: bytes | memoryview, place: Place
    ) -> None:
        if item.is_closed and kind != CLOSED:
            self._wait_for(uuid, item, place.segment)
            return
        self._discard(uuid, item, item.place(kind))
        was_open = item.is_open
        if kind == SUBMITTED:
            item.submitted = place
        elif kind == ANSWERED:
            item.answered = place
            self._reply_size += (place.size - self._reply_size) * _WEIGHT
        elif kind == TRIED:
            item.tried = place
        else:
            item.closed = place
        self._grow(place)
        if kind == CLOSED:
            self._close(uuid, item, payload)
        self.unanswered += item.is_open - was_open

    def _close(self, uuid: bytes, item: Item, payload: bytes | memoryview) -> None:
        """Only the CLOSED is needed from now on, if that is."""
        closed = decode(payload)
        if closed.key and closed.key_until_us:  # type: ignore[union-attr]
            item.until_us = closed.key_until_us  # type: ignore[union-attr]
            heappush(self._keys, (item.until_us, next(self._order), uuid))
        item.is_closed = True
        for place in (item.submitted, item.answered, item.tried):
            self._discard(uuid, item, place)
        item.submitted = item.answered = item.tried = None
        self._maybe_forget(uuid, item)

    def _discard(self, uuid: bytes, item: Item, place: Place | None) -> None:
        """A record is not needed any more, but it is there."""
        if place is not None:
            self._shrink(place)
            self._wait_for(uuid, item, place.segment)

    def _wait_for(self, uuid: bytes, item: Item, segment: int) -> None:
        if item.others is None:
            item.others = set()
        if segment not in item.others:
            item.others.add(segment)
            self._waiting.setdefault(segment, []).append(uuid)

    def _maybe_forget(self, uuid: bytes, item: Item) -> None:
        """Forget a closed request whose other records are gone, or in the segment of its CLOSED,
        with which they will go."""
        closed = item.closed
        if not item.is_closed or closed is None or item.until_us:
            return
        if not item.others or item.others == {closed.segment}:
            self._shrink(closed)
            del self.items[uuid]

    def _grow(self, place: Place) -> None:
        self.live[place.segment] = self.live.get(place.segment, 0) + place.size

    def _shrink(self, place: Place | None) -> None:
        if place is not None and place.segment in self.live:
            self.live[place.segment] -= place.size
