"""I8 (`requite.sim.kernel.checkers.turns`): the broker serves clients and workers in turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from requite.sim.kernel.checkers.turns import SENTENCE, Turns
from requite.sim.kernel.history import Checker, History, Trace

Facts = Mapping[str, Any]


@dataclass(slots=True)
class _Worker:
    """One worker. `places` maps each dispatch it holds to False if the broker took it back."""

    name: str
    turns: Turns[bytes]
    capacity: int
    places: dict[int, bool] = field(default_factory=dict)
    blocked: bool = False

    @property
    def has_room(self) -> bool:
        """Whether the broker may dispatch a request to it."""
        return not self.blocked and len(self.places) < self.capacity


class FairToWorkers(Checker):
    """The broker serves workers with free capacity in turn.

    Dispatches and replies show which places are taken. A place whose request was taken back stays
    taken until the worker sends FINAL, which records no event: until the next dispatch, the worker
    counts as full.
    """

    invariant = "I8"
    sentence = SENTENCE

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._turns: dict[bytes, Turns[bytes]] = {}  # by service
        self._workers: dict[bytes, _Worker] = {}  # by connection
        self._dispatches: dict[int, bytes] = {}  # the connection, by dispatch id

    def broker_started(self, _broker: Any) -> None:
        """Reset: a new broker knows no peers."""
        self._turns.clear()
        self._workers.clear()
        self._dispatches.clear()

    def worker_joined(self, facts: Facts, name: str) -> None:
        """Record a worker with all its places free."""
        turns = self._turns.setdefault(facts["service"], Turns[bytes]())
        self._workers[facts["worker"]] = _Worker(name, turns, facts["capacity"])
        self._look(facts["worker"])

    def worker_lost(self, facts: Facts, _name: str) -> None:
        """Forget a worker."""
        worker = self._workers.pop(facts["worker"])
        worker.turns.is_there(facts["worker"], False)

    def worker_drained(self, facts: Facts, _name: str) -> None:
        """Record that a worker accepts no more requests."""
        self._workers[facts["worker"]].capacity = 0
        self._look(facts["worker"])

    def worker_blocked(self, identity: bytes) -> None:
        """Record back-pressure from a worker."""
        if identity in self._workers:
            self._workers[identity].blocked = True
            self._look(identity)

    def worker_writable(self, identity: bytes) -> None:
        """Record that a worker reads again."""
        if identity in self._workers:
            self._workers[identity].blocked = False
            self._look(identity)

    def dispatched(self, _trace: Trace | None, facts: Facts) -> None:
        """Check that a turn passes no other peer over."""
        identity = facts["worker"]
        worker = self._workers[identity]
        passed_over = worker.turns.serve(identity)
        if passed_over is not None:
            waits = self._workers[passed_over].name
            self.violate(f"{worker.name} has two turns while {waits} waits without one")
        if len(worker.places) >= worker.capacity:
            self._drop_one_taken_away(worker)
        worker.places[facts["dispatch_id"]] = True
        self._dispatches[facts["dispatch_id"]] = identity
        worker.turns.is_there(identity, False)  # moves it to the end of the queue
        self._look(identity)

    def answered(self, _trace: Trace | None, facts: Facts) -> None:
        """Free a place, or mark it if the broker took the request back."""
        by_worker = facts["status"] in ("OK", "FAILED") and not facts["withdrawn"]
        self._place(facts, frees=by_worker)

    def withdrawn(self, _trace: Trace | None, facts: Facts) -> None:
        """Mark a place whose request was cancelled."""
        self._place(facts, frees=False)

    def redelivered(self, _trace: Trace | None, facts: Facts) -> None:
        """Mark a place whose lease has expired."""
        self._place(facts, frees=False)

    def _place(self, facts: Facts, *, frees: bool) -> None:
        """Find the place by its dispatch id: the event may no longer name the worker."""
        dispatch_id = facts["dispatch_id"]
        identity = self._dispatches.get(dispatch_id)
        worker = None if identity is None else self._workers.get(identity)
        if identity is None or worker is None or dispatch_id not in worker.places:
            return
        if frees:
            del worker.places[dispatch_id]
            self._look(identity)
        else:
            worker.places[dispatch_id] = False
            worker.turns.is_there(identity, False)  # a lost lease moves it to the end of the queue
            self._look(identity)

    def _drop_one_taken_away(self, worker: _Worker) -> None:
        for dispatch_id, held in worker.places.items():
            if not held:
                del worker.places[dispatch_id]
                return
        self.violate(f"{worker.name} is given more requests than its capacity, {worker.capacity}")

    def _look(self, identity: bytes) -> None:
        worker = self._workers[identity]
        worker.turns.is_there(identity, worker.has_room)


class FairToClients(Checker):
    """The broker serves clients with queued requests in turn (18/MDP, "Architecture").

    A request that returns from a lost worker goes first, and does not count as a turn. Neither does
    one that was put off, because it has too little time left: it goes last.
    """

    invariant = "I8"
    sentence = SENTENCE

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._turns: dict[bytes, Turns[bytes]] = {}  # by service
        # Queued requests by service and client; True for those that have had their turn.
        self._lines: dict[tuple[bytes, bytes], dict[int, bool]] = {}

    def broker_started(self, _broker: Any) -> None:
        """Reset."""
        self._turns.clear()
        self._lines.clear()

    def queued(self, _trace: Trace | None, facts: Facts) -> None:
        """Record a queued request."""
        service, client = facts["service"], facts["client"]
        line = self._lines.setdefault((service, client), {})
        line[facts["request_id"]] = facts["attempt"] > 0
        self._look(service, client)

    def put_off(self, _trace: Trace | None, facts: Facts) -> None:
        """Record that a request has given its turn to the next one of its client."""
        service, client = facts["service"], facts["client"]
        self._lines[service, client][facts["request_id"]] = True
        self._look(service, client)

    def dispatched(self, _trace: Trace | None, facts: Facts) -> None:
        """Check that a turn passes no other peer over."""
        service, client = facts["service"], facts["client"]
        has_been_served = self._lines.get((service, client), {}).get(facts["request_id"])
        self._leave(facts)
        if has_been_served is not False:
            return  # it was never queued, or has had its turn before
        passed_over = self._turns[service].serve(client)
        self._turns[service].is_there(client, False)  # moves it to the end of the queue
        self._look(service, client)
        if passed_over is not None:
            self.violate(
                f"client {client.hex()} has two turns at {service!r} while client "
                f"{passed_over.hex()} waits without one"
            )

    def answered(self, _trace: Trace | None, facts: Facts) -> None:
        """Remove a request that has ended from its queue."""
        self._leave(facts)

    def withdrawn(self, _trace: Trace | None, facts: Facts) -> None:
        """Remove a withdrawn request from its queue."""
        self._leave(facts)

    def _leave(self, facts: Facts) -> None:
        key = facts["service"], facts["client"]
        if key in self._lines:
            self._lines[key].pop(facts["request_id"], None)
            self._look(*key)

    def _look(self, service: bytes, client: bytes) -> None:
        """Update whether a client waits for a turn: it has a request that had none."""
        line = self._lines.get((service, client), {})
        if not line:
            self._lines.pop((service, client), None)
        waits = not all(line.values())
        self._turns.setdefault(service, Turns[bytes]()).is_there(client, waits)
