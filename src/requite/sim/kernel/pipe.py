"""One direction of a simulated connection, on its route: the bytes in flight.

A pipe does to bytes exactly what TCP can do: they arrive in order, late, and cut at any place. They
wait while the route is shut; the sender gives up without acknowledgements. They are lost when the
connection is reset.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol

from requite.sim.kernel.medium import Medium

if TYPE_CHECKING:
    from requite.sim.kernel.world import Act

# The delay of the rest of a chunk that was cut.
_NEXT_PIECE_S: Final = 50e-6

RESET: Final = "the connection was reset by the peer"
TIMED_OUT: Final = "the connection timed out: nothing sent is acknowledged"


class End(Protocol):
    """The interface of a stream to its two pipes."""

    pipe: Pipe

    @property
    def node(self) -> str:
        """The machine of the stream's process."""

    @property
    def is_open(self) -> bool:
        """Whether the process has not closed the stream."""

    def arrive(self, data: bytes) -> bool:
        """Receive bytes; return False if the stream has ended."""

    def hang_up(self) -> None:
        """Receive a FIN."""

    def end(self, reason: str) -> None:
        """Break the stream."""

    def drained(self, size: int) -> None:
        """Record that `size` bytes are still in flight."""


class Pipe:
    """One direction: the `size` bytes that `source` has written and `sink` has not read."""

    __slots__ = (
        "_doubt",
        "_due",
        "_finished",
        "_medium",
        "_segments",
        "back",
        "broken",
        "last_at",
        "route",
        "sink",
        "size",
        "source",
    )

    def __init__(self, medium: Medium, source: End, sink: End, route: Route, back: Route) -> None:
        self._medium = medium
        self.source = source
        self.sink = sink
        self.route = route
        self.back = back
        self.size = 0
        self.broken = False
        self._segments: deque[tuple[float, bytes]] = deque()  # (time of arrival, bytes)
        self.last_at = 0.0  # the last arrival; later bytes never arrive earlier
        self._due = inf  # the next time at which bytes move
        self._finished = False  # a FIN follows the last segment
        self._doubt = 0  # the number of the current wait for acknowledgements
        self.route.pipes[self] = None

    # --- the sender's side ------------------------------------------------------------------------
    def write(self, data: bytes) -> None:
        """Send bytes."""
        if self.broken or self._finished:
            return
        self.size += len(data)
        self._segments.append((self._arrival(), data))
        self._schedule(self.last_at)
        if not self.is_acknowledged:
            self.doubt()

    def finish(self) -> None:
        """Send a FIN after the written bytes."""
        if not self._finished and not self.broken:
            self._finished = True
            self._schedule(self._arrival())

    def cut_off(self, prefix: Callable[[int], int]) -> None:
        """Reset: `prefix(n)` of the n bytes in flight still arrive, then the reset does."""
        if self.broken:
            return
        waiting = b"".join(data for _, data in self._segments)
        self.sever()
        early = waiting[: prefix(len(waiting))]
        self.route.carry(self._reset_sink, early)

    def sever(self) -> None:
        """Drop all bytes from now on; neither end is notified."""
        self.broken = True
        self._segments.clear()
        self.route.pipes.pop(self, None)

    def _reset_sink(self, early: bytes) -> None:
        if early:
            self.sink.arrive(early)
        self.sink.end(RESET)

    # --- under way --------------------------------------------------------------------------------
    def _arrival(self) -> float:
        self.last_at = max(self._medium.world.now + self._medium.latency_s(), self.last_at)
        return self.last_at

    def _schedule(self, at: float) -> None:
        if at < self._due:
            self._due = at
            self._medium.world.at(at, self._move, at)

    def _move(self, due: float) -> None:
        """Deliver the bytes that are due."""
        if due != self._due:  # the event is obsolete
            return
        self._due = inf
        if self.broken or not self.route.is_free:  # `Route.maybe_resume` schedules us again
            return
        now = self._medium.world.now
        data = self._take_due(now)
        if data:
            self._arrive(data)
        if self._segments:
            self._schedule(self._segments[0][0])
        elif self._finished and not self.broken:
            self.sever()
            self.sink.hang_up()

    def _arrive(self, data: bytes) -> None:
        if not self._medium.is_up(self.sink.node):
            self.doubt()
        elif not self.sink.arrive(data):  # the receiving end is closed: it resets
            self.sever()
            self.back.carry(self.source.end, RESET, behind=self.sink.pipe)

    def _take_due(self, now: float) -> bytes:
        segments = self._segments
        due = []
        while segments and segments[0][0] <= now:
            due.append(segments.popleft()[1])
        data = due[0] if len(due) == 1 else b"".join(due)
        border = self._medium.border(len(data))
        if border < len(data):
            segments.appendleft((now + _NEXT_PIECE_S, data[border:]))
            self.last_at = max(self.last_at, now + _NEXT_PIECE_S)
        return data[:border]

    def resume(self, at: float) -> None:
        """Resume at `at`: the route is free again."""
        if self._segments or self._finished:
            self._schedule(at)

    # --- acknowledgements -------------------------------------------------------------------------
    @property
    def is_acknowledged(self) -> bool:
        """Whether the source gets acknowledgements."""
        way_is_free = not self.route.cuts and not self.back.cuts
        return way_is_free and self._medium.is_up(self.sink.node)

    def doubt(self) -> None:
        """Start waiting for an acknowledgement; if none arrives in time, the source gives up."""
        world = self._medium.world
        world.after(self._medium.shape.retransmit_s, self._give_up, self._doubt)

    def trust(self) -> None:
        """Stop waiting: acknowledgements arrive again."""
        self._doubt += 1

    def _give_up(self, doubt: int) -> None:
        if doubt == self._doubt and not self.broken:
            self._doubt += 1
            self.source.end(TIMED_OUT)

    def is_read(self, size: int) -> None:
        """Record that the sink's process has read `size` bytes."""
        self.size -= size
        self.source.drained(self.size)


class Route:
    """One direction between two nodes: free, cut (a partition) or clogged (congested).

    Nothing arrives over a cut or clogged route; acknowledgements are missed only if it is cut.
    """

    __slots__ = ("_medium", "_stalled", "clogs", "cuts", "pipes")

    def __init__(self, medium: Medium) -> None:
        self._medium = medium
        self.cuts = 0  # a count: partitions may overlap, and so may clogs
        self.clogs = 0
        self.pipes: dict[Pipe, None] = {}
        self._stalled: list[tuple[Act, tuple[Any, ...]]] = []

    @property
    def is_free(self) -> bool:
        """Whether bytes arrive."""
        return not self.cuts and not self.clogs

    def carry(self, act: Act, *args: Any, behind: Pipe | None = None) -> float:
        """Schedule `act(*args)` at the far end, after the bytes that `behind` now carries; return
        the time, if the route stays free."""
        at = self._medium.world.now + self._medium.latency_s()
        if behind is not None:
            at = max(at, behind.last_at)
        self._medium.world.at(at, self._arrive, act, args)
        return at

    def _arrive(self, act: Act, args: tuple[Any, ...]) -> None:
        if self.is_free:
            act(*args)
        else:
            self._stalled.append((act, args))

    def maybe_resume(self) -> None:
        """Resume the stopped pipes if the route is free."""
        if not self.is_free:
            return
        world = self._medium.world
        at = world.now + self._medium.latency_s()
        for act, args in self._stalled:
            world.at(at, self._arrive, act, args)
        self._stalled.clear()
        for pipe in self.pipes:
            pipe.resume(at)
