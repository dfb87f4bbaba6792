"""I9 and I10 for parties (`requite.sim.party`): report state that should be gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from requite.engine import Drain, PeerLost
from requite.sim.checkers.tables import difference, sizes

_HOST_TABLES: Final = ("links", "_dirty", "_feeder", "_pending_links", "_closing")

Sizes = Callable[[object], Mapping[str, int]]


def held(parties: Iterable[Any], idle: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yield the snapshot counts that must be 0 without calls but are not; `idle` names them by kind
    of party."""
    for party in parties:
        if not party.alive:
            continue
        state = party.hub.snapshot()
        for name in idle[party.kind]:
            if count := getattr(state, name):
                yield f"no calls are left, but {party.name} has {count} {name}"


def dead_ends(party: Any) -> Iterator[str]:
    """Yield a party's connections whose other end is closed."""
    for stream in party.streams:
        if not (stream.is_open and stream.other.is_open) or stream.pipe.broken:
            gone = stream.other.process.name
            yield f"{party.name} has a connection whose other end, at {gone}, is closed"


def left_after_drain(party: Any, peers: Iterable[Any], size: Sizes = sizes) -> Iterator[str]:
    """Yield the tables in which a drained party differs from an unused one; `peers` are connected
    to it."""
    engine, now = party.hub.engine, party.clock()
    for peer in list(peers):  # the host does not report them as lost after a drain
        engine.handle((PeerLost(peer),), now)
    fresh = party.make_engine()
    fresh.handle((Drain(),), now)
    for what in difference(size(engine), size(fresh)):
        yield f"{party.name} has drained, but {what}"


def left_after_all(party: Any, size: Sizes = sizes) -> Iterator[str]:
    """Yield the tables in which a party without peers differs from a new one."""
    for what in difference(size(party.hub.engine), size(party.make_engine())):
        yield f"all peers have left {party.name}, but {what}"
    for table in _HOST_TABLES:
        if getattr(party.host, table):
            yield f"all peers have left {party.name}, but its host's {table} has entries"
