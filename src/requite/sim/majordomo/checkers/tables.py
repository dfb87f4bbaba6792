"""I9 and I10: after a run, the tables of engines and hosts match the live peers and nothing else.

These checks read engines and hosts at chosen moments, instead of following events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from requite.core.timers import Timers
from requite.protocols.majordomo.broker import MajordomoBroker
from requite.sim.kernel.checkers.leftovers import left_after_all

if TYPE_CHECKING:
    from requite.sim.majordomo.cast import MajordomoCast
    from requite.sim.majordomo.parties import Broker

_HEAP_FLOOR: Final = 64


# --- the tables equal the live peers (I10) --------------------------------------------------------
def disagreements(cast: MajordomoCast) -> list[str]:
    """Return where the broker's tables differ from the live peers and connections."""
    return _workers_unlike(cast) + _parties_unlike(cast.broker)


def _workers_unlike(cast: MajordomoCast) -> list[str]:
    broker = cast.broker
    registered = Counter(
        broker.hub.names[bytes.fromhex(worker.worker)]
        for worker in broker.engine.snapshot().workers
    )
    expected = Counter(worker.name for worker in cast.workers)
    if registered == expected:
        return []
    return [f"the broker has the workers {dict(registered)}; those alive are {dict(expected)}"]


def _parties_unlike(broker: Broker) -> list[str]:
    counts = {
        "connections": len(broker.streams),
        "links": len(broker.host.links),
        "identities": len(broker.identities),
    }
    engine = broker.hub.engine
    if isinstance(engine, MajordomoBroker):
        counts["parties"] = len(engine.parties)
    if len(set(counts.values())) == 1:
        return []
    return [f"the broker's tables differ: {counts}"]


# --- bounded memory (I9) --------------------------------------------------------------------------
def left_after_clients(broker: Broker) -> Iterator[str]:
    """Yield what the broker still holds when all clients have left."""
    state = broker.engine.snapshot()
    for name in ("clients", "newcomers", "pending"):
        if getattr(state, name):
            yield f"all clients have left, but the broker has {getattr(state, name)} {name}"
    for service in state.services:
        if service.queued or service.in_progress:
            yield f"{service.service} has {service.queued} queued, {service.in_progress} in flight"
    for worker in state.workers:
        if worker.holding:
            yield f"{worker.worker} ({worker.service}) still holds {worker.holding} requests"
    bare = sum(not service.workers for service in state.services)
    if state.timers != len(state.workers) + bare:
        yield (
            f"{state.timers} timers are armed, for {len(state.workers)} workers and {bare} "
            "services without workers"
        )


def left_at_broker(broker: Broker) -> Iterator[str]:
    """Yield the tables in which a broker without peers differs from a new one."""
    yield from left_after_all(broker)
    if len(broker.identities):
        yield f"all peers have left, but {len(broker.identities)} identities are taken"
    timers = getattr(broker.hub.engine, "_timers", None)
    if isinstance(timers, Timers) and len(timers._heap) > _HEAP_FLOOR + 2 * len(timers):
        yield f"the heap of timers has {len(timers._heap)} entries; only {len(timers)} are armed"
