"""Filter of activity reports: one report per group and window keeps the group alive.

Workers report every request that they receive, possibly thousands per second. The filter passes the
*first* report of each window and drops the rest. Passing only reports that follow a quiet period
would never refresh a group under steady traffic, and stop it under load. To make up for the dropped
reports, a passed one extends the group's lifetime by a window ("extra lifetime").
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from requite.protocols.amqp.wire import Event

_KNOWN: Final = frozenset(Event)


class ActivityFilter:
    """Open windows, by group."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self.unknown = 0
        self._until: OrderedDict[str, float] = OrderedDict()  # ends of windows, in order

    def __len__(self) -> int:
        return len(self._until)

    def reported(self, key: str, event: str, now: float, *, expected: bool, stopping: bool) -> bool:
        """Return whether a report requires its group, for `window_s` longer.

        A received request does. A started worker does only if its group is neither `expected` nor
        being stopped (`stopping`): that worker waits for a queue. Otherwise a worker that crashes
        in a loop would keep its group alive, and so would one that needs as long to start as an
        unused group lives. Unknown events are counted in `unknown`.
        """
        if event not in _KNOWN:
            self.unknown += 1
            return False
        if event != Event.REQUEST_RECEIVED:
            return not (expected or stopping) and event != Event.STOPPING
        self._forget(now)
        if expected and key in self._until:
            return False
        self._until[key] = now + self.window_s
        self._until.move_to_end(key)
        return True

    def _forget(self, now: float) -> None:
        """Close expired windows."""
        until = self._until
        while until and next(iter(until.values())) <= now:
            until.popitem(last=False)
