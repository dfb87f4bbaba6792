"""What can be seen of a server's tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


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
