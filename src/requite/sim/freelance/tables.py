"""Check the tables once faults have ended: I9 and I10."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from requite.sim.freelance.cast import FlpCast
from requite.sim.freelance.party import Party
from requite.sim.kernel.checkers import leftovers
from requite.sim.kernel.checkers.leftovers import dead_ends, sizes

_IDLE: Final = {
    "client": ("held", "sent", "blocked"),
    "server": ("waiting", "running", "abandoned", "unread"),
}


# --- the tables equal the live peers (I10) --------------------------------------------------------
def not_settled(cast: FlpCast) -> list[str]:
    """Return parties that are not alive, or not connected as the knobs say."""
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
    yield from dead_ends(party)
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
    """Yield clients that do not count every connected server as live."""
    for client in cast.clients:
        state: Any = client.hub.snapshot()
        if state.live != state.connections:
            yield f"{client.name} counts {state.live} of {state.connections} servers as live"


# --- bounded memory (I9) --------------------------------------------------------------------------
def left_after_calls(cast: FlpCast) -> list[str]:
    """Return what any party still holds when no calls are left."""
    return [*leftovers.held(cast.parties, _IDLE)]


def left_after_drain(party: Party) -> Iterator[str]:
    """Yield the tables in which a drained party differs from an unused one."""
    return leftovers.left_after_drain(party, party.hub.names, _sizes)


def _sizes(engine: object) -> dict[str, int]:
    """Count all entries except the servers of the URL, which never change."""
    return {path: n for path, n in sizes(engine).items() if path not in ("._line", "._line[]")}
