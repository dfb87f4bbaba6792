"""The nouns of a server and a worker of the Pirates: a request in hand, and what can be seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from requite.engine import Message, Peer


class Job:
    """One request in a handler's hands; the token under which the handler answers.

    `peer` is the connection it came by, and `envelope` what its reply begins with. `abandoned`
    tells why nobody waits for it any more ("": somebody does). `joined` are the frames of partial
    replies, `joined_size` their bytes. The rest is for the journal.
    """

    __slots__ = (
        "abandoned",
        "call_id",
        "delivered_at",
        "envelope",
        "is_told",
        "joined",
        "joined_size",
        "peer",
        "size",
        "started_at",
    )

    def __init__(self, peer: Peer, envelope: Message, now: float) -> None:
        self.peer = peer
        self.envelope = envelope
        self.abandoned = ""
        self.joined: list[bytes] = []
        self.joined_size = 0
        self.call_id = b""
        self.delivered_at = now
        self.started_at = 0.0
        self.size = 0
        self.is_told = False

    def join(self, frames: Sequence[bytes]) -> None:
        """Keep a partial reply: the Pirates have one reply per request."""
        self.joined += frames
        self.joined_size += sum(map(len, frames))

    def reply(self, frames: Sequence[bytes]) -> Message:
        """Return the frames of the one reply."""
        return [*self.joined, *frames] or [b""]


def reason_of(frames: Sequence[Any]) -> str:
    """Return what a handler said when it failed, as text."""
    return b" ".join(frames).decode("utf-8", "replace")


class ServerSnapshot(NamedTuple):
    """A server's tables, as counts. Nobody waits for the `abandoned` any more."""

    clients: int
    waiting: int
    running: int
    abandoned: int
    draining: bool
    stopped: bool


class WorkerSnapshot(NamedTuple):
    """A worker's state; `waiting` requests have no handler yet."""

    connected: bool
    dialling: bool
    waiting: int
    running: int
    abandoned: int
    draining: bool
    stopped: bool
