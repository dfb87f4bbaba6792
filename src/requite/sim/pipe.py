"""One direction of a simulated connection: bytes under way, and what becomes of them.

What TCP can do to bytes, a pipe does: they arrive in order, late, and cut into pieces at any place;
they wait where the route is shut, and the sender gives up when no acknowledgement comes for long;
they are lost with the connection when it is reset. What TCP cannot do does not happen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from requite.sim.network import Network, Route
    from requite.sim.stream import SimStream

# The rest of a chunk that was cut follows so much later.
_NEXT_PIECE_S: Final = 50e-6

RESET: Final = "the connection was reset by the peer"
TIMED_OUT: Final = "the connection timed out: nothing sent is acknowledged"


class Pipe:
    """One direction: what `source` has written and `sink` has not read yet (`size` bytes)."""

    __slots__ = (
        "_doubt",
        "_due",
        "_finished",
        "_network",
        "_segments",
        "back",
        "broken",
        "last_at",
        "route",
        "sink",
        "size",
        "source",
    )

    def __init__(self, network: Network, source: SimStream, sink: SimStream) -> None:
        self._network = network
        self.source = source
        self.sink = sink
        self.route: Route = network.route(source.process.name, sink.process.name)
        self.back: Route = network.route(sink.process.name, source.process.name)
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
        self.last_at = max(self._network.world.now + self.route.latency_s(), self.last_at)
        return self.last_at

    def _schedule(self, at: float) -> None:
        if at < self._due:
            self._due = at
            self._network.world.at(at, self._move, at)

    def _move(self, due: float) -> None:
        """Let arrive what is due."""
        if due != self._due:  # an instant that has been replaced
            return
        self._due = inf
        if self.broken or not self.route.is_free:  # `Route.maybe_resume` schedules us again
            return
        now = self._network.world.now
        data = self._take_due(now)
        if data:
            self._arrive(data)
        if self._segments:
            self._schedule(self._segments[0][0])
        elif self._finished and not self.broken:
            self.sever()
            self.sink.hang_up()

    def _arrive(self, data: bytes) -> None:
        if not self._network.is_up(self.sink.process.name):
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
        border = self._network.border(len(data))
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
        return way_is_free and self._network.is_up(self.sink.process.name)

    def doubt(self) -> None:
        """Begin to wait for an acknowledgement; without it the source gives the connection up."""
        world = self._network.world
        world.after(self._network.shape.retransmit_s, self._give_up, self._doubt)

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
