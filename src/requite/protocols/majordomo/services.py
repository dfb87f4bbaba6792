"""A service in the broker: who waits for work, and whose work waits.

Both orders are fair. Workers take turns: the one that has waited longest is next, and a worker with
room for more goes to the end of the line after each request (least recently used; I8). Clients take
turns too: each gets one request served per round, however many it has queued (18/MDP, Architecture:
"The broker SHOULD serve clients on a fair basis").

Every operation is O(1): ordered dicts serve as queues whose middle can be left at any time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from requite.protocols.majordomo.parties import Client, PendingRequest, Worker


class ServiceQueue:
    """Requests that wait for a worker: first come first served per client, clients in turn.

    Those that come back from a lost worker stand in a line of their own, before all turns: they had
    theirs, and take none from anybody. (Put in front of their client's line, with their client in
    front of the others, they would leave that place to its next request when they are cancelled.)
    """

    __slots__ = ("_returned", "_turns", "length")

    def __init__(self) -> None:
        self._returned: OrderedDict[PendingRequest, None] = OrderedDict()
        self._turns: OrderedDict[Client, OrderedDict[PendingRequest, None]] = OrderedDict()
        self.length = 0  # an attribute: the hot path asks it twice per request

    def __iter__(self) -> Iterator[PendingRequest]:
        yield from self._returned
        for line in self._turns.values():
            yield from line

    def push(self, pending: PendingRequest) -> None:
        """Add a request at the end of its client's line; a client new here has the last turn."""
        line = self._turns.get(pending.client)
        if line is None:
            line = self._turns[pending.client] = OrderedDict()
        line[pending] = None
        self.length += 1

    def push_front(self, pending: PendingRequest) -> None:
        """Put a request that comes back from a lost worker before all others."""
        self._returned[pending] = None
        self._returned.move_to_end(pending, last=False)
        self.length += 1

    def pop(self) -> PendingRequest:
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

    def return_turn(self, pending: PendingRequest) -> None:
        """Let the client be next whose turn has gone to `pending`, which is not served now."""
        if pending.client in self._turns and not pending.attempts:
            self._turns.move_to_end(pending.client, last=False)

    def remove(self, pending: PendingRequest) -> None:
        """Take a request out of the middle. Raises KeyError if it is not queued."""
        self.length -= 1
        if pending in self._returned:
            del self._returned[pending]
            return
        line = self._turns[pending.client]
        del line[pending]
        if not line:
            del self._turns[pending.client]


@dataclass(slots=True)
class Counters:
    """What has happened to a service's requests since the broker first heard of it."""

    accepted: int = 0
    replied: int = 0
    failed: int = 0
    expired: int = 0
    cancelled: int = 0
    redelivered: int = 0
    refused: int = 0


@dataclass(slots=True, eq=False)
class Service:
    """One service: its workers, the line of those that wait, its queue and its counters.

    `waiting` holds the workers that can take a request, the one that has waited longest first:
    `waiting[worker] = None` lets one stand in line, where it keeps its place if it has one.
    """

    name: bytes
    workers: dict[Worker, None] = field(default_factory=dict)  # ordered: runs must repeat
    waiting: OrderedDict[Worker, None] = field(default_factory=OrderedDict)
    queue: ServiceQueue = field(default_factory=ServiceQueue)
    counters: Counters = field(default_factory=Counters)

    @property
    def is_bare(self) -> bool:
        """Whether nobody serves it."""
        return not self.workers

    @property
    def in_progress(self) -> int:
        """How many of its requests are with workers."""
        return sum(p is not None for worker in self.workers for p in worker.holds.values())
