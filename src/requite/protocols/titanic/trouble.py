"""What does not work just now: told when it begins and when it is over, and not each time.

A disk that is full refuses thousands of requests a second, and takes some in between; a replica
that is away is asked every second. A log with a line for each of them tells nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

CALM_S: Final = 10.0
"""So long nothing may have failed before trouble is over: at its bound, a store now takes one
request and now refuses one, and each time would be news otherwise."""
_CAUSES_MAX: Final = 8


class Trouble:
    """What is in trouble, by name, and since when all has been well again.

    `warn(kind, text)` gets a line when something begins to fail, one for each other cause, and one
    when it works again.
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
        """All that is in trouble, and why; "" where nothing is."""
        return "; ".join(f"{what}: {text}" for what, text in self._texts.items())

    def failed(self, what: str, text: str, now: float, cause: str = "") -> None:
        """Take note of a failure. Those of one `cause` are told once, whatever their texts."""
        causes = self._causes.setdefault(what, set())
        if cause not in causes and len(causes) < _CAUSES_MAX:
            causes.add(cause)
            self._warn(what, text)
        self._failed_at[what] = now
        self._texts[what] = text

    def works(self, what: str, now: float, *, calm_s: float = CALM_S) -> None:
        """Take note that something has worked."""
        failed_at = self._failed_at.get(what)
        if failed_at is not None and now - failed_at >= calm_s:
            del self._failed_at[what], self._texts[what], self._causes[what]
            self._warn(what, "works again")
