"""One direction of a simulated connection, on its route: bytes under way, and what becomes of them.

What TCP can do to bytes, a pipe does: they arrive in order, late, and cut into pieces at any place;
they wait where the route is shut, and the sender gives up when no acknowledgement comes for long;
they are lost with the connection when it is reset. What TCP cannot do does not happen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol

from requite.sim.medium import Medium

if TYPE_CHECKING:
    from requite.sim.world import Act

# The rest of a chunk that was cut follows so much later.
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
        """Note that `size` bytes are still in flight."""


class Pipe:
    """One direction: what `source` has written and `sink` has not read yet (`size` bytes)."""

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
        self._segments: deque[tuple[float, bytes]] = deque()  # (when it arrives, bytes)
        self.last_at = 0.0  # nothing overtakes what was sent before
        self._due = inf  # when bytes are to move next
        self._finished = False  # a FIN follows the last segment
        self._doubt = 0  # the number of the present wait for acknowledgements
        self.route.pipes[self] = None

    # --- the sender's side ------------------------------------------------------------------------
    def write(self, data: bytes) -> None:
        """Put bytes on their way."""
        if self.broken or self._finished:
            return
        self.size += len(data)
        self._segments.append((self._arrival(), data))
        self._schedule(self.last_at)
        if not self.is_acknowledged:
            self.doubt()

    def finish(self) -> None:
        """Let the sink's end come after what was written."""
        if not self._finished and not self.broken:
            self._finished = True
            self._schedule(self._arrival())

    def cut_off(self, prefix: Callable[[int], int]) -> None:
        """Break in mid-flight: `prefix(n)` of n waiting bytes still arrive, then the reset does."""
        if self.broken:
            return
        waiting = b"".join(data for _, data in self._segments)
        self.sever()
        early = waiting[: prefix(len(waiting))]
        self.route.carry(self._reset_sink, early)

    def sever(self) -> None:
        """Move no byte any more, and let nobody know."""
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
        """Let arrive what is due."""
        if due != self._due:  # an instant that has been replaced
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
        elif not self.sink.arrive(data):  # the end that data would go to is gone: it is reset
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
        """Go on at `at`, the route having been mended."""
        if self._segments or self._finished:
            self._schedule(at)

    # --- acknowledgements -------------------------------------------------------------------------
    @property
    def is_acknowledged(self) -> bool:
        """Whether the source hears that its bytes arrive."""
        way_is_free = not self.route.cuts and not self.back.cuts
        return way_is_free and self._medium.is_up(self.sink.node)

    def doubt(self) -> None:
        """Begin to wait for an acknowledgement; without it the source gives the connection up."""
        world = self._medium.world
        world.after(self._medium.shape.retransmit_s, self._give_up, self._doubt)

    def trust(self) -> None:
        """Call the wait off: acknowledgements come again."""
        self._doubt += 1

    def _give_up(self, doubt: int) -> None:
        if doubt == self._doubt and not self.broken:
            self._doubt += 1
            self.source.end(TIMED_OUT)

    def is_read(self, size: int) -> None:
        """Note that the sink's process has read `size` bytes."""
        self.size -= size
        self.source.drained(self.size)


class Route:
    """One way between two nodes: free, cut (a partition) or clogged (a queue that does not move).

    Either way nothing arrives; acknowledgements are missed only where a route is cut.
    """

    __slots__ = ("_medium", "_stalled", "clogs", "cuts", "pipes")

    def __init__(self, medium: Medium) -> None:
        self._medium = medium
        self.cuts = 0  # partitions may overlap, and clogs as well
        self.clogs = 0
        self.pipes: dict[Pipe, None] = {}
        self._stalled: list[tuple[Act, tuple[Any, ...]]] = []

    @property
    def is_free(self) -> bool:
        """Whether anything arrives."""
        return not self.cuts and not self.clogs

    def carry(self, act: Act, *args: Any, behind: Pipe | None = None) -> float:
        """Let `act(*args)` happen at the far end, not before what `behind` carries by now; return
        when, if nothing comes in between."""
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
        """Let go on what had to stop, if nothing is in its way any more."""
        if not self.is_free:
            return
        world = self._medium.world
        at = world.now + self._medium.latency_s()
        for act, args in self._stalled:
            world.at(at, self._arrive, act, args)
        self._stalled.clear()
        for pipe in self.pipes:
            pipe.resume(at)
