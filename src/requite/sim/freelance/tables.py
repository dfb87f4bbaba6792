"""What tables must hold when nothing goes wrong any more: I9 and I10."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from requite.engine import Drain, PeerLost
from requite.sim.checkers.tables import difference, sizes
from requite.sim.freelance.cast import FlpCast
from requite.sim.freelance.party import Party

_IDLE: Final = {
    "client": ("held", "sent", "blocked"),
    "server": ("waiting", "running", "abandoned", "unread"),
}
_HOST_TABLES: Final = ("links", "_dirty", "_backlog", "_greeting", "_closing")


# --- the tables equal the live peers (I10) --------------------------------------------------------
def not_settled(cast: FlpCast) -> list[str]:
    """Say who is not alive, or not connected as the knobs want it."""
    problems = [f"{party.name} is not alive" for party in cast.parties if not party.alive]
    if not problems:
        for party in cast.parties:
            problems += _unlike_knobs(party, _expected(party, cast))
        problems += _not_live(cast)
    return problems


def _expected(party: Party, cast: FlpCast) -> Counter[str]:
    pairs = [(client, server) for client in cast.clients for server in client.spec.servers]
    if party.kind == "client":
        return Counter(s for c, s in pairs if c is party for _ in range(c.spec.lanes))
    return Counter(c.name for c, s in pairs if s == party.name for _ in range(c.spec.lanes))


def _unlike_knobs(party: Party, expected: Counter[str]) -> Iterator[str]:
    for stream in party.streams:
        if not (stream.is_open and stream.other.is_open) or stream.pipe.broken:
            gone = stream.other.process.name
            yield f"{party.name} has a connection whose other end, at {gone}, is gone"
    found = Counter(party.hub.names.values())
    if found != expected:
        yield f"{party.name} has connections to {dict(found)}, not to {dict(expected)}"
    state: Any = party.hub.snapshot()
    counts = {
        "connections": len(party.streams),
        "links": len(party.host.links),
        "the engine": state.connections if party.kind == "client" else state.clients,
    }
    if set(counts.values()) != {expected.total()}:
        yield f"the tables of {party.name} differ: {counts}"


def _not_live(cast: FlpCast) -> Iterator[str]:
    """A server that is there and answers pings is live to everybody."""
    for client in cast.clients:
        state: Any = client.hub.snapshot()
        if state.live != state.connections:
            yield f"{client.name} counts {state.live} of {state.connections} servers as live"


# --- bounded memory (I9) --------------------------------------------------------------------------
def left_after_calls(cast: FlpCast) -> Iterator[str]:
    """Say what anybody still holds when nothing is asked any more."""
    for party in cast.parties:
        if party.alive:
            state = party.hub.snapshot()
            for name in _IDLE[party.kind]:
                if left := getattr(state, name):
                    yield f"nothing is asked any more, but {party.name} has {left} {name}"


def left_after_drain(party: Party) -> Iterator[str]:
    """Say in what a party that has drained differs from one that never did anything."""
    engine, now = party.hub.engine, party.clock()
    for peer in list(party.hub.names):  # its host has not told it of them any more
        engine.handle(PeerLost(peer), now)
    fresh = party.make_engine()
    fresh.handle(Drain(), now)
    for what in difference(_sizes(engine), _sizes(fresh)):
        yield f"{party.name} has drained, but {what}"


def left_after_all(party: Party) -> Iterator[str]:
    """Say in what a server that everybody has left differs from a new one."""
    for what in difference(_sizes(party.hub.engine), _sizes(party.make_engine())):
        yield f"everybody has left {party.name}, but {what}"
    for table in _HOST_TABLES:
        if getattr(party.host, table):
            yield f"everybody has left {party.name}, but its host's {table} has entries"


def _sizes(engine: object) -> dict[str, int]:
    """Count everything but the places of servers, which are as many as the URL names."""
    return {
        path: n for path, n in sizes(engine).items() if not path.startswith(("._line", "._idle"))
    }
