"""What a worker did for a service, as counts."""

from __future__ import annotations

from typing import NamedTuple


class Handled(NamedTuple):
    """The requests of one service: `waiting` for a handler, `running`, and those that ended since
    the start of the worker: `ok`, `failed`, or `cancelled`. `counts` are those of `Durations`, for
    all handlers that ran to an end or were interrupted, `took_s` is the sum in seconds."""

    service: str
    waiting: int
    running: int
    ok: int
    failed: int
    cancelled: int
    counts: tuple[int, ...]
    took_s: float

    def plus(self, other: Handled) -> Handled:
        """Return the sum with another part of the same service."""
        return Handled(
            self.service,
            self.waiting + other.waiting,
            self.running + other.running,
            self.ok + other.ok,
            self.failed + other.failed,
            self.cancelled + other.cancelled,
            tuple([a + b for a, b in zip(self.counts, other.counts, strict=True)]),
            self.took_s + other.took_s,
        )
