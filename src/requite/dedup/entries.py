"""What is known of keys: which run, which have ended, and where on a log that is written.

    BEGINNING ──► RUNNING ──► ENDING ──► KEPT ──► gone, with its window or before
        │            │           │
        └────────────┴───────────┴──► gone, where nothing came of it that is kept
                     └───────────┴──► IN_DOUBT ──► gone, with its window

BEGINNING and ENDING wait for the disk, and do not exist without a log.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from enum import Enum
from math import inf
from typing import Any, Final

from requite.dedup.records import NO_DIGEST, Frames, Outcome

# What an entry takes in memory beside its reply: the entry, its key, and its places in the tables.
ENTRY_SIZE: Final = 512
# What a record takes on the log beside its payload: its header, and what fills it up.
RECORD_OVERHEAD: Final = 28


class State(Enum):
    """Where a key is between its first request and its oblivion."""

    BEGINNING = "beginning"
    RUNNING = "running"
    ENDING = "ending"
    KEPT = "kept"
    IN_DOUBT = "in doubt"


class Entry:
    """One key.

    `owner` is the token of the request whose handler runs (None: it was given up), `request` that
    request, `waiters` the tokens and requests of its repetitions meanwhile. `parts` are the partial
    replies so far, of `parts_size` bytes; `overflowed`: they became too many to be kept. `at` is
    when it began, or was settled. `outcome` is kept in memory, or lies on the log at `position`;
    with neither, `reason` says why. `home` is the segment of the log that it must not lose.
    """

    __slots__ = (
        "at",
        "digest",
        "home",
        "key",
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
        "waiters",
    )

    def __init__(self, key: bytes, digest: bytes, at: float) -> None:
        self.key = key
        self.digest = digest
        self.at = at
        self.state = State.BEGINNING
        self.owner: Any = None
        self.request: Any = None
        self.waiters: dict[Any, Any] = {}
        self.started = False
        self.parts: list[Frames] = []
        self.parts_size = 0
        self.overflowed = False
        self.outcome: Outcome | None = None
        self.position: Any = None
        self.reason = ""
        self.home: int | None = None
        self.size = 0

    def __repr__(self) -> str:
        return f"<Entry {self.key!r} {self.state.value}>"

    def is_other_body(self, digest: bytes) -> bool:
        """Whether a request with this key asks for something else than the first one did."""
        return NO_DIGEST not in (digest, self.digest) and digest != self.digest


class Entries:
    """All entries by key, and those that are settled in the order in which they were."""

    def __init__(self) -> None:
        self.size_bytes = 0  # of what is settled, in memory
        self._by_key: dict[bytes, Entry] = {}
        self._settled: OrderedDict[bytes, Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._by_key.values())

    @property
    def settled(self) -> int:
        """How many are kept, or in doubt."""
        return len(self._settled)

    def get(self, key: bytes) -> Entry | None:
        """The entry of a key."""
        return self._by_key.get(key)

    def add(self, entry: Entry) -> None:
        """Take a new entry."""
        self._by_key[entry.key] = entry

    def settle(self, entry: Entry, state: State, now: float) -> None:
        """Let an entry rest from `now` on: KEPT, or IN_DOUBT."""
        entry.state = state
        entry.at = now
        kept = 0 if entry.outcome is None else entry.outcome.size
        entry.size = ENTRY_SIZE + len(entry.key) + kept
        self.size_bytes += entry.size
        self._by_key[entry.key] = self._settled[entry.key] = entry

    def renew(self, entry: Entry, now: float) -> None:
        """Let the window of a settled entry begin anew."""
        entry.at = now
        self._settled.move_to_end(entry.key)

    def remove(self, entry: Entry) -> None:
        """Forget an entry."""
        del self._by_key[entry.key]
        if self._settled.pop(entry.key, None) is not None:
            self.size_bytes -= entry.size

    def oldest(self) -> Entry | None:
        """The one that was settled first."""
        return next(iter(self._settled.values()), None)

    def oldest_at(self) -> float:
        """When that was; `inf` if there is none."""
        entry = self.oldest()
        return inf if entry is None else entry.at


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
        self._all: dict[int, Segment] = {}

    def __len__(self) -> int:
        return len(self._all)

    def grow(self, number: int, size: int) -> None:
        """Count a record of `size` bytes that was written to a segment."""
        size += RECORD_OVERHEAD
        self._all.setdefault(number, Segment()).size += size
        self.size_bytes += size

    def move(self, entry: Entry, number: int) -> None:
        """Let an entry need this segment, and no other."""
        self.leave(entry)
        self._all[number].entries[entry] = None
        entry.home = number

    def leave(self, entry: Entry) -> None:
        """Let an entry need no segment any more."""
        if entry.home is not None:
            del self._all[entry.home].entries[entry]
            entry.home = None

    def beyond(self, size_max: int) -> list[int]:
        """The oldest segments, so that the others have no more than `size_max` bytes; never the
        last one, which is being written."""
        beyond, size = list[int](), self.size_bytes
        for number in list(self._all)[:-1]:
            if size <= size_max:
                break
            beyond.append(number)
            size -= self._all[number].size
        return beyond

    def needed_by(self, number: int) -> list[Entry]:
        """The entries that need a segment."""
        return list(self._all[number].entries)

    def take_idle(self) -> Iterator[int]:
        """Forget the oldest segments that nobody needs, and yield them. The last one stays."""
        while len(self._all) > 1:
            number = next(iter(self._all))
            if self._all[number].entries:
                return
            self.size_bytes -= self._all.pop(number).size
            yield number
