"""I9 and I10 for parties (`requite.sim.party`): what is there that should not be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from requite.engine import Drain, PeerLost
from requite.sim.checkers.tables import difference, sizes

_HOST_TABLES: Final = ("links", "_dirty", "_feeder", "_strangers", "_closing")

Sizes = Callable[[object], Mapping[str, int]]


def held(parties: Iterable[Any], idle: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Say which counts are not 0 that have to be, by kind of party, when nothing is asked."""
    for party in parties:
        if not party.alive:
            continue
        state = party.hub.snapshot()
        for name in idle[party.kind]:
            if count := getattr(state, name):
                yield f"nothing is asked any more, but {party.name} has {count} {name}"


def dead_ends(party: Any) -> Iterator[str]:
    """Say which connections have nobody at the other end."""
    for stream in party.streams:
        if not (stream.is_open and stream.other.is_open) or stream.pipe.broken:
            gone = stream.other.process.name
            yield f"{party.name} has a connection whose other end, at {gone}, is gone"


def left_after_drain(party: Any, peers: Iterable[Any], size: Sizes = sizes) -> Iterator[str]:
    """Say in what a party that has drained differs from one that never did anything; `peers` are
    connected to it."""
    engine, now = party.hub.engine, party.clock()
    for peer in list(peers):  # its host has not told it of them any more
        engine.handle((PeerLost(peer),), now)
    fresh = party.make_engine()
    fresh.handle((Drain(),), now)
    for what in difference(size(engine), size(fresh)):
        yield f"{party.name} has drained, but {what}"


def left_after_all(party: Any, size: Sizes = sizes) -> Iterator[str]:
    """Say in what a party that everybody has left differs from a new one."""
    for what in difference(size(party.hub.engine), size(party.make_engine())):
        yield f"everybody has left {party.name}, but {what}"
    for table in _HOST_TABLES:
        if getattr(party.host, table):
            yield f"everybody has left {party.name}, but its host's {table} has entries"
