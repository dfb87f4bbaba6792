"""What tables must hold when nothing goes wrong any more: I9 and I10."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from requite.engine import Drain, PeerLost
from requite.sim.checkers.tables import difference, sizes
from requite.sim.scalability.cast import SpCast
from requite.sim.scalability.party import Party
from requite.sim.scalability.topology import BACK, FRONT, Edge

_IDLE = {
    "client": ("held", "sent", "blocked"),
    "device": ("held", "front_blocked", "front_unread", "back_blocked"),
    "worker": ("waiting", "running", "abandoned", "blocked", "unread"),
}
_HOST_TABLES = ("links", "_dirty", "_backlog", "_greeting", "_closing")


# --- the tables equal the live peers (I10) --------------------------------------------------------
def not_settled(cast: SpCast) -> list[str]:
    """Say who is not connected as the topology wants it."""
    problems = [f"{party.name} is not alive" for party in cast.parties if not party.alive]
    if not problems:
        for party in cast.parties:
            problems += _unlike_topology(party, cast.edges)
    return problems


def _unlike_topology(party: Party, edges: tuple[Edge, ...]) -> Iterator[str]:
    for stream in party.streams:
        if not (stream.is_open and stream.other.is_open) or stream.pipe.broken:
            gone = stream.other.process.name
            yield f"{party.name} has a connection whose other end, at {gone}, is gone"
    hub = party.hub
    expected = Counter((BACK, edge.lower) for edge in edges if edge.upper == party.name)
    expected += Counter((FRONT, edge.upper) for edge in edges if edge.lower == party.name)
    found = Counter((place.side, hub.names[peer]) for peer, place in hub.places.items())
    if found != expected:
        yield f"{party.name} has channels to {dict(found)}, not to {dict(expected)}"
    counts = {
        "channels": len(hub.places),
        "connections": len(party.streams),
        "links": len(party.host.links),
        "the engine": _channels(party),
    }
    if len(set(counts.values())) > 1:
        yield f"the tables of {party.name} differ: {counts}"


def _channels(party: Party) -> int:
    state: Any = party.hub.snapshot()
    count: int = state.front + state.back if party.kind == "device" else state.channels
    return count


# --- bounded memory (I9) --------------------------------------------------------------------------
def left_after_calls(cast: SpCast) -> Iterator[str]:
    """Say what anybody still holds when nothing is asked any more."""
    for party in cast.parties:
        if party.alive:
            yield from _left_at(party)


def _left_at(party: Party) -> Iterator[str]:
    state = party.hub.snapshot()
    for name in _IDLE[party.kind]:
        if getattr(state, name):
            yield f"nothing is asked any more, but {party.name} has {getattr(state, name)} {name}"


def left_after_drain(party: Party) -> Iterator[str]:
    """Say in what a party that has drained differs from one that never did anything."""
    engine, now = party.hub.engine, party.clock()
    for peer in list(party.hub.places):  # its host has not told it of them any more
        engine.handle(PeerLost(peer), now)
    fresh = party.make_engine()
    fresh.handle(Drain(), now)
    for what in difference(sizes(engine), sizes(fresh)):
        yield f"{party.name} has drained, but {what}"


def left_after_all(party: Party) -> Iterator[str]:
    """Say in what a worker that everybody has left differs from a new one."""
    for what in difference(sizes(party.hub.engine), sizes(party.make_engine())):
        yield f"everybody has left {party.name}, but {what}"
    for table in _HOST_TABLES:
        if getattr(party.host, table):
            yield f"everybody has left {party.name}, but its host's {table} has entries"
