"""The nouns of a server: a request in a handler's hands, and what can be seen of its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from requite.engine import Peer


class Job:
    """One request in a server's hands; the token under which its handler answers.

    `control` are the frames that its reply begins with, and `peer` is the client. `abandoned` tells
    why nobody waits for it any more ("": somebody does). `joined` are the frames of partial
    replies, `joined_size` their bytes. The other attributes are for the journal.
    """

    __slots__ = (
        "abandoned",
        "call_id",
        "control",
        "delivered_at",
        "is_told",
        "joined",
        "joined_size",
        "peer",
        "size",
        "started_at",
    )

    def __init__(self, peer: Peer, control: Sequence[bytes]) -> None:
        self.peer = peer
        self.control = control
        self.abandoned = ""
        self.joined: list[bytes] | None = None
        self.joined_size = 0
        self.call_id = b""
        self.delivered_at = self.started_at = 0.0
        self.size = 0
        self.is_told = False


class Why:
    """Why messages are dropped: the words of counters, notes and journals."""

    MALFORMED = "malformed"
    LOST = "lost"  # requests whose client was lost before they began


class ServerSnapshot(NamedTuple):
    """A server's tables, as counts.

    `clients`: `unread` ones are pushed back. `waiting` requests have no handler yet; of those which
    have one, nobody waits for the `abandoned`. Since the beginning: `pings` answered, and messages
    `dropped`, by reason (`Why`).
    """

    clients: int
    unread: int
    waiting: int
    running: int
    abandoned: int
    pings: int
    dropped: Mapping[str, int]
    draining: bool
    stopped: bool
