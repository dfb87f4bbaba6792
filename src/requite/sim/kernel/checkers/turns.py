"""I8: no peer has two turns while another that was ready all the time has none.

This is what "served counts differ by at most 1 per round" means while peers join and leave, and
workers are busy for different times: only peers that could have been served are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

Name = TypeVar("Name")
SENTENCE: Final = "over n equal peers, served counts differ by at most 1 per round"


class Turns(Generic[Name]):
    """The time of each peer's last turn, and since when it has been ready, in serial numbers."""

    def __init__(self) -> None:
        self._serial = 0
        self._had: dict[Name, int] = {}
        self._lost: dict[Name, int] = {}
        self._there_since: dict[Name, int] = {}

    def is_there(self, name: Name, there: bool) -> None:
        """Record whether a peer is ready to be served."""
        if there:
            self._there_since.setdefault(name, self._serial)
        else:
            self._there_since.pop(name, None)
            self._lost.pop(name, None)

    def begin_anew(self) -> None:
        """Forget all turns; keep which peers are ready."""
        self._serial += 1
        self._had.clear()
        self._lost.clear()
        self._there_since = dict.fromkeys(self._there_since, self._serial)

    def serve(self, name: Name, instead_of: Name | None = None) -> Name | None:
        """Record a turn; return a peer that it passes over, if there is one.

        `instead_of` may lose its turn to `name`: that counts as fair.
        """
        self._serial += 1
        if instead_of is not None:
            self._lost[instead_of] = self._serial
        passed_over = next(self._passed_over(name), None)
        self._had[name] = self._serial
        return passed_over

    def is_fair(self, name: Name) -> bool:
        """Whether serving `name` now would pass no peer over."""
        return next(self._passed_over(name), None) is None

    def _passed_over(self, name: Name) -> Iterator[Name]:
        """Yield peers that have been ready since before the last turn of `name`, without a turn."""
        last = self._had.get(name)
        if last is None:
            return
        for other, since in self._there_since.items():
            had = max(self._had.get(other, 0), self._lost.get(other, 0))
            if other != name and since < last and had < last:
                yield other
