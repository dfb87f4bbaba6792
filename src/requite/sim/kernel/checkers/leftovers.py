"""I9 and I10 for parties (`requite.sim.kernel.party`): report state that should be gone."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import GetSetDescriptorType
from typing import Any, Final

from requite.engine import Drain, PeerLost
from requite.shell.link import Link

# Caches with a bound, the heap of `Timers` (it keeps stale entries), counts by reason, and what a
# broker knows of the users of its access file.
_NOT_TABLES: Final = frozenset(
    {"_heap", "_names", "_dropped", "dropped", "denied", "_origins", "_origin_owners", "usages"}
)
_HOST_TABLES: Final = (
    "links",
    "_outbox",
    "_feeder",
    "_pending_links",
    "_closing",
    "_admission",
    "_limiter",
    "_fair_queue",
)

Sizes = Callable[[object], Mapping[str, int]]


# --- the size of everything -----------------------------------------------------------------------
def sizes(root: object) -> Counter[str]:
    """Count the entries of every container that an engine reaches, by its path.

    A leak shows whatever its table is called. Connections belong to the host and are skipped.
    """
    counted: Counter[str] = Counter()
    waiting: deque[tuple[str, object]] = deque([("", root)])
    seen: dict[int, object] = {}  # kept, so that no other object gets the same `id`
    while waiting:
        path, thing = waiting.popleft()
        if id(thing) in seen or isinstance(thing, Link):
            continue
        seen[id(thing)] = thing
        if isinstance(thing, dict | list | deque | set | tuple):
            counted[path] += len(thing)
            waiting.extend((f"{path}[]", item) for item in _items(thing))
        if any(kind.__module__.startswith("requite.") for kind in type(thing).__mro__):
            waiting.extend((f"{path}.{name}", value) for name, value in _attributes(thing))
    return +counted


def _items(container: Any) -> list[Any]:
    return [*container, *container.values()] if isinstance(container, dict) else list(container)


def _attributes(thing: object) -> Iterator[tuple[str, object]]:
    names = dict.fromkeys(getattr(thing, "__dict__", ()))
    for kind in type(thing).__mro__:
        names.update(dict.fromkeys(getattr(kind, "__slots__", ())))
        # A compiled class has neither: its attributes are descriptors.
        names.update(
            dict.fromkeys(
                name
                for name, each in vars(kind).items()
                if isinstance(each, GetSetDescriptorType) and not name.startswith("__")
            )
        )
    for name in names:
        if name not in _NOT_TABLES and hasattr(thing, name):
            yield name, getattr(thing, name)


def difference(found: Mapping[str, int], expected: Mapping[str, int]) -> list[str]:
    """Return a sentence for each table with more or fewer entries than expected."""
    return [
        f"{path or 'it'} has {found.get(path, 0)} entries, not {expected.get(path, 0)}"
        for path in sorted({*found, *expected})
        if found.get(path, 0) != expected.get(path, 0)
    ]


# --- parties -------------------------------------------------------------------------------------
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
