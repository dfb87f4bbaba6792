"""Broken MDP brokers: each is a real engine with one rule removed.

If the rule belongs to a part of the engine, that part gets another class
(`engine._dispatcher.__class__ = ...`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from requite.engine import Input, Received
from requite.protocols.majordomo.broker import MajordomoBroker
from requite.protocols.majordomo.clients import Clients
from requite.protocols.majordomo.directory import Directory
from requite.protocols.majordomo.dispatch import Dispatcher
from requite.protocols.majordomo.parties import Client, Service
from requite.protocols.majordomo.queue import ServiceQueue
from requite.protocols.majordomo.workforce import Workforce
from requite.shell.host import Host
from requite.shell.link import LinkLimits


def _with(kind: type[Dispatcher | Clients]) -> type[MajordomoBroker]:
    """Return a broker with this dispatcher, or these clients."""

    class Broken(MajordomoBroker):
        def __init__(self, policy: Any = None, **given: Any) -> None:
            super().__init__(policy, **given)
            part: Any = self._dispatcher if issubclass(kind, Dispatcher) else self._clients
            part.__class__ = kind

    Broken.__name__ = kind.__name__.strip("_")
    return Broken


class _RedeliversFromTheLiving(Dispatcher):
    def _dispatch(self, pending: Any, worker: Any, now: float) -> None:
        super()._dispatch(pending, worker, now)
        if worker.lease_s:
            self._timers.set((worker, pending.dispatch_id), now + worker.lease_s / 4)


class _HandsOutTwice(Dispatcher):
    def _dispatch(self, pending: Any, worker: Any, now: float) -> None:
        super()._dispatch(pending, worker, now)
        waiting = pending.service.waiting
        if waiting and pending.attempts < self._policy.attempts_max:
            super()._dispatch(pending, waiting.popitem(last=False)[0], now)


class _HearsFormerOwners(Dispatcher):
    """Accepts the reply of a worker from which the request was withdrawn."""

    def _withdraw(self, pending: Any, now: float) -> None:
        worker, dispatch_id = pending.worker, pending.dispatch_id
        super()._withdraw(pending, now)
        if worker is not None:
            worker.holds[dispatch_id] = pending

    def final(self, worker: Any, dispatch_id: int, *args: Any) -> None:
        pending = worker.holds.get(dispatch_id)
        if pending is not None and pending.request_id not in pending.client.pending:
            worker.holds[dispatch_id] = None
        super().final(worker, dispatch_id, *args)


class _NeverPoisoned(Dispatcher):
    def redeliver(self, pending: Any, reason: str, now: float) -> None:
        attempts = pending.attempts
        pending.attempts = min(attempts, self._policy.attempts_max - 1)
        super().redeliver(pending, reason, now)
        pending.attempts = attempts


class _PoisonedAtOnce(Dispatcher):
    def redeliver(self, pending: Any, reason: str, now: float) -> None:
        pending.attempts += self._policy.attempts_max
        super().redeliver(pending, reason, now)


class _RepeatsAnIndex(Dispatcher):
    def partial(self, pending: Any, body: Any, now: float) -> None:
        super().partial(pending, body, now)
        if pending.partials == 3:
            pending.partials = 2


class _NeverExpires(Dispatcher):
    def accept(self, pending: Any, now: float) -> None:
        deadline, pending.deadline = pending.deadline, float("inf")
        super().accept(pending, now)
        pending.deadline = max(deadline, now + 1000)


class _IgnoresProgress(Dispatcher):
    """Withdraws a request although its worker renews the lease."""

    def renew_lease(self, *args: Any) -> None:
        """Renew nothing."""


class _TellsNoWorker(Dispatcher):
    """Withdraws a request without cancelling it at the worker."""

    def _withdraw(self, pending: Any, now: float) -> None:
        before = len(self._out)
        super()._withdraw(pending, now)
        del self._out[before:]


class _SettlesHalf(Dispatcher):
    """Keeps the entry of an expired request in its client's table."""

    def _end(self, pending: Any, status: Any, *args: Any, **given: Any) -> None:
        super()._end(pending, status, *args, **given)
        if status.name == "EXPIRED":
            self.kept = [*getattr(self, "kept", ()), pending.request_id]


class _WorksForThoseWhoLeft(Dispatcher):
    def forget(self, client: Any, now: float) -> None:
        """Forget nothing."""


RedeliversFromTheLiving = _with(_RedeliversFromTheLiving)
HandsOutTwice = _with(_HandsOutTwice)
HearsFormerOwners = _with(_HearsFormerOwners)
NeverPoisoned = _with(_NeverPoisoned)
PoisonedAtOnce = _with(_PoisonedAtOnce)
RepeatsAnIndex = _with(_RepeatsAnIndex)
NeverExpires = _with(_NeverExpires)
SettlesHalf = _with(_SettlesHalf)
IgnoresProgress = _with(_IgnoresProgress)
TellsNoWorker = _with(_TellsNoWorker)
WorksForThoseWhoLeft = _with(_WorksForThoseWhoLeft)


class _DisobeysCancel(Clients):
    def _cancel(self, client: Any, command: Any, now: float) -> None:
        """Ignore the cancel."""


DisobeysCancel = _with(_DisobeysCancel)


class _LastComeFirstServed(OrderedDict[Any, None]):
    def popitem(self, last: bool = True) -> Any:
        return super().popitem(last=not last)


class _OneClientAfterTheOther(ServiceQueue):
    """Serves one client until its queue is empty."""

    __slots__ = ()

    def pop(self) -> Any:
        pending = super().pop()
        if pending.client in self._turns:
            self._turns.move_to_end(pending.client, last=False)
        return pending


