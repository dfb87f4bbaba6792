"""The table of keys: their states, and their records on the log.

    BEGINNING ──► RUNNING ──► ENDING ──► KEPT ──► removed, expired or evicted
        │            │           │
        └────────────┴───────────┴──► removed, if the outcome is not retained
                     └───────────┴──► IN_DOUBT ──► removed, expired

BEGINNING and ENDING wait for the disk; they do not occur without a log.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from enum import Enum
from math import inf
from typing import Any, Final

from requite.core.ranking import Ranking
from requite.dedup.inputs import Asked
from requite.dedup.records import NO_DIGEST, Frames, Outcome, principal_of

# Bytes of memory of an entry without its reply: the entry, its key, and its slots in the tables.
ENTRY_SIZE: Final = 512
# Bytes of a record on the log beside its payload: header and padding.
RECORD_OVERHEAD: Final = 28


class State(Enum):
    """State of a key."""

    BEGINNING = "beginning"
    RUNNING = "running"
    ENDING = "ending"
    KEPT = "kept"
    IN_DOUBT = "in doubt"


class Entry:
    """One key.

    `owner` is the token of the request whose handler runs (None: it was abandoned), `request` that
    request, `waiters` the concurrent repetitions by token. `parts` are the partial
    replies so far, of `parts_size` bytes; `overflowed`: they are too large to be stored. `at` is
    the instant when it began or was settled. `outcome` is in memory, or on the log at `position`;
    without either, `reason` says why. `home` is the segment with its record, which must remain;
    `stored` are the bytes of that record. `moves`: it is being copied to another segment.
    """

    __slots__ = (
        "at",
        "digest",
        "home",
        "key",
        "moves",
        "outcome",
        "overflowed",
        "owner",
        "parts",
        "parts_size",
        "position",
        "reason",
        "request",
        "size",
        "started",
        "state",
        "stored",
        "waiters",
    )

    def __init__(self, key: bytes, digest: bytes, at: float) -> None:
        self.key = key
        self.digest = digest
        self.at = at
        self.state = State.BEGINNING
        self.owner: Any = None
        self.request: Any = None
        self.waiters: dict[Any, Asked] = {}
        self.started = False
        self.parts: list[Frames] = []
        self.parts_size = 0
        self.overflowed = False
        self.outcome: Outcome | None = None
        self.position: Any = None
        self.reason = ""
        self.home: int | None = None
        self.moves = False
        self.stored = 0
        self.size = 0

    def __repr__(self) -> str:
        return f"<Entry {self.key!r} {self.state.value}>"

    def is_other_body(self, digest: bytes) -> bool:
        """Whether a repetition has another body than the first request with this key."""
        return NO_DIGEST not in (digest, self.digest) and digest != self.digest


class Entries:
    """All entries by key, and the settled ones (KEPT, IN_DOUBT) by principal, in order of settling.

    `sizes` and `counts` rank the principals by the bytes in memory, and by the number, of their
    settled entries.
    """

    def __init__(self) -> None:
        self.size_bytes = 0  # of settled entries, in memory
        self.settled = 0  # their number
        self.sizes = Ranking()
        self.counts = Ranking()
        self._by_key: dict[bytes, Entry] = {}
        self._settled: dict[bytes, OrderedDict[bytes, Entry]] = {}
        self._first = Ranking()  # principals by the instant of their oldest settled entry, negated

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._by_key.values())

    def get(self, key: bytes) -> Entry | None:
        """Return the entry of a key, or None."""
        return self._by_key.get(key)

    def add(self, entry: Entry) -> None:
        """Add a new entry."""
        self._by_key[entry.key] = entry

    def settle(self, entry: Entry, state: State, now: float) -> None:
        """Set an entry to KEPT or IN_DOUBT; its window begins at `now`."""
        entry.state = state
        entry.at = now
        kept = 0 if entry.outcome is None else entry.outcome.size
        entry.size = ENTRY_SIZE + len(entry.key) + kept
        self._by_key[entry.key] = entry
        self._settled.setdefault(principal_of(entry.key), OrderedDict())[entry.key] = entry
        self._count(entry, 1)

    def renew(self, entry: Entry, now: float) -> None:
        """Restart the window of a settled entry."""
        entry.at = now
        self._settled[principal_of(entry.key)].move_to_end(entry.key)
        self._count(entry, 0)

    def remove(self, entry: Entry) -> None:
        """Remove an entry."""
        del self._by_key[entry.key]
        settled = self._settled.get(principal_of(entry.key))
        if settled is not None and settled.pop(entry.key, None) is not None:
            self._count(entry, -1)

    def oldest(self, principal: bytes | None = None) -> Entry | None:
        """Return the entry, or that of a principal, that was settled first; None without."""
        if principal is None:
            principal = self._first.heaviest()
        return None if principal is None else next(iter(self._settled[principal].values()))

    def oldest_at(self) -> float:
        """Return when the oldest entry was settled; `inf` if there is none."""
        entry = self.oldest()
        return inf if entry is None else entry.at

    def _count(self, entry: Entry, number: int) -> None:
        """Count a settled entry (1), an equal one (0) or a removed one (-1)."""
        self.settled += number
        self.size_bytes += number * entry.size
        principal = principal_of(entry.key)
        settled = self._settled[principal]
        if settled:
            size = self.sizes.weights.get(principal, 0) + number * entry.size
            self.sizes.set(principal, size)
            self.counts.set(principal, len(settled))
            self._first.set(principal, -next(iter(settled.values())).at)
        else:
            del self._settled[principal]
            for ranking in (self.sizes, self.counts, self._first):
                ranking.drop(principal)


class Segment:
    """A segment of the log: its records' bytes, and the entries that need it."""

    __slots__ = ("entries", "size")

    def __init__(self) -> None:
        self.size = 0
        self.entries: dict[Entry, None] = {}


