"""One connection as its host sees it; the object is at the same time the engine's `Peer`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from requite.framing.base import Framing
from requite.transport.base import Stream


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


def discard(_message: Sequence[bytes], _out: list[bytes], /) -> int:
    """Stand in for `Framing.encode` on a link that has ended: what is sent to it goes nowhere."""
    return 0


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
        "muted",
        "out",
        "pushed_back",
        "size",
        "stream",
    )

    def __init__(self, stream: Stream, framing: Framing, accepted: bool) -> None:
        self.stream = stream
        self.framing = framing
        self.encode: Callable[[Sequence[bytes], list[bytes]], int] = framing.encode
        self.accepted = accepted  # the peer dialled, we listened
        self.identity = b""
        self.joined = False  # the engine knows of it
        self.ended = False  # the engine and the host are through with it
        self.blocked = False  # the stream pushes back
        self.muted = False  # it reads too little, and is not read from
        self.pushed_back = False  # the engine has been told so
        self.dirty = False  # stands in the host's list of links to flush
        self.out: list[bytes] = []
        self.size = 0

    def __repr__(self) -> str:
        return f"<Link {self.stream.peer_name}>"

    def take_output(self) -> bytes:
        """Return all that waits as one piece, and forget it."""
        out = self.out
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self.size = 0
        return data
