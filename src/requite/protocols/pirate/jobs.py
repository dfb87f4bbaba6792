"""Counters of servers, workers and queues of the Pirates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Why:
    """Reasons for dropping messages, as counters and notes have them."""

    MALFORMED: Final = "malformed"
    STRAY: Final = "stray"  # replies to no request of their worker
    LEFT: Final = "left"  # replies whose client was lost
    UNREADY: Final = "unready"  # messages before READY
    LOST: Final = "lost"  # requests whose client or worker was lost
    DRAINED: Final = "drained"  # requests queued when the queue shut down


REQUESTS: Final = frozenset({Why.LOST, Why.DRAINED})
"""Dropped requests, which the journal has one by one."""


class QueueSnapshot(NamedTuple):
    """Table sizes of a queue; `requests`, `replies` and `dropped` count since the start."""

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
