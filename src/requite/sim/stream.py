"""One simulated TCP connection: two streams, and a pipe of bytes from each to the other.

What TCP can do to bytes, a pipe does: they arrive in order, late, and cut into pieces at any place;
they wait where the route is shut, and the sender gives up when no acknowledgement comes for long;
they are lost with the connection when it is reset. What TCP cannot do does not happen.

An end may be gone without the other knowing (half-open). The other finds out when it writes (the
reply is a reset, or nothing) or when its keepalive has passed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, Any, Final

from requite.transport.base import Owner

if TYPE_CHECKING:
    from requite.sim.network import Network, Route
    from requite.sim.process import Process

# Bytes that the sender's kernel takes off its process: a close is through when no more are left.
_KERNEL_SIZE: Final = 16 << 10
# The rest of a chunk that was cut follows so much later.
_NEXT_PIECE_S: Final = 50e-6

RESET: Final = "the connection was reset by the peer"
TIMED_OUT: Final = "the connection timed out: nothing sent is acknowledged"
KEEPALIVE: Final = "the connection timed out: no answer to keepalives"


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


class State(Enum):
    """Where a stream is in its life."""

    OPEN = auto()
    CLOSING = auto()  # its owner has closed it, and waits for what it wrote to leave
    ENDED = auto()


class SimStream:
    """The end of a connection that `process` holds: a `requite.transport.base.Stream`."""

    __slots__ = (
        "_ending",
        "_inbox",
        "_link",
        "_owner",
        "_paused",
        "_pushed_back",
        "_state",
        "_writable",
        "back_pipe",
        "network",
        "other",
        "peer_name",
        "pipe",
        "process",
    )
    other: SimStream
    pipe: Pipe
    back_pipe: Pipe
    _owner: Owner
    _link: object

    def __init__(self, network: Network, process: Process, peer_name: str) -> None:
        self.network = network
        self.process = process
        self.peer_name = peer_name
        self._inbox: list[bytes] = []
        self._paused = False
        self._pushed_back = False
        self._writable = False  # the owner is to be told so
        self._state = State.OPEN
        self._ending: str | None = None  # why, when the owner is to be told of the end

    @property
    def is_open(self) -> bool:
        """Whether the process still talks over this stream."""
        return self._state is State.OPEN

    # --- the owner's side: the contract of `Stream` -----------------------------------------------
    def start(self, owner: Owner, link: object) -> None:
        """Begin to report."""
        self._owner = owner
        self._link = link

    def write(self, data: bytes) -> None:
        """Send."""
        if self._state is not State.OPEN:
            return
        pipe = self.pipe
        pipe.write(data)
        if pipe.size > self.network.shape.buffer_size and not self._pushed_back:
            self._pushed_back = True
            self._owner.blocked(self._link)

    def close(self) -> None:
        """Close when everything written has left this process; at once if it has left bytes unread,
        which the kernel tells the other end by a reset."""
        if self._inbox:
            self.abort()
        elif self._state is State.OPEN:
            self._state = State.CLOSING
            self.pipe.finish()
            self.drained(self.pipe.size)

    def abort(self) -> None:
        """Close at once."""
        if self._state is not State.ENDED:
            self._inbox.clear()
            self.pipe.cut_off(_nothing)
            self.end("")

    def pause_reading(self) -> None:
        """Leave what arrives in the inbox."""
        self._paused = True

    def resume_reading(self) -> None:
        """Read again, from the next turn on."""
        self._paused = False
        if self._inbox or self._ending is not None:
            self.network.world.after(0.0, self.process.has_io, self)

    # --- the network's side -----------------------------------------------------------------------
    def arrive(self, data: bytes) -> bool:
        """Take what has arrived; False where nobody will ever read it."""
        if self._state is not State.OPEN or self._ending is not None:
            return False
        self._inbox.append(data)
        if not self._paused:
            self.process.has_io(self)
        return True

    def hang_up(self) -> None:
        """Note that the other end closed: this one closes, too, when it has read everything."""
        if self._state is State.OPEN and self._ending is None:
            self._ending = ""
            self.process.has_io(self)

    def end(self, reason: str) -> None:
        """Break this end, without a word to the other one; the process is told."""
        if self._state is State.ENDED or self._ending:
            return
        self.pipe.sever()
        if self._state is State.CLOSING:
            self._state = State.ENDED
        self._ending = reason
        self.other.watch()
        self.network.world.after(0.0, self.process.has_io, self)

    def drained(self, size: int) -> None:
        """Note that `size` bytes are still under way."""
        if self._state is State.CLOSING and size <= _KERNEL_SIZE and self._ending is None:
            self._ending = ""
            self.network.world.after(0.0, self.process.has_io, self)
        elif self._pushed_back and size <= self.network.shape.buffer_size // 4:
            self._pushed_back = False
            self._writable = True
            self.process.has_io(self)

    def watch(self) -> None:
        """Let the keepalive find out that the other end is gone, unless something does before."""
        if self._state is not State.ENDED:
            self.network.world.after(self.network.shape.keepalive_s, self._keepalive)

    def _keepalive(self) -> None:
        if not self.other.is_open:
            self.end(KEEPALIVE)

    # --- the end of the process -------------------------------------------------------------------
    def die(self, *, politely: bool) -> None:
        """End with the process: its kernel says FIN or, where bytes are unread or `politely` is
        False, RST."""
        unread = bool(self._inbox)
        self._state = State.ENDED
        if politely and not unread:
            self.pipe.finish()
        else:
            self.pipe.cut_off(_nothing)
        self.other.watch()

    def vanish(self) -> None:
        """End with the machine: nobody says anything."""
        self._state = State.ENDED
        self.pipe.sever()
        self.other.watch()

    # --- to the owner, in a turn of the process ---------------------------------------------------
    def hand_over(self) -> None:
        """Tell the owner what there is to tell, in order: bytes, room to write, the end."""
        if self._inbox and not self._paused:
            self._read()
        if self._writable:
            self._writable = False
            if self._state is State.OPEN:
                self._owner.writable(self._link)
        if self._ending is not None and not self._reads_on:
            self._tell_end(self._ending)

    @property
    def _reads_on(self) -> bool:
        """Whether the owner is to get more bytes before it learns of the end.

        An owner that has paused learns of a broken connection all the same: it cannot write.
        """
        is_broken = bool(self._ending)
        return bool(self._inbox) and self._state is State.OPEN and not (self._paused and is_broken)

    def _read(self) -> None:
        inbox = self._inbox
        data = inbox[0] if len(inbox) == 1 else b"".join(inbox)
        inbox.clear()
        self.back_pipe.is_read(len(data))
        self._owner.received(self._link, data)

    def _tell_end(self, reason: str) -> None:
        if self not in self.process.streams:
            return
        if self._state is State.OPEN and not reason and not self.pipe.broken:
            self._ending = None
            self.close()  # the other end has hung up; `closed` follows when what we wrote has left
            return
        self._state = State.ENDED
        del self.process.streams[self]
        self._owner.closed(self._link, reason)


def _nothing(_size: int) -> int:
    return 0


def connect(network: Network, ours: Any, theirs: Any) -> tuple[SimStream, SimStream]:
    """Make the two ends of a connection between two processes."""
    left = SimStream(network, ours, f"sim://{theirs.name}")
    right = SimStream(network, theirs, f"sim://{ours.name}")
    left.other, right.other = right, left
    left.pipe = right.back_pipe = Pipe(network, left, right)
    right.pipe = left.back_pipe = Pipe(network, right, left)
    return left, right
