"""Whose request is next: clients take turns, redelivered requests go first.

18/MDP, Architecture: "The broker SHOULD serve clients on a fair basis". Each client gets one
request served per round, however many it has queued. Every operation is O(1): ordered dicts serve
as queues whose middle can be left at any time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Any, Generic, Protocol, TypeVar


class Queued(Protocol):
    """What can stand in the queue: it belongs to a client, and was handed out `attempts` times."""

    client: Any
    attempts: int

    def __hash__(self) -> int: ...


Item = TypeVar("Item", bound=Queued)


class ServiceQueue(Generic[Item]):
    """Requests that wait for a worker: first come first served per client, clients in turn.

    Those that come back from a lost worker stand in a line of their own, before all turns: they had
    theirs, and take none from anybody. (Put in front of their client's line, with their client in
    front of the others, they would leave that place to its next request when they are cancelled.)
    """

    __slots__ = ("_returned", "_turns", "length")

    def __init__(self) -> None:
        self._returned: OrderedDict[Item, None] = OrderedDict()
        self._turns: OrderedDict[Hashable, OrderedDict[Item, None]] = OrderedDict()
        self.length = 0  # an attribute: the hot path asks it twice per request

    def __iter__(self) -> Iterator[Item]:
        yield from self._returned
        for line in self._turns.values():
            yield from line

    def push(self, pending: Item) -> None:
        """Add a request at the end of its client's line; a client new here has the last turn."""
        line = self._turns.get(pending.client)
        if line is None:
            line = self._turns[pending.client] = OrderedDict()
        line[pending] = None
        self.length += 1

    def has_turn(self, client: Hashable) -> bool:
        """Whether a client has requests here, apart from those that came back."""
        return client in self._turns

    def push_front(self, pending: Item) -> None:
        """Put a request that comes back from a lost worker before all others."""
        self._returned[pending] = None
        self._returned.move_to_end(pending, last=False)
        self.length += 1

    def pop(self) -> Item:
        """Take the next request of the client whose turn it is. Raises StopIteration when empty."""
        if self._returned:
            self.length -= 1
            return self._returned.popitem(last=False)[0]
        turns = self._turns
        client = next(iter(turns))
        line = turns[client]
        pending = line.popitem(last=False)[0]
        if not line:
            del turns[client]
        elif len(turns) > 1:
            turns.move_to_end(client)
        self.length -= 1
        return pending

    def return_turn(self, pending: Item) -> None:
        """Let the client be next whose turn has gone to `pending`, which is not served now."""
        if pending.client in self._turns and not pending.attempts:
            self._turns.move_to_end(pending.client, last=False)

    def remove(self, pending: Item) -> None:
        """Take a request out of the middle. Raises KeyError if it is not queued."""
        self.length -= 1
        if pending in self._returned:
            del self._returned[pending]
            return
        line = self._turns[pending.client]
        del line[pending]
        if not line:
            del self._turns[pending.client]
