"""How many denied requests and connections are journaled.

Somebody without rights can send any number of requests, and each would be a row. So there are at
most ten rows per second for each user and verb, and for all connections together; the next row says
how many were left out in between.
"""

from __future__ import annotations

from typing import Final

_INTERVAL_S: Final = 1.0
_ROWS_MAX: Final = 10  # in an interval
_KEYS_MAX: Final = 4096
_CONNECT: Final = "connect"

Key = tuple[str, str]
"""A user and a verb; connections have no user, since a stranger could make up any number."""


class Denials:
    """Counts rows by user and verb."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        # When the interval began, the rows in it, and the denials left out since the last row.
        self._seen: dict[Key, tuple[float, int, int]] = {}

    def admit(self, user: str, verb: str, now: float) -> int | None:
        """Return how many denials were left out before this one; None to leave it out, too."""
        key = ("" if verb == _CONNECT else user, verb)
        began, rows, left_out = self._seen.get(key, (now, 0, 0))
        if now - began >= _INTERVAL_S:
            began, rows = now, 0
        if rows >= _ROWS_MAX:
            self._seen[key] = began, rows, left_out + 1
            return None
        if len(self._seen) >= _KEYS_MAX:
            self._seen = {key: each for key, each in self._seen.items() if each[2]}
        self._seen[key] = began, rows + 1, 0
        return left_out

    def take_left_out(self, now: float) -> list[tuple[Key, int]]:
        """Return the denials that no later row has counted, where an interval is over."""
        told = [
            (key, left_out)
            for key, (began, _, left_out) in self._seen.items()
            if left_out and now - began >= _INTERVAL_S
        ]
        for key, _ in told:
            del self._seen[key]
        return told
