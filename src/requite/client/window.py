"""The bookkeeping of `map`: calls in flight and the order of replies. No I/O; used by both clients.

At most `concurrency` calls are in flight, and the input is read only when there is room for another
call. In input order, an early reply is buffered; calls in flight and buffered replies together are
at most twice `concurrency`, however slow one call is.

If other users of the client leave no free slot for a call, the window defers the call until one of
its own ends. From then on it limits itself to the slots that it got, plus one for each call that
ends. With no call of its own in flight, the deferred call fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from requite.client.call_arguments import CallBody
from requite.errors import CallError, ConfigurationError, Overloaded
from requite.request import Reply

_HELD_PER_CALL: Final = 2


class Item:
    """The token of one call of a `Window`; `outcome` is None while the call is in flight."""

    __slots__ = ("body", "outcome", "window")

    def __init__(self, window: Window, body: CallBody) -> None:
        self.window = window
        self.body = body
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
    """The calls of one `map`, of a client with `slots` slots.

    `on_change` is called whenever a call ends.
    """

    def __init__(
        self,
        concurrency: int,
        as_completed: bool,
        on_change: Callable[[], object],
        *,
        slots: int,
    ) -> None:
        if concurrency < 1:
            raise ConfigurationError(f"concurrency must be at least 1, not {concurrency}")
        self._concurrency = min(concurrency, slots)
        self._limit = self._concurrency  # fewer while others use the slots
        self._as_completed = as_completed
        self._on_change = on_change
        self._running: dict[Item, None] = {}
        self._held: deque[Item] = deque()  # in input order: all; as completed: those that ended
        self._refused: deque[Item] = deque()  # deferred: no slot was free

    @property
    def room(self) -> int:
        """How many more calls may be made now."""
        if self._refused:
            return 0
        room = self._limit - len(self._running)
        if not self._as_completed:
            room = min(room, _HELD_PER_CALL * self._concurrency - len(self._held))
        return room

    @property
    def is_empty(self) -> bool:
        """Whether no call is in flight, buffered or deferred."""
        return not (self._running or self._held or self._refused)

    def again(self) -> list[Item]:
        """Return the deferred calls to make now."""
        items = []
        while self._refused and len(self._running) < self._limit:
            item = self._refused.popleft()
            self._running[item] = None
            items.append(item)
        return items

    def add(self, body: CallBody) -> Item:
        """Return the token for the next call."""
        item = Item(self, body)
        self._running[item] = None
        if not self._as_completed:
            self._held.append(item)
        return item

    def take(self) -> list[Reply | CallError]:
        """Return the outcomes that are next in order."""
        held = self._held
        taken = []
        while held and (outcome := held[0].outcome) is not None:
            taken.append(outcome)
            held.popleft()
        return taken

    def running(self) -> list[Item]:
        """Return the tokens of the calls in flight."""
        return list(self._running)

    def _settle(self, item: Item, outcome: Reply | CallError) -> None:
        self._running.pop(item, None)
        if self._running and _had_no_slot(outcome):
            self._limit = len(self._running)
            self._refused.append(item)
            return
        self._limit = min(self._concurrency, self._limit + 1)
        item.outcome = outcome
        item.body = b""
        if self._as_completed:
            self._held.append(item)
        self._on_change()


def _had_no_slot(outcome: Reply | CallError) -> bool:
    return isinstance(outcome, Overloaded) and not outcome.attempts
