"""A Titanic and its replica, without threads."""

from __future__ import annotations

from tests.titanic.life import SMALL, LocalTitanic

from requite.protocols.titanic.policy import Replicate
from requite.protocols.titanic.wire import CLOSE
from requite.storage import MemoryFolder


def pair(mode: Replicate = Replicate.ASYNC, **policy: object) -> tuple[LocalTitanic, LocalTitanic]:
    """Return a Titanic and its replica, connected."""
    replica = LocalTitanic(MemoryFolder(), seed=1, standby=True, **policy)
    primary = LocalTitanic(MemoryFolder(), seed=2, replicate=mode, **policy)
    primary.replica = replica
    for life in (replica, primary):
        life.wait(0.1)
    return primary, replica


def state(life: LocalTitanic) -> dict[str, tuple[object, ...]]:
    """Return the state of all requests, which a Titanic and its replica must agree on."""
    return {
        request.ticket: (
            request.lane.name if request.lane else b"",
            request.key,
            request.owner.name,
            request.size,
            request.reply_size,
            request.reply_location is not None,
            request.attempts if request.reply_location else 0,
        )
        for request in life.engine._core.register
    }


def restarted(life: LocalTitanic, seed: int, **policy: object) -> LocalTitanic:
    life.close()
    folder = life.store._log._folder
    again = LocalTitanic(folder, SMALL, now=life.now, seed=seed + 1000, key_window_s=3.0, **policy)  # type: ignore[arg-type]
    again.wait(0.0)
    return again


def compact_all(life: LocalTitanic) -> None:
    """Compact a store so that all of its live records are moved."""
    for n in range(200):  # dead records around the live ones, in all segments
        life.ask(CLOSE, life.submit(b"%d" % n * 20))
    life.compact()
    assert life.store.view().moved_bytes > 0
