"""The queue of a service: clients take turns, redelivered requests go first, late ones last.

18/MDP, Architecture: "The broker SHOULD serve clients on a fair basis". Each client gets one
request served per round, however many it has queued. Every operation is O(1), including removal
from the middle: the queues are ordered dicts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Any, Generic, Protocol, TypeVar


class Queued(Protocol):
    """An item of the queue: it belongs to a client, and was dispatched `attempts` times."""

    client: Any
    attempts: int

    def __hash__(self) -> int: ...


Item = TypeVar("Item", bound=Queued)


class ServiceQueue(Generic[Item]):
    """Requests that wait for a worker: in order per client, clients in turn.

    Requests that come back from a lost worker are in a separate line, before all turns: they have
    had their turn. (At the head of their client's line, with their client first, a cancelled one
    would leave its place to the client's next request.)

    Requests that are unlikely to be answered before their deadline wait behind all others: under
    overload, workers must not spend their time on replies that nobody waits for. Those in this last
    line that were put off last have the most time left, and go first.
    """

    __slots__ = ("_late", "_returned", "_turns", "length")

    def __init__(self) -> None:
        self._returned: OrderedDict[Item, None] = OrderedDict()
        self._turns: OrderedDict[Hashable, OrderedDict[Item, None]] = OrderedDict()
        self._late: OrderedDict[Item, None] = OrderedDict()
        self.length = 0  # an attribute: the hot path reads it twice per request

    def __iter__(self) -> Iterator[Item]:
        yield from self._returned
        for line in self._turns.values():
            yield from line
        yield from reversed(self._late)

    def firsts(self) -> Iterator[Item]:
        """Yield the first request of each line. The one that has waited longest is among them,
        unless requests came back or were put off in another order."""
        if self._returned:
            yield next(iter(self._returned))
        for line in self._turns.values():
            yield next(iter(line))
        if self._late:
            yield next(iter(self._late))

    def push(self, pending: Item) -> None:
        """Append a request to its client's line; a new client gets the last turn."""
        line = self._turns.get(pending.client)
        if line is None:
            line = self._turns[pending.client] = OrderedDict()
        line[pending] = None
        self.length += 1

    def has_turn(self, client: Hashable) -> bool:
        """Whether a client has queued requests, other than those that came back or are late."""
        return client in self._turns

    @property
    def has_turns(self) -> bool:
        """Whether any client has such requests."""
        return bool(self._turns)

    def push_front(self, pending: Item) -> None:
        """Queue a request from a lost worker before all others."""
        self._returned[pending] = None
        self._returned.move_to_end(pending, last=False)
        self.length += 1

    def put_off(self, pending: Item) -> None:
        """Queue a request, which was popped, behind all others."""
        self._late[pending] = None
        self.length += 1

    def pop(self) -> Item:
        """Remove and return the next request. Raises `KeyError` when empty."""
        if self._returned:
            self.length -= 1
            return self._returned.popitem(last=False)[0]
        turns = self._turns
        if not turns:
            pending = self._late.popitem()[0]
            self.length -= 1
            return pending
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
        """Give the client of `pending`, which was popped but not served, the next turn."""
        if pending.client in self._turns and not pending.attempts:
            self._turns.move_to_end(pending.client, last=False)

    def remove(self, pending: Item) -> None:
        """Remove a request. Raises `KeyError` if it is not queued."""
        self.length -= 1
        for line in (self._returned, self._late):
            if pending in line:
                del line[pending]
                return
        turn = self._turns[pending.client]
        del turn[pending]
        if not turn:
            del self._turns[pending.client]
