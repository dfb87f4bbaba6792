"""Two Titanics in one thread: one, and its replica."""

from __future__ import annotations

from tests.titanic.life import SMALL, Life

from requite.protocols.titanic.policy import Replicate
from requite.storage import MemoryFolder


def pair(mode: Replicate = Replicate.ASYNC, **policy: object) -> tuple[Life, Life]:
    """A Titanic and its replica, connected."""
    replica = Life(MemoryFolder(), seed=1, standby=True, **policy)
    primary = Life(MemoryFolder(), seed=2, replicate=mode, **policy)
    primary.replica = replica
    for life in (replica, primary):
        life.wait(0.1)
    return primary, replica


def state(life: Life) -> dict[str, tuple[object, ...]]:
    """The requests that a Titanic and its replica must agree on."""
    return {
        request.ticket: (
            request.lane.name if request.lane else b"",
            request.key,
            request.size,
            request.reply_size,
            request.reply_location is not None,
            request.attempts if request.reply_location else 0,
        )
        for request in life.engine._core.register
    }


def restarted(life: Life, seed: int, **policy: object) -> Life:
    life.close()
    folder = life.store._log._folder
    again = Life(folder, SMALL, now=life.now, seed=seed + 1000, key_window_s=3.0, **policy)  # type: ignore[arg-type]
    again.wait(0.0)
    return again
