"""One end of a simulated connection, with the contract of `Stream`.

A connection may be half-open: one end is lost. The other end detects this when it writes (and gets
a reset, or no acknowledgement), or by its keepalive.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, Protocol

from requite.principal import Credential
from requite.sim.kernel.medium import Medium
from requite.sim.kernel.pipe import Pipe
from requite.transport.base import Owner

# Bytes that fit into the sender's kernel: a close completes when no more are left.
_KERNEL_SIZE: Final = 16 << 10

KEEPALIVE: Final = "the connection timed out: no answer to keepalives"


class State(Enum):
    """The state of a stream."""

    OPEN = auto()
    CLOSING = auto()  # closed by its owner; written bytes have yet to leave
    ENDED = auto()


class Holder(Protocol):
    """The interface of a process to its streams. `life` counts the starts of the process."""

    name: str
    life: int
    streams: dict[SimStream, None]
    credential: Credential | None

    def has_io(self, stream: SimStream) -> None:
        """Schedule a call of `stream.hand_over`."""

    def accept(self, stream: SimStream) -> None:
        """Accept a connection that another process dialled."""


class SimStream:
    """One end of a connection, owned by `process`: a `requite.transport.base.Stream`."""

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
        self._writable = False  # the owner is still to be notified that it can write
        self._state = State.OPEN
        self._ending: str | None = None  # the reason, until the owner is notified of the end

    @property
    def is_open(self) -> bool:
        """Whether the process has not closed this stream."""
        return self._state is State.OPEN

    @property
    def peer_credential(self) -> Credential | None:
        """The credential of the process at the other end, as TLS proves it."""
        return self.other.process.credential

    @property
    def has_unread(self) -> bool:
        """Whether bytes have arrived that were not read; True if that is unknown."""
        return bool(self._inbox)

    @property
    def read_was_full(self) -> bool:
        """False: a read returns all that has arrived; see `Stream`."""
        return False

    @property
    def node(self) -> str:
        """The machine of the process."""
        return self.process.name

    # --- the owner's side: the contract of `Stream` -----------------------------------------------
    def start(self, owner: Owner, link: object) -> None:
        """Start to report events to the owner."""
        self._owner = owner
        self._link = link

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if self._state is not State.OPEN:
            return
        pipe = self.pipe
        pipe.write(data)
        if pipe.size > self._medium.shape.buffer_size and not self._pushed_back:
            self._pushed_back = True
            self._owner.blocked(self._link)

    def close(self) -> None:
        """Close when all written bytes have left this process; with unread bytes at once, by a
        reset."""
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
        """Stop reading: bytes stay in the inbox."""
        self._paused = True

    def resume_reading(self) -> None:
        """Resume reading in the next turn."""
        self._paused = False
        if self._inbox or self._ending is not None:
            self._medium.world.after(0.0, self.process.has_io, self)

    # --- a slow reader ----------------------------------------------------------------------------
    def hold(self) -> None:
        """Keep the process from reading (a fault)."""
        self._held = True

    def let_go(self) -> None:
        """End the fault of `hold`."""
        self._held = False
        if self._inbox or self._ending is not None:
            self._medium.world.after(0.0, self.process.has_io, self)

    # --- the network's side -----------------------------------------------------------------------
    def arrive(self, data: bytes) -> bool:
        """Receive bytes; return False if the stream has ended."""
        if self._state is not State.OPEN or self._ending is not None:
            return False
        self._inbox.append(data)
        if not self._rests:
            self.process.has_io(self)
        return True

    def hang_up(self) -> None:
        """Receive a FIN: this end closes, too, when it has read all bytes."""
        if self._state is State.OPEN and self._ending is None:
            self._ending = ""
            self.process.has_io(self)

    def end(self, reason: str) -> None:
        """Break this end; only its own process is notified, with the reason."""
        if self._state is State.ENDED or self._ending:
            return
        self.pipe.sever()
        if self._state is State.CLOSING:
            self._state = State.ENDED
        self._ending = reason
        self.other.watch()
        self._medium.world.after(0.0, self.process.has_io, self)

    def drained(self, size: int) -> None:
        """Record that `size` bytes are still in flight."""
        if self._state is State.CLOSING and size <= _KERNEL_SIZE and self._ending is None:
            self._ending = ""
            self._medium.world.after(0.0, self.process.has_io, self)
        elif self._pushed_back and size <= self._medium.shape.buffer_size // 4:
            self._pushed_back = False
            self._writable = True
            self.process.has_io(self)

    def watch(self) -> None:
        """Start the keepalive, which detects a lost peer."""
        if self._state is not State.ENDED:
            self._medium.world.after(self._medium.shape.keepalive_s, self._keepalive)

    def _keepalive(self) -> None:
        # A frozen process is notified later that its end has broken; its kernel knows at once.
        if not self.other.is_open or self.other._ending:
            self.end(KEEPALIVE)

    # --- the end of the process -------------------------------------------------------------------
    def die(self, *, politely: bool) -> None:
        """End with the process: its kernel sends FIN, or RST if bytes are unread or `politely` is
        False."""
        unread = bool(self._inbox)
        self._state = State.ENDED
        if politely and not unread:
            self.pipe.finish()
        else:
            self.pipe.cut_off(_nothing)
        self.other.watch()

    def vanish(self) -> None:
        """End with the machine: the other end gets nothing."""
        self._state = State.ENDED
        self.pipe.sever()
        self.other.watch()

    # --- to the owner, in a turn of the process ---------------------------------------------------
    def hand_over(self) -> None:
        """Report pending events to the owner, in order: bytes, writable, end."""
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
        """Whether reading is paused, by the owner or by a fault."""
        return self._paused or self._held

    @property
    def _reads_on(self) -> bool:
        """Whether the owner gets more bytes before the end. A paused owner is still notified of a
        broken connection, since it cannot write."""
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
            self.close()  # after a FIN; `closed` follows when all written bytes have left
            return
        self._state = State.ENDED
        del self.process.streams[self]
        self._owner.closed(self._link, reason)


def _nothing(_size: int) -> int:
    return 0
