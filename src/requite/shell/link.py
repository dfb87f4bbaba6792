"""`Link`: the host's state of one connection; it is also the engine's `Peer`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntFlag
from typing import Any, Final, Self

from requite.errors import RemoteViolation
from requite.framing.base import Chunk, Framing, Message
from requite.principal import ANYONE, Credential
from requite.transport.base import PromptStream, Stream
from requite.value import Value

_FRAMES_SIZE: Final = 1 << 20  # of a message with many frames, beside its body


@dataclass(frozen=True, slots=True)
class LinkLimits(Value):
    """Limits of time and memory for connections.

    `handshake_timeout_s`: seconds until the framing must be ready. `linger_s`: seconds in which
    queued output is sent after closing. `output_size_max`: bytes queued for an accepted peer that
    pushes back, beyond its stream's buffer; a peer with more is dropped. `output_total_max`: the
    same for all accepted peers together; beyond it the peer with the most is dropped.
    `partial_size_max`: bytes of incomplete messages of all accepted peers together; beyond it the
    peer with the largest one is dropped. `partial_timeout_s`: seconds in which at least one more
    byte of an accepted peer's incomplete message must arrive. `burst`: how many messages of peers
    that start work are handled beyond those that finish it; more wait (`fair_queue.py`).
    """

    handshake_timeout_s: float = 30.0
    linger_s: float = 5.0
    output_size_max: int = 64 << 20
    output_total_max: int = 1 << 30
    partial_size_max: int = 1 << 30
    partial_timeout_s: float = 30.0
    burst: int = 512

    def for_messages(self, size_max: int) -> Self:
        """Return these limits with room for at least one message of `size_max` bytes."""
        return replace(self, partial_size_max=max(self.partial_size_max, size_max + _FRAMES_SIZE))


class Pause(IntFlag):
    """Why reading from a link is paused."""

    UNREAD = 1  # the peer reads too little of its output
    ENGINE = 2  # the engine pushes back
    LOGIN = 4  # its password is being checked, or waits because others have failed
    APPROVAL = 8  # the user's hook has not admitted it yet
    RATE = 16  # its owner sends more bytes per second than its quota allows
    TURN = 32  # messages of it wait for their turn


class Share:
    """What a peer that is read in turn has used (`fair_queue.py`). `messages` are those that wait.

    They arrived at `arrived_after` or later, and unread ones at `unread_since` or later (0: all was
    read, and more is read as soon as it arrives). `turn` is the current round of the peer and a
    number. In that round, it has `used` messages, less what refusals did not cost, and `refused`
    were refused. `recent` counts those that had to wait since `recent_since`. While it waits, it is
    reported alive each `report_s`, next at `report_at`.
    """

    __slots__ = (
        "arrived_after",
        "messages",
        "recent",
        "recent_since",
        "refused",
        "report_at",
        "report_s",
        "turn",
        "unread_since",
        "used",
    )

    def __init__(self, report_s: float) -> None:
        self.report_s = report_s
        self.report_at = 0.0
        self.messages: Sequence[Message] = ()
        self.arrived_after = 0.0
        self.unread_since = 0.0
        self.used = 0
        self.refused = 0
        self.recent = 0
        self.recent_since = 0.0
        self.turn = (-2, 0)  # in none yet


def discard(_message: Sequence[bytes], _out: list[Chunk], /) -> int:
    """Stand in for `Framing.encode` on a link that has ended: drop the message."""
    return 0


def reason_of_end(framing: Framing) -> str:
    """Return why a connection ended that the peer has just closed."""
    try:
        framing.at_end()
    except RemoteViolation as violation:
        return str(violation)
    return "the peer closed the connection"


class Link:
    """The state of one connection between a stream and the engine.

    Only the host writes to it. `encode` is the framing's method until the link ends, so sending
    need not check the link's state. `size` counts the bytes in `out`.
    """

    __slots__ = (
        "_is_prompt",
        "accepted",
        "blocked",
        "dirty",
        "encode",
        "ended",
        "framing",
        "identity",
        "joined",
        "kept",
        "mute",
        "out",
        "partial_size",
        "paused",
        "place",
        "principal",
        "pushed_back",
        "share",
        "size",
        "stream",
    )

    def __init__(
        self,
        stream: Stream,
        framing: Framing,
        accepted: bool,
        kept: bool = False,
        place: Any = None,
    ) -> None:
        self.stream = stream
        self.framing = framing
        self._is_prompt = isinstance(stream, PromptStream)
        self.encode: Callable[[Sequence[bytes], list[Chunk]], int] = framing.encode
        self.accepted = accepted  # the peer dialled
        self.kept = kept  # the shell redials it
        self.place = place  # the engine's name of the link's address
        self.identity = b""
        self.principal = ANYONE
        self.joined = False  # the engine has got `PeerJoined`
        self.mute = False  # handshake done, no message yet
        self.ended = False  # detached from engine and host
        self.blocked = False  # the stream pushes back
        self.paused = Pause(0)  # the reasons why reading is paused
        self.partial_size = 0  # the received part of an accepted peer's incomplete message
        self.pushed_back = False  # the engine has got `PeerBlocked`
        self.share: Share | None = None  # if it is read in turn
        self.dirty = False  # in the host's list of links to flush
        self.out: list[Chunk] = []
        self.size = 0

    def __repr__(self) -> str:
        return f"<Link {self.stream.peer_name}>"

    @property
    def write_now(self) -> Callable[[Chunk], None]:
        """`PromptStream.write_now` of the stream, or its `write` if it has none."""
        stream: Any = self.stream
        write: Callable[[Chunk], None] = stream.write_now if self._is_prompt else stream.write
        return write

    @property
    def credential(self) -> Credential | None:
        """What the peer has proven, once the handshake is complete."""
        return self.framing.peer_credential or self.stream.peer_credential

    def pause(self, why: Pause) -> None:
        """Add a reason to pause reading; ignored once the link has ended."""
        if not (self.paused or self.ended):
            self.stream.pause_reading()
        self.paused |= why

    def resume(self, why: Pause) -> None:
        """Remove a reason, and resume reading if it was the last."""
        if self.paused & why:
            self.paused &= ~why
            if not (self.paused or self.ended):
                self.stream.resume_reading()

    def take_portion(self, size: int) -> Chunk:
        """Remove and return the beginning of the queued output: at least `size` bytes, if there
        are so many, and whole pieces."""
        out = self.out
        taken = count = 0
        while taken < size and count < len(out):
            taken += len(out[count])
            count += 1
        data = out[0] if count == 1 else b"".join(out[:count])
        del out[:count]
        self.size -= taken
        return data

    def take_output(self) -> Chunk:
        """Remove and return the queued output as one byte string."""
        out = self.out
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self.size = 0
        return data
