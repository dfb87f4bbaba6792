"""The bookkeeping of `map`: which calls are out, whose turn it is. No I/O, shared by both clients.

At most `concurrency` calls are out, and the input is read only when there is room for one more. In
input order, a reply that comes before its turn waits; together with those that are out, at most
twice `concurrency` replies are held, however slow one call is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from requite.errors import CallError, ConfigurationError
from requite.request import Reply

_HELD_PER_CALL: Final = 2


class Item:
    """The token of one call of a `Window`; `outcome` is None while it is out."""

    __slots__ = ("outcome", "window")

    def __init__(self, window: Window) -> None:
        self.window = window
        self.outcome: Reply | CallError | None = None

    def done(self) -> bool:
        """Whether the call has ended."""
        return self.outcome is not None

    def set_result(self, reply: Reply) -> None:
        """End the call with its reply."""
        self.window._settle(self, reply)

    def set_exception(self, error: CallError) -> None:
        """End the call with an error."""
        self.window._settle(self, error)


class Window:
    """The calls of one `map`; `on_change` is called whenever one of them ends."""

    def __init__(
        self, concurrency: int, as_completed: bool, on_change: Callable[[], object]
    ) -> None:
        if concurrency < 1:
            raise ConfigurationError(f"concurrency must be at least 1, not {concurrency}")
        self._concurrency = concurrency
        self._as_completed = as_completed
        self._on_change = on_change
        self._running: dict[Item, None] = {}
        self._held: deque[Item] = deque()  # in input order: all; as completed: those that ended

    @property
    def room(self) -> int:
        """How many more calls may be made now."""
        room = self._concurrency - len(self._running)
        if not self._as_completed:
            room = min(room, _HELD_PER_CALL * self._concurrency - len(self._held))
        return room

    @property
    def is_empty(self) -> bool:
        """Whether nothing is out and nothing is held."""
        return not self._running and not self._held

    def add(self) -> Item:
        """Return the token for the next call."""
        item = Item(self)
        self._running[item] = None
        if not self._as_completed:
            self._held.append(item)
        return item

    def take(self) -> list[Reply | CallError]:
        """Return the outcomes whose turn has come."""
        held = self._held
        taken = []
        while held and (outcome := held[0].outcome) is not None:
            taken.append(outcome)
            held.popleft()
        return taken

    def running(self) -> list[Item]:
        """Return the tokens of the calls that are out."""
        return list(self._running)

    def _settle(self, item: Item, outcome: Reply | CallError) -> None:
        item.outcome = outcome
        self._running.pop(item, None)
        if self._as_completed:
            self._held.append(item)
        self._on_change()
