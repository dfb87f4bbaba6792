"""Pauses after failures, by name: each is twice as long as the one before, up to a limit.

No randomness: there is one manager, and what fails for it fails for nobody else.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from requite.backoff import pause_s
from requite.core.timers import Timers

Name = TypeVar("Name", bound=Hashable)


class Pauses(Generic[Name]):
    """Who has to wait until when, and how often it has failed in a row."""

    def __init__(self, first_s: float, max_s: float) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._failures: dict[Name, int] = {}
        self._timers: Timers[Name] = Timers()

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, name: Name) -> bool:
        """Tell whether it still has to wait."""
        return name in self._timers

    def emptied(self) -> Pauses[Name]:
        """Return the same without anybody who has to wait."""
        return Pauses(self._first_s, self._max_s)

    def failed(self, name: Name, now: float) -> None:
        """Let it wait, longer than the last time."""
        self._failures[name] = failures = self._failures.get(name, 0) + 1
        self._timers.set(name, now + pause_s(failures, self._first_s, self._max_s))

    def wait(self, name: Name, delay_s: float, now: float) -> None:
        """Let it wait without having failed."""
        self._timers.set(name, now + delay_s)

    def succeeded(self, name: Name) -> None:
        """Let the next failure be the first."""
        self._failures.pop(name, None)
        self._timers.clear(name)

    def due(self, now: float) -> list[Name]:
        """Return those who have waited long enough."""
        return list(self._timers.due(now))

    def deadline(self) -> float | None:
        """Return when the next one has."""
        return self._timers.next()
