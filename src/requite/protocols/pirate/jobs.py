"""What can be seen of servers, workers and queues of the Pirates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Why:
    """Why messages are dropped: the words of counters and notes."""

    MALFORMED: Final = "malformed"
    STRAY: Final = "stray"  # replies that answer no request that their worker has
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
