"""Exponential back-off, by name, up to a limit.

Without jitter: a pool has one active manager, so no other one retries at the same time.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from requite.backoff import pause_s
from requite.core.timers import Timers

Name = TypeVar("Name", bound=Hashable)


class Pauses(Generic[Name]):
    """Pending pauses and consecutive failures, by name."""

    def __init__(self, first_s: float, max_s: float) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._failures: dict[Name, int] = {}
        self._timers: Timers[Name] = Timers()

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, name: Name) -> bool:
        """Whether a pause is pending for `name`."""
        return name in self._timers

    def emptied(self) -> Pauses[Name]:
        """Return an empty copy with the same limits."""
        return Pauses(self._first_s, self._max_s)

    def failed(self, name: Name, now: float) -> None:
        """Count a failure, and start the next, longer pause."""
        self._failures[name] = failures = self._failures.get(name, 0) + 1
        self._timers.set(name, now + pause_s(failures, self._first_s, self._max_s))

    def wait(self, name: Name, delay_s: float, now: float) -> None:
        """Start a pause of `delay_s` without counting a failure."""
        self._timers.set(name, now + delay_s)

    def succeeded(self, name: Name) -> None:
        """Reset the failure count, and cancel the pause."""
        self._failures.pop(name, None)
        self._timers.clear(name)

    def due(self, now: float) -> list[Name]:
        """Remove and return the names whose pauses have ended."""
        return list(self._timers.due(now))

    def deadline(self) -> float | None:
        """Return when the next pause ends, or None."""
        return self._timers.next()
