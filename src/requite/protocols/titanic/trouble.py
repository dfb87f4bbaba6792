"""Ongoing failures: one warning when a failure begins and one when it ends, not one per event.

A full disk refuses thousands of requests a second and accepts some in between; an unreachable
replica is polled every second. A log line for each of these would drown everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

CALM_S: Final = 10.0
"""Seconds without a failure until trouble is over: a store at its bound alternately accepts and
refuses requests."""
_CAUSES_MAX: Final = 8


class Trouble:
    """Ongoing failures, by name.

    `warn(kind, text)` is called when something begins to fail, for each further cause, and when it
    works again.
    """

    def __init__(self, warn: Callable[[str, str], None]) -> None:
        self._warn = warn
        self._failed_at: dict[str, float] = {}
        self._texts: dict[str, str] = {}
        self._causes: dict[str, set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._failed_at)

    @property
    def text(self) -> str:
        """All ongoing failures and their errors; "" if there are none."""
        return "; ".join(f"{what}: {text}" for what, text in self._texts.items())

    def failed(self, what: str, text: str, now: float, cause: str = "") -> None:
        """Record a failure. Each `cause` is warned of once, whatever the texts."""
        causes = self._causes.setdefault(what, set())
        if cause not in causes and len(causes) < _CAUSES_MAX:
            causes.add(cause)
            self._warn(what, text)
        self._failed_at[what] = now
        self._texts[what] = text

    def works(self, what: str, now: float, *, calm_s: float = CALM_S) -> None:
        """Record a success."""
        failed_at = self._failed_at.get(what)
        if failed_at is not None and now - failed_at >= calm_s:
            del self._failed_at[what], self._texts[what], self._causes[what]
            self._warn(what, "works again")
