"""Check what the engines' tables hold once faults have ended (I9, I10)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from requite.sim.amqp.cast import AmqpCast
from requite.sim.amqp.knobs import AmqpKnobs
from requite.sim.amqp.party import AmqpParty
from requite.sim.kernel.checkers import leftovers
from requite.sim.kernel.checkers.leftovers import dead_ends, sizes

_IDLE: Final = {
    "client": ("held", "sent", "unconfirmed"),
    "worker": ("running", "abandoned", "unconfirmed"),
}
# Caches with a limit: encoded methods, and remembered cancels.
_BOUNDED: Final = ("._publishings", "._cancels", "._closed")


# --- the tables equal the live peers (I10) --------------------------------------------------------
def not_settled(cast: AmqpCast, knobs: AmqpKnobs) -> list[str]:
    """Return where processes are not alive, not connected, or not consuming."""
    problems = [f"{party.name} is not alive" for party in cast.parties if not party.alive]
    if problems:
        return problems
    for party in cast.parties:
        problems += dead_ends(party)
    for client in cast.clients:  # a client without a channel opens one for its next call
        if not client.hub.names:
            problems.append(f"{client.name} is not connected")
    for worker in cast.workers:
        if not worker.hub.snapshot().is_consuming:
            problems.append(f"{worker.name} does not consume")
    return [*problems, *_unlike_rabbit(cast, knobs)]


def _unlike_rabbit(cast: AmqpCast, knobs: AmqpKnobs) -> Iterator[str]:
    sessions = cast.rabbit.hub.snapshot()
    expected = len(cast.clients) + len(cast.workers)
    if sessions != expected:
        yield f"RabbitMQ has {sessions} connections, not {expected}"
    for service in knobs.services:
        queue = cast.store.queues.get(cast.store.queue_of(service))
        workers = sum(worker.spec.service == service for worker in cast.workers)
        found = 0 if queue is None else queue.active_consumers
        if found != workers:
            yield f"{found} consumers take from {service}, not {workers}"


# --- bounded memory (I9), and no message left in a queue ------------------------------------------
def left_after_calls(cast: AmqpCast) -> list[str]:
    """Return what any process or queue still holds when no calls are left."""
    engines = [*cast.clients, *cast.workers]
    return [*leftovers.held(engines, _IDLE), *_left_in_queues(cast)]


def _left_in_queues(cast: AmqpCast) -> Iterator[str]:
    for name, queue in cast.store.queues.items():
        if queue.ready or queue.unacknowledged:
            counts = f"{len(queue.ready)} requests, and {queue.unacknowledged} unacknowledged"
            yield f"nothing is asked any more, but {name} holds {counts}"


def left_after_drain(party: AmqpParty) -> Iterator[str]:
    """Return the tables in which a drained process differs from an unused one."""
    return leftovers.left_after_drain(party, party.hub.names, _sizes)


def _sizes(engine: object) -> dict[str, Any]:
    found = sizes(engine)
    return {path: n for path, n in found.items() if not path.startswith(_BOUNDED)}
