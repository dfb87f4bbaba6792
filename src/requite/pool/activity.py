"""Which reports of workers say that a group is still needed.

Workers report every request they receive, which may be thousands a second; once per `window` and
group is enough. The *first* report of a window is passed on and those after it are not: the other
way round, passing on only what comes after a quiet time, a group with steady traffic would never
be refreshed, and be stopped under load. What is not passed on is made up for: a report that is
passed on counts for a window longer than it would ("extra lifetime").
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from requite.protocols.amqp.wire import Event

_KNOWN: Final = frozenset(Event)


class ActivityFilter:
    """Remembers which groups have been heard of in the current window."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self.unknown = 0
        self._until: OrderedDict[str, float] = OrderedDict()  # in order of their ends

    def __len__(self) -> int:
        return len(self._until)

    def reported(self, key: str, event: str, now: float, *, expected: bool) -> bool:
        """Take a report; tell whether the group is to be required, for `window_s` longer.

        Requests that were received say so. That a worker has started says it only of a group that
        is not `expected`, whose worker waits for a queue then; otherwise workers that die and start
        without end would keep their group alive. What is not known counts as `unknown`.
        """
        if event not in _KNOWN:
            self.unknown += 1
            return False
        if event != Event.REQUEST_RECEIVED:
            return not expected and event != Event.STOPPING
        self._forget(now)
        if expected and key in self._until:
            return False
        self._until[key] = now + self.window_s
        self._until.move_to_end(key)
        return True

    def _forget(self, now: float) -> None:
        """Close the windows that are over."""
        until = self._until
        while until and next(iter(until.values())) <= now:
            until.popitem(last=False)
