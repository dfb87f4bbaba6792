"""Group commit: many small commits share one write and one `fdatasync`.

A sync takes as long for a thousand records as for one. So any thread adds commits here, and one
that may block (for example next to an event loop) repeatedly flushes those that have accumulated:

    group.add([payload], waiter)                                     # in any thread
    for waiter, positions, error in group.flush(): ...               # in a thread that may block
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Generic, NamedTuple, TypeVar

from requite.errors import StorageError
from requite.storage.log import Log, refuse_oversize
from requite.storage.records import Position

Waiter = TypeVar("Waiter")


class Committed(NamedTuple, Generic[Waiter]):
    """The result of one commit. With an `error`, its records may or may not be on disk."""

    waiter: Waiter
    positions: list[Position]
    error: StorageError | None


class GroupCommit(Generic[Waiter]):
    """Collects commits; `flush` writes and syncs them all, and returns their results."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = Lock()
        self._waiting: list[tuple[Waiter, Sequence[bytes]]] = []

    def __len__(self) -> int:
        """Return the number of waiting commits."""
        return len(self._waiting)

    def add(self, payloads: Sequence[bytes], waiter: Waiter) -> None:
        """Add payloads to the next flush, whose result carries `waiter`."""
        refuse_oversize(payloads)
        with self._lock:
            self._waiting.append((waiter, payloads))

    def flush(self) -> list[Committed[Waiter]]:
        """Write and sync the added commits, in order; one thread at a time."""
        with self._lock:
            taken, self._waiting = self._waiting, []
        if not taken:
            return []
        try:
            positions = iter(self._log.commit([one for _, payloads in taken for one in payloads]))
        except StorageError as error:
            return [Committed(waiter, [], error) for waiter, _ in taken]
        return [
            Committed(waiter, [next(positions) for _ in payloads], None)
            for waiter, payloads in taken
        ]