class Segments:
    """The segments of a log, oldest first; the last one is being written."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.needed = Counter[bytes]()  # bytes of needed records, by principal
        self._all: dict[int, Segment] = {}

    def __len__(self) -> int:
        return len(self._all)

    def grow(self, number: int, size: int) -> None:
        """Count a record of `size` bytes that was written to a segment."""
        size += RECORD_OVERHEAD
        self._all.setdefault(number, Segment()).size += size
        self.size_bytes += size

    def move(self, entry: Entry, number: int, size: int) -> None:
        """Set the segment that an entry needs, and the size of its record there."""
        self.leave(entry)
        self._all[number].entries[entry] = None
        entry.home, entry.stored = number, size + RECORD_OVERHEAD
        self.needed[principal_of(entry.key)] += entry.stored

    def leave(self, entry: Entry) -> None:
        """Clear the segment that an entry needs."""
        if entry.home is not None:
            del self._all[entry.home].entries[entry]
            entry.home = None
            principal = principal_of(entry.key)
            self.needed[principal] -= entry.stored
            if not self.needed[principal]:
                del self.needed[principal]

    def beyond(self, size_max: int) -> list[int]:
        """Return the oldest segments to remove so that the rest has at most `size_max` bytes; never
        the last one, which is being written."""
        beyond, size = list[int](), self.size_bytes
        for number in list(self._all)[:-1]:
            if size <= size_max:
                break
            beyond.append(number)
            size -= self._all[number].size
        return beyond

    def needed_by(self, number: int) -> list[Entry]:
        """Return the entries that need a segment."""
        return list(self._all[number].entries)

    def take_idle(self) -> Iterator[int]:
        """Remove and yield the oldest segments that no entry needs, except the last one."""
        while len(self._all) > 1:
            number = next(iter(self._all))
            if self._all[number].entries:
                return
            self.size_bytes -= self._all.pop(number).size
            yield number
