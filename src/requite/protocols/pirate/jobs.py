"""The nouns of servers, workers and queues of the Pirates: a request in hand, what can be seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

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


class Why:
    """Why messages are dropped: the words of counters and notes."""

    MALFORMED: Final = "malformed"
    STRAY: Final = "stray"  # replies that answer nothing their worker has in hand
    LEFT: Final = "left"  # replies whose client is gone
    UNREADY: Final = "unready"  # said before READY
    LOST: Final = "lost"  # requests whose client, or worker, was lost
    DRAINED: Final = "drained"  # requests that waited when the queue shut down


REQUESTS: Final = frozenset({Why.LOST, Why.DRAINED})
"""Of these a journal tells one by one."""


class QueueSnapshot(NamedTuple):
    """A queue's tables, as counts; `requests`, `replies` and `dropped` since the beginning."""

    clients: int
    waiting: int
    unready: int
    idle: int
    busy: int
    requests: int
    replies: int
    dropped: Mapping[str, int]
    draining: bool
    stopped: bool
