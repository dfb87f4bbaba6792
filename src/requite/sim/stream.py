"""The end of a simulated connection, as its process holds it: the contract of `Stream`.

An end may be gone without the other knowing (half-open). The other finds out when it writes (the
reply is a reset, or nothing) or when its keepalive has passed.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, Protocol

from requite.sim.medium import Medium
from requite.sim.pipe import Pipe
from requite.transport.base import Owner

# Bytes that the sender's kernel takes off its process: a close is through when no more are left.
_KERNEL_SIZE: Final = 16 << 10

KEEPALIVE: Final = "the connection timed out: no answer to keepalives"


class State(Enum):
    """Where a stream is in its life."""

    OPEN = auto()
    CLOSING = auto()  # its owner has closed it, and waits for what it wrote to leave
    ENDED = auto()


class Holder(Protocol):
    """The interface of a process to its streams. `life` counts the starts of the process."""

    name: str
    life: int
    streams: dict[SimStream, None]

    def has_io(self, stream: SimStream) -> None:
        """Schedule a call of `stream.hand_over`."""

    def accept(self, stream: SimStream) -> None:
        """Take a connection that another process has dialled."""


class SimStream:
    """The end of a connection that `process` holds: a `requite.transport.base.Stream`."""

    __slots__ = (
        "_ending",
        "_held",
        "_inbox",
        "_link",
        "_medium",
        "_owner",
        "_paused",
        "_pushed_back",
        "_state",
        "_writable",
        "back_pipe",
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

    def __init__(self, medium: Medium, process: Holder, peer_name: str) -> None:
        self._medium = medium
        self.process = process
        self.peer_name = peer_name
        self._inbox: list[bytes] = []
        self._paused = False
        self._held = False
        self._pushed_back = False
        self._writable = False  # the owner is to be told so
        self._state = State.OPEN
        self._ending: str | None = None  # why, when the owner is to be told of the end

    @property
    def is_open(self) -> bool:
        """Whether the process still talks over this stream."""
        return self._state is State.OPEN

    @property
    def node(self) -> str:
        """The machine of the process."""
        return self.process.name

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
        if pipe.size > self._medium.shape.buffer_size and not self._pushed_back:
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
            self._medium.world.after(0.0, self.process.has_io, self)

    # --- a slow reader ----------------------------------------------------------------------------
    def hold(self) -> None:
        """Let the process read nothing of what arrives, whatever it wants."""
        self._held = True

    def let_go(self) -> None:
        """Let it read again."""
        self._held = False
        if self._inbox or self._ending is not None:
            self._medium.world.after(0.0, self.process.has_io, self)

    # --- the network's side -----------------------------------------------------------------------
    def arrive(self, data: bytes) -> bool:
        """Take what has arrived; False where nobody will ever read it."""
        if self._state is not State.OPEN or self._ending is not None:
            return False
        self._inbox.append(data)
        if not self._rests:
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
        self._medium.world.after(0.0, self.process.has_io, self)

    def drained(self, size: int) -> None:
        """Note that `size` bytes are still under way."""
        if self._state is State.CLOSING and size <= _KERNEL_SIZE and self._ending is None:
            self._ending = ""
            self._medium.world.after(0.0, self.process.has_io, self)
        elif self._pushed_back and size <= self._medium.shape.buffer_size // 4:
            self._pushed_back = False
            self._writable = True
            self.process.has_io(self)

    def watch(self) -> None:
        """Let the keepalive find out that the other end is gone, unless something does before."""
        if self._state is not State.ENDED:
            self._medium.world.after(self._medium.shape.keepalive_s, self._keepalive)

    def _keepalive(self) -> None:
        # A frozen process does not know yet that its end has broken; its kernel does.
        if not self.other.is_open or self.other._ending:
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
        if self._inbox and not self._rests:
            self._read()
        if self._writable:
            self._writable = False
            if self._state is State.OPEN:
                self._owner.writable(self._link)
        if self._ending is not None and not self._reads_on:
            self._tell_end(self._ending)

    @property
    def _rests(self) -> bool:
        """Whether nothing is read, by the owner's wish or because somebody holds it."""
        return self._paused or self._held

    @property
    def _reads_on(self) -> bool:
        """Whether the owner is to get more bytes before it learns of the end.

        An owner that has paused learns of a broken connection all the same: it cannot write.
        """
        is_broken = bool(self._ending)
        return bool(self._inbox) and self._state is State.OPEN and not (self._rests and is_broken)

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
