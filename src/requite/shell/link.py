"""One connection as its host sees it; the object is at the same time the engine's `Peer`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import Any

from requite.errors import RemoteViolation
from requite.framing.base import Framing
from requite.transport.base import PromptStream, Stream


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """What one connection may cost.

    `handshake_timeout_s`: how long a peer may take until its framing is ready. `linger_s`: how long
    what was written may take to leave after we closed. `output_size_max`: bytes that may wait for
    a peer which dialled us and pushes back, beyond what its stream holds; with more it is dropped.
    """

    handshake_timeout_s: float = 30.0
    linger_s: float = 5.0
    output_size_max: int = 64 << 20


class Pause(IntFlag):
    """Why a link is not read from."""

    UNREAD = 1  # its peer reads too little of what waits for it
    ENGINE = 2  # the engine pushes back


def discard(_message: Sequence[bytes], _out: list[bytes], /) -> int:
    """Stand in for `Framing.encode` on a link that has ended: what is sent to it goes nowhere."""
    return 0


def reason_of_end(framing: Framing) -> str:
    """Return why a connection is over whose peer has just closed it."""
    try:
        framing.at_end()
    except RemoteViolation as violation:
        return str(violation)
    return "the peer closed the connection"


class Link:
    """The state of one connection between a stream and the engine.

    Only the host writes to it. `encode` is the framing's own method until the link ends, so that
    sending needs no look at the link's state. `size` counts the bytes in `out`.
    """

    __slots__ = (
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
        "paused",
        "place",
        "pushed_back",
        "size",
        "stream",
        "write_now",
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
        self.write_now = stream.write_now if isinstance(stream, PromptStream) else stream.write
        self.encode: Callable[[Sequence[bytes], list[bytes]], int] = framing.encode
        self.accepted = accepted  # the peer dialled, we listened
        self.kept = kept  # the shell dials again by itself
        self.place = place  # by which address the peer came, in the engine's words
        self.identity = b""
        self.joined = False  # the engine knows of it
        self.mute = False  # it has shaken hands with us, and said nothing yet
        self.ended = False  # the engine and the host are through with it
        self.blocked = False  # the stream pushes back
        self.paused = Pause(0)  # not read from, as long as there is a reason
        self.pushed_back = False  # the engine has been told so
        self.dirty = False  # stands in the host's list of links to flush
        self.out: list[bytes] = []
        self.size = 0

    def __repr__(self) -> str:
        return f"<Link {self.stream.peer_name}>"

    def pause(self, why: Pause) -> None:
        """Read no more; a reason that is known already adds nothing, nor does one after the end."""
        if not (self.paused or self.ended):
            self.stream.pause_reading()
        self.paused |= why

    def resume(self, why: Pause) -> None:
        """Drop a reason, and read again if it was the last one."""
        if self.paused & why:
            self.paused &= ~why
            if not (self.paused or self.ended):
                self.stream.resume_reading()

    def take_output(self) -> bytes:
        """Return all that waits as one piece, and forget it."""
        out = self.out
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self.size = 0
        return data
