"""I9 and I10: after a run, the tables of engines and hosts match the live peers and nothing else.

These checks read engines and hosts at chosen moments, instead of following events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from requite.core.timers import Timers
from requite.engine import Drain
from requite.protocols.majordomo.broker import MajordomoBroker
from requite.sim.kernel.checkers.leftovers import difference, sizes

if TYPE_CHECKING:
    from requite.sim.majordomo.cast import MajordomoCast
    from requite.sim.majordomo.clients import ClientProcess
    from requite.sim.majordomo.roles import Broker, Dialler
    from requite.sim.majordomo.workers import WorkerProcess

_HEAP_FLOOR: Final = 64


# --- the tables equal the live peers (I10) --------------------------------------------------------
def not_settled(cast: MajordomoCast) -> list[str]:
    """Return where the processes disagree about live peers and connections."""
    problems = [f"{process.name} is not alive" for process in cast.honest if not process.alive]
    problems += one_sided_connections(cast)
    if not problems:
        problems += _workers_unlike(cast)
        problems += _parties_unlike(cast.broker)
    return problems


def one_sided_connections(cast: MajordomoCast) -> list[str]:
    return [
        f"{process.name} has a connection with a closed other end, at {stream.other.process.name}"
        for process in cast.honest
        for stream in process.streams
        if not (stream.is_open and stream.other.is_open) or stream.pipe.broken
    ]


def _workers_unlike(cast: MajordomoCast) -> list[str]:
    broker = cast.broker
    registered = Counter(
        broker.watched.names[bytes.fromhex(worker.worker)]
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
    engine = _inner(broker)
    if isinstance(engine, MajordomoBroker):
        counts["parties"] = len(engine.parties)
    if len(set(counts.values())) == 1:
        return []
    return [f"the broker's tables differ: {counts}"]


# --- bounded memory (I9) --------------------------------------------------------------------------
def left_after_calls(cast: MajordomoCast) -> Iterator[str]:
    """Yield what clients and workers still hold when no calls are left."""
    for client in cast.clients:
        yield from _left_at_client(client)
    for worker in cast.workers:
        yield from _left_at_worker(worker)


def _left_at_client(client: ClientProcess) -> Iterator[str]:
    state = client.engine.snapshot()
    for name in ("held", "sent", "resting", "slots_taken"):
        if getattr(state, name):
            yield f"{client.name} has no calls, but {getattr(state, name)} {name}"


def _left_at_worker(worker: WorkerProcess) -> Iterator[str]:
    state = worker.engine.snapshot()
    for name in ("running", "abandoned"):
        if getattr(state, name):
            yield f"{worker.name} has no requests, but {getattr(state, name)} jobs {name}"


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


def left_after_drain(process: Dialler) -> Iterator[str]:
    """Yield the tables in which a drained client or worker differs from an unused one."""
    fresh = process.make_engine()
    fresh.handle((Drain(),), 0.0)
    for what in difference(sizes(process.watched.engine), sizes(fresh)):
        yield f"{process.name} has drained, but {what}"


def left_after_all(broker: Broker, fresh: Mapping[str, int]) -> Iterator[str]:
    """Yield the tables in which a broker without peers differs from a new one (sizes: `fresh`)."""
    engine = _inner(broker)
    yield from difference(sizes(engine), fresh)
    for table in ("links", "_dirty", "_feeder", "_pending_links", "_closing"):
        if getattr(broker.host, table):
            yield f"all peers have left, but the host's {table} has entries"
    if len(broker.identities):
        yield f"all peers have left, but {len(broker.identities)} identities are taken"
    yield from _stale_timers(engine)


def _stale_timers(engine: object) -> Iterator[str]:
    timers = getattr(engine, "_timers", None)
    if isinstance(timers, Timers) and len(timers._heap) > _HEAP_FLOOR + 2 * len(timers):
        yield f"the heap of timers has {len(timers._heap)} entries; only {len(timers)} are armed"


def _inner(broker: Broker) -> object:
    return broker.watched.engine
