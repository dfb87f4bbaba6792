"""Log why a worker has no broker, and wait until it has one.

    waiting ──connected and answered──► served ──lost──► waiting
       └── logged after a moment, then rarely   └── logged at once, and again when it is back

The state is checked whenever a connection completes its handshake or ends, and several times a
second while the peer has not answered. While the worker is served, nothing runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from math import inf
from typing import Final, NamedTuple

from requite.shell import clock
from requite.speaks.plans import PATIENCE_S

_REMIND_EVERY_S: Final = 60.0
# The least time before a new reason is logged.
_NEWS_EVERY_S: Final = 5.0
_REASONS_MAX: Final = 16
_LOOK_FIRST_S: Final = 0.01
_LOOK_EVERY_S: Final = 0.25

_log = logging.getLogger("requite.worker")


class Trouble(NamedTuple):
    """Why a worker is not served ("": it is), and for how many seconds not to log it."""

    text: str = ""
    patience_s: float = PATIENCE_S


NO_TROUBLE: Final = Trouble()


class Report:
    """Decides what to log of the services `names` at one place, and when.

    Sans-I/O: call `update` whenever something may have changed.
    """

    def __init__(self, names: str, place: str) -> None:
        self._names = names
        self._place = place
        self.is_served = False
        self._was_served = False
        self._since = inf  # when the trouble began
        self._told_at = -inf
        self._told: set[str] = set()  # reasons logged during this trouble

    def update(self, trouble: Trouble, now: float) -> str:
        """Record the present trouble; return the text to log, or ""."""
        if not trouble.text:
            return self._served(now)
        if self._since == inf:
            self._since = now
        self.is_served = False
        if now < self._due_at(trouble):
            return ""
        if len(self._told) >= _REASONS_MAX:
            self._told.clear()
        is_first = not self._told
        self._told.add(trouble.text)
        self._told_at = now
        if is_first:
            how = "no longer serving" if self._was_served else "waiting to serve"
            return f"{how} {self._names}: {trouble.text}; retrying"
        lasted_s = now - self._since
        return f"not serving {self._names} for {lasted_s:.0f} s: {trouble.text}; retrying"

    def _due_at(self, trouble: Trouble) -> float:
        if self._told:
            pause_s = _REMIND_EVERY_S if trouble.text in self._told else _NEWS_EVERY_S
            return self._told_at + pause_s
        # Log a loss at once, but not every loss of a broker that flaps.
        if self._was_served and self._since >= self._told_at + _REMIND_EVERY_S:
            return self._since
        return self._since + trouble.patience_s

    def _served(self, now: float) -> str:
        was_told, again = bool(self._told), " again" if self._was_served else ""
        lasted_s = now - self._since
        self.is_served = self._was_served = True
        self._since = inf
        self._told.clear()
        if not was_told:
            return ""
        return f"serving {self._names} at {self._place}{again}, after {lasted_s:.1f} s"


class Standing:
    """Watches the places that a worker dials to serve `names`; `troubles` returns the trouble at
    each."""

    def __init__(
        self, names: str, places: Sequence[str], troubles: Callable[[], Sequence[Trouble]]
    ) -> None:
        self._reports = [Report(names, place) for place in places]
        self._troubles = troubles
        self._changed = asyncio.Event()  # something may have changed
        self._served = [asyncio.Event() for _ in places]

    def note_change(self) -> None:
        """Check again soon: a connection has completed its handshake, or has ended."""
        self._changed.set()

    async def until_served(self, number: int) -> None:
        """Wait until the worker is served at the place with this index."""
        await self._served[number].wait()

    async def watch(self) -> None:
        """Log changes until cancelled."""
        pause_s = _LOOK_FIRST_S
        while True:
            self._look()
            is_served = all(report.is_served for report in self._reports)
            pause_s = _LOOK_FIRST_S if is_served else min(2 * pause_s, _LOOK_EVERY_S)
            try:
                async with asyncio.timeout(None if is_served else pause_s):
                    await self._changed.wait()
            except TimeoutError:
                pass  # check again
            self._changed.clear()

    def _look(self) -> None:
        now = clock.now()
        for report, trouble, served in zip(
            self._reports, self._troubles(), self._served, strict=True
        ):
            if told := report.update(trouble, now):
                _log.warning(told)
            if report.is_served:
                served.set()
            else:
                served.clear()