def _with_services(prepare: Any) -> type[MajordomoBroker]:
    class Prepared(Directory):
        def add(self, name: bytes, namer: Client | None, now: float) -> Service:
            service = super().add(name, namer, now)
            prepare(service)
            return service

    class Broken(MajordomoBroker):
        def __init__(self, policy: Any = None, **given: Any) -> None:
            super().__init__(policy, **given)
            self._directory.__class__ = Prepared

    Broken.__name__ = prepare.__name__.strip("_")
    return Broken


def _reverse_workers(service: Service) -> None:
    if type(service.waiting) is OrderedDict:
        service.waiting = _LastComeFirstServed(service.waiting)


def _serve_one_client(service: Service) -> None:
    service.queue.__class__ = _OneClientAfterTheOther


UnfairToWorkers = _with_services(_reverse_workers)
UnfairToClients = _with_services(_serve_one_client)


class _KeepsServices(Directory):
    def due(self, service: Service, now: float) -> None:
        """Keep the unused service."""


class _LetsReturnedTakeTurns(ServiceQueue):
    """Moves a client to the front when a request of it is redelivered, and leaves it there."""

    __slots__ = ()

    def push_front(self, pending: Any) -> None:
        self.push(pending)
        self._turns[pending.client].move_to_end(pending, last=False)
        self._turns.move_to_end(pending.client, last=False)


class _LosesTurns(ServiceQueue):
    """Makes an expired request use up its client's turn."""

    __slots__ = ()

    def return_turn(self, pending: Any) -> None:
        """Return nothing."""


def _let_returned_take_turns(service: Service) -> None:
    service.queue.__class__ = _LetsReturnedTakeTurns


def _lose_turns(service: Service) -> None:
    service.queue.__class__ = _LosesTurns


LetsReturnedTakeTurns = _with_services(_let_returned_take_turns)
LosesTurns = _with_services(_lose_turns)


class KeepsServices(MajordomoBroker):
    def __init__(self, policy: Any = None, **given: Any) -> None:
        super().__init__(policy, **given)
        self._directory.__class__ = _KeepsServices


class RemembersEverybody(MajordomoBroker):
    """Adds an entry to a new table for each peer, and never removes it."""

    def __init__(self, policy: Any = None, **given: Any) -> None:
        super().__init__(policy, **given)
        self.seen: dict[bytes, int] = {}

    def _peer_joined(self, event: Any, now: float) -> None:
        super()._peer_joined(event, now)
        self.seen[event.identity] = 1


class _DropsTheHasty(Workforce):
    """Considers a worker lost one heartbeat interval too early."""

    def due(self, worker: Any, now: float) -> None:
        worker.liveness.silence_s = 2 * worker.liveness.interval_s
        worker.liveness.heard_at -= worker.liveness.interval_s
        super().due(worker, now)


class DropsTheHasty(MajordomoBroker):
    def __init__(self, policy: Any = None, **given: Any) -> None:
        super().__init__(policy, **given)
        self._workforce.__class__ = _DropsTheHasty


class _IsSlowToSpeak(Workforce):
    """Sends heartbeats one interval late."""

    def due(self, worker: Any, now: float) -> None:
        spoke_at = worker.liveness.spoke_at
        worker.liveness.spoke_at = spoke_at + worker.liveness.interval_s
        super().due(worker, now)
        if worker.liveness.spoke_at == spoke_at + worker.liveness.interval_s:
            worker.liveness.spoke_at = spoke_at


class IsSlowToSpeak(MajordomoBroker):
    def __init__(self, policy: Any = None, **given: Any) -> None:
        super().__init__(policy, **given)
        self._workforce.__class__ = _IsSlowToSpeak


class DiesOfGarbage(MajordomoBroker):
    def _received(self, peer: Any, messages: Any, now: float) -> None:
        for message in messages:
            if not any(frame.startswith(b"MDP") for frame in message[:2]):
                raise KeyError(message[0])
        super()._received(peer, messages, now)


class _PunishesTheInnocent(Clients):
    """Also disconnects an innocent client when a peer breaks the protocol."""

    def expel(self, peer: Any, address: bytes, reason: str) -> None:
        super().expel(peer, address, reason)
        for other, party in list(self._parties.items()):
            if getattr(party, "pending", None) == {}:
                super().expel(other, party.address, reason)
                return


PunishesTheInnocent = _with(_PunishesTheInnocent)


class MutatesBodies(MajordomoBroker):
    """Swaps the bodies of two requests that arrive in one read."""

    def handle(self, events: Sequence[Input], now: float) -> Any:
        for event in events:
            if isinstance(event, Received):
                bodies = [m for m in event.messages if m[0].startswith(b"MDPC03\1")]
                if len(bodies) > 1:
                    bodies[0][1:], bodies[1][1:] = bodies[1][1:], bodies[0][1:]
        return super().handle(events, now)


# --- limits of memory -----------------------------------------------------------------------------
def _without(limit: str) -> type[MajordomoBroker]:
    """Return a broker that ignores a limit of its policy."""

    class Unlimited(MajordomoBroker):
        def __init__(self, policy: Any, **more: Any) -> None:
            super().__init__(replace(policy, **{limit: 1 << 40}), **more)

    Unlimited.__name__ = Unlimited.__qualname__ = f"ignores_{limit}"
    return Unlimited


LIMITS = (
    "client_pending_bytes_max",
    "pending_bytes_max",
    "client_services_max",
    "worker_capacity_max",
    "worker_expired_max",
)
UNLIMITED = {limit: _without(limit) for limit in LIMITS}


class KeepsPartialMessages(Host):
    """Drops no peer, however many bytes of incomplete messages all hold."""

    def __init__(self, *args: Any, limits: LinkLimits, **more: Any) -> None:
        super().__init__(*args, limits=replace(limits, partial_size_max=1 << 40), **more)
