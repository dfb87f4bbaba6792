"""Check the tables once faults have ended: I9 and I10."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from requite.sim.kernel.checkers import leftovers
from requite.sim.kernel.checkers.leftovers import dead_ends
from requite.sim.scalability.cast import SpCast
from requite.sim.scalability.party import Party
from requite.sim.scalability.topology import BACK, FRONT, Edge

_IDLE = {
    "client": ("held", "sent", "blocked"),
    "device": ("held", "front_blocked", "front_unread", "back_blocked"),
    "worker": ("waiting", "running", "abandoned", "blocked", "unread"),
}


# --- the tables equal the live peers (I10) --------------------------------------------------------
def not_settled(cast: SpCast) -> list[str]:
    """Return parties that are not connected as the topology says."""
    problems = [f"{party.name} is not alive" for party in cast.parties if not party.alive]
    if not problems:
        for party in cast.parties:
            problems += _unlike_topology(party, cast.edges)
    return problems


def _unlike_topology(party: Party, edges: tuple[Edge, ...]) -> Iterator[str]:
    yield from dead_ends(party)
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
def left_after_calls(cast: SpCast) -> list[str]:
    """Return what any party still holds when no calls are left."""
    return [*leftovers.held(cast.parties, _IDLE)]
