"""The broker's workers: registration, messages and liveness.

The `Dispatcher` moves their requests. Sources: 18/MDP ("MDP/Worker", "Opening and
Closing a Connection", "Heartbeating"), 7/MDP, 8/MMI, docs/protocols/mdp-0.3.md (ids in brackets).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final, assert_never

from requite import engine
from requite.chronicle import NO_INSTANCE, Kind
from requite.core.liveness import Liveness, absence_s
from requite.core.timers import Timers
from requite.engine import Carried, Cause, Effect, Peer, Send, Warn
from requite.errors import RemoteViolation
from requite.principal import INSIDE, Principal
from requite.protocols.majordomo.directory import TOO_MANY, Directory
from requite.protocols.majordomo.dispatch import Dispatcher
from requite.protocols.majordomo.parties import Departed, Newcomer, Party, Worker
from requite.protocols.majordomo.permissions import RESERVED, lacks_to_serve
from requite.protocols.majordomo.policy import LEGACY_IDLE_S, BrokerPolicy
from requite.protocols.majordomo.recorders import BrokerObserver
from requite.protocols.majordomo.wire import (
    MMI_PREFIX,
    TAKES_PRINCIPALS,
    Dialect,
    Disconnect,
    DrainNotice,
    FromWorker,
    Progress,
    Ready,
    WorkerFinal,
    WorkerHeartbeat,
    WorkerPartial,
)

_DEPARTED: Final = Departed()


class Workforce:
    """All workers of a broker, on one socket with its clients (`parties` is shared with it)."""

    def __init__(
        self,
        policy: BrokerPolicy,
        parties: dict[Peer, Party],
        directory: Directory,
        dispatcher: Dispatcher,
        timers: Timers[Any],
        out: list[Effect],
        observer: BrokerObserver,
    ) -> None:
        self._policy = policy
        self._parties = parties
        self._directory = directory
        self._dispatcher = dispatcher
        self._timers = timers
        self._out = out
        self._observer = observer
        # By name of workers: their one principal, and how many they are.
        self._named: dict[bytes, tuple[str, int]] = {}
        self._back_at = -inf  # when the broker has returned from a pause
        self.refusal: str | None = None  # why no worker is accepted, while draining

    def introduce(
        self,
        peer: Peer,
        newcomer: Newcomer,
        dialect: Dialect,
        messages: Sequence[Carried],
        now: float,
    ) -> None:
        """Handle the first messages of a worker."""
        try:
            command = dialect.decode_from_worker(messages[0])
            if isinstance(command, Disconnect):
                self._parties[peer] = _DEPARTED
            elif isinstance(command, Ready):
                self._register(peer, newcomer, dialect, command, messages[1:], now)
            else:
                why = f"it sent {type(command).__name__} before READY"
                self._send_away(peer, dialect, why, Cause.FAULTY)
        except RemoteViolation as error:
            self._send_away(peer, dialect, f"it broke the protocol: {error}", Cause.FAULTY)

    def _register(
        self,
        peer: Peer,
        newcomer: Newcomer,
        dialect: Dialect,
        ready: Ready,
        rest: Sequence[Carried],
        now: float,
    ) -> None:
        name = newcomer.address if ready.instance == NO_INSTANCE else ready.instance
        if denied := self._denial(newcomer.principal, ready.service, name, now):
            tell = TAKES_PRINCIPALS in newcomer.features
            self._send_away(peer, dialect, denied, Cause.DENIED, tell=tell)
            return
        refusal = self._registration_refusal(ready)
        service = None if refusal else self._directory.for_worker(ready.service, now)
        if service is None:
            self._send_away(peer, dialect, refusal or TOO_MANY, Cause.DONE)
            return
        liveness = Liveness(self._policy.heartbeat, now)
        if not dialect.has_ids:
            liveness.silence_s = max(liveness.silence_s, LEGACY_IDLE_S)
        lease_s = ready.lease_ms / 1000
        capacity = min(ready.capacity, self._policy.worker_capacity_max)
        if capacity < ready.capacity:
            text = (
                f"a worker takes {ready.capacity} requests at a time; it gets {capacity} at most"
                " (worker_capacity_max, --worker-capacity-max)"
            )
            self._out.append(Warn("capacity", text))
        worker = Worker(
            peer,
            newcomer,
            dialect,
            service,
            capacity,
            lease_s,
            liveness,
            name,
        )
        self._parties[peer] = worker
        owner, count = self._named.get(name, (newcomer.principal.name, 0))
        self._named[name] = owner, count + 1
        if service.is_bare:
            self._directory.first_worker_joined(service)
        service.workers[worker] = None
        if dialect.has_ids:  # [worker-confirm], [worker-heartbeat]
            liveness.agree(ready.interval_ms)
            self._speak(worker, now)
        self._watch(worker)
        self._remark("worker_joined", worker, capacity=capacity)
        self._observer.worker(Kind.WORKER_JOINED, worker, now)
        self._offer(worker, now)
        self.take(worker, rest, now)

    def _registration_refusal(self, ready: Ready) -> str | None:
        if ready.service.startswith(MMI_PREFIX):  # 8/MMI
            return RESERVED
        return self.refusal

    def _denial(self, principal: Principal, service: bytes, name: bytes, now: float) -> str:
        """Return why a worker may not serve a service ([worker-denied]) under its name in journals
        ([worker-instance-owner]); "" if it may."""
        denied = lacks_to_serve(principal, service)
        owner, _ = self._named.get(name, (principal.name, 0))
        if not denied and owner != principal.name:
            denied = f"a worker of another principal has the instance {name.hex()}"
        if (
            self._policy.titanic_inside
            and service.startswith(b"titanic.")
            and principal is not INSIDE
        ):
            denied = "the broker's own Titanic serves the names that start with titanic."
        if denied:
            self._observer.access(Kind.DENIED, principal, "serve", service, now, denied)
        elif principal.name:
            self._observer.access(Kind.ADMITTED, principal, "serve", service, now)
        return denied

    def take(self, worker: Worker, messages: Sequence[Carried], now: float) -> None:
        """Handle the messages of one read from a worker."""
        worker.liveness.heard_at = now
        decode = worker.dialect.decode_from_worker
        try:
            for message in messages:
                command = decode(message)
                if command.__class__ is WorkerFinal:
                    dispatch_id = self._held(worker, command)
                    if dispatch_id is not None:
                        self._dispatcher.final(
                            worker, dispatch_id, command.status, command.body, now
                        )
                elif not self._take_other(worker, command, now):
                    return
        except RemoteViolation as error:
            self.dismiss(worker, f"the worker broke the protocol: {error}", Cause.FAULTY, now)
            return
        if worker.service.queue.length:
            self._dispatcher.feed(worker.service, now)

    def _held(self, worker: Worker, command: WorkerFinal | WorkerPartial) -> int | None:
        """Return the dispatch id that a reply answers; None for a stale reply ([worker-stale])."""
        if worker.dialect.has_ids:
            dispatch_id = command.dispatch_id
            return dispatch_id if dispatch_id in worker.holds else None
        if not worker.holds:
            raise RemoteViolation(f"received {type(command).__name__} without a request")
        dispatch_id, pending = next(iter(worker.holds.items()))
        if pending is not None and pending.client.address != command.address:
            raise RemoteViolation(
                "received a reply for a client whose request this worker does not have"
            )
        return dispatch_id

    def _take_other(self, worker: Worker, command: FromWorker, now: float) -> bool:
        """Handle any command but FINAL; return whether the worker is still registered."""
        match command:
            case WorkerHeartbeat():
                self._heartbeat(worker, command, now)
            case WorkerPartial():
                worker.expired = 0
                self._partial(worker, command, now)
            case Progress():
                worker.expired = 0
                if worker.holds.get(command.dispatch_id) is not None:
                    extend_s = command.extend_ms / 1000
                    self._dispatcher.renew_lease(worker, command.dispatch_id, extend_s, now)
            case DrainNotice():
                worker.draining = True
                worker.service.waiting.pop(worker, None)
                self._remark("worker_drained", worker)
                self._observer.worker(Kind.WORKER_DRAINED, worker, now)
            case Disconnect():
                self._parties[worker.peer] = _DEPARTED
                self.lost(worker, "the worker disconnected", Cause.DONE, now)
                return False
            case Ready():
                self.dismiss(worker, "the worker sent READY twice", Cause.FAULTY, now)
                return False
            case WorkerFinal():
                raise AssertionError("finals are handled by take()")
            case _:
                assert_never(command)
        return True

    def _heartbeat(self, worker: Worker, command: WorkerHeartbeat, now: float) -> None:
        if worker.dialect.has_ids:
            worker.liveness.agree(command.interval_ms)
            self._watch(worker, now)

    def _partial(self, worker: Worker, command: WorkerPartial, now: float) -> None:
        dispatch_id = self._held(worker, command)
        pending = None if dispatch_id is None else worker.holds[dispatch_id]
        if dispatch_id is not None and pending is not None:
            self._dispatcher.renew_lease(worker, dispatch_id, 0.0, now)
            self._dispatcher.partial(pending, command.body, now)

    def _offer(self, worker: Worker, now: float) -> None:
        """Add a worker to the waiting ones if it can take requests, and dispatch queued ones."""
        if worker.may_take:
            worker.service.waiting[worker] = None
            self._dispatcher.feed(worker.service, now)

    def _speak(self, worker: Worker, now: float) -> None:
        interval_ms = self._policy.heartbeat.interval_ms
        self._out.append(Send(worker.peer, worker.dialect.encode(WorkerHeartbeat(interval_ms))))
        worker.liveness.spoke_at = now

    def _send_away(
        self, peer: Peer, dialect: Dialect, reason: str, cause: Cause, *, tell: bool = False
    ) -> None:
        """Send DISCONNECT and close (18/MDP, "Opening and Closing a Connection"). `tell`: with the
        reason, which workers of an older requite do not expect."""
        self._parties.pop(peer, None)
        self._out.append(Warn("disconnect", f"disconnecting a worker: {reason}"))
        told = reason.encode() if tell else b""
        self._out.append(Send(peer, dialect.encode(Disconnect(told))))
        self._out.append(engine.Disconnect(peer, reason, cause))

    def dismiss(self, worker: Worker, reason: str, cause: Cause, now: float) -> None:
        """Disconnect a worker, and redeliver its requests."""
        tell = worker.takes_principals
        self._send_away(worker.peer, worker.dialect, reason, cause, tell=tell)
        self.lost(worker, reason, cause, now)

    def dismiss_all(self, reasons: Mapping[Worker, str], cause: Cause, now: float) -> None:
        """Disconnect workers for a reason each. None of them gets the requests of another, which
        would count as one more attempt."""
        for worker in reasons:
            worker.draining = True
            worker.service.waiting.pop(worker, None)
        for worker, reason in reasons.items():
            self.dismiss(worker, reason, cause, now)

    def lost(self, worker: Worker, reason: str, cause: Cause, now: float) -> None:
        """Remove a lost worker, and redeliver its requests ([worker-lost])."""
        service = worker.service
        del service.workers[worker]
        service.waiting.pop(worker, None)
        owner, count = self._named[worker.name]
        if count > 1:
            self._named[worker.name] = owner, count - 1
        else:
            del self._named[worker.name]
        self._timers.clear(worker)
        self._remark("worker_lost", worker, reason=reason, cause=cause)
        self._observer.worker(Kind.WORKER_LOST, worker, now, reason)
        for dispatch_id, pending in reversed(worker.holds.items()):  # oldest first in line
            self._timers.clear((worker, dispatch_id))
            if pending is not None:
                self._dispatcher.redeliver(pending, reason, now)
        worker.holds.clear()
        self._dispatcher.feed(service, now)
        if service.is_bare:
            self._directory.last_worker_left(service, self._dispatcher.start_grace, now)

    def request_expired(self, worker: Worker, now: float) -> None:
        """Dismiss a worker that has let many requests in a row expire without any answer
        ([worker-mute]).

        Requests that expire at once prove nothing: the worker can answer the first CANCEL only
        later. So the worker may be silent about requests for as long as a peer may be silent.
        """
        if not worker.dialect.has_ids or now == self._back_at:
            return
        if not worker.expired or worker.served != worker.served_then:
            worker.expired, worker.expired_since, worker.served_then = 0, now, worker.served
        worker.expired += 1
        silent_s = now - worker.expired_since
        if (
            worker.expired >= self._policy.worker_expired_max
            and silent_s >= self._policy.heartbeat.silence_s
        ):
            reason = (
                f"its worker let {worker.expired} requests in a row expire without any answer"
                " (worker_expired_max, --worker-expired-max)"
            )
            self.dismiss(worker, reason, Cause.DONE, now)

    def review(self, now: float) -> None:
        """Dismiss the workers that have lost the right to serve ([rights-changed])."""
        reasons: dict[Worker, str] = {}
        for party in self._parties.values():
            if isinstance(party, Worker):
                name = party.service.name
                if denied := lacks_to_serve(party.principal, name):
                    self._observer.access(Kind.DENIED, party.principal, "serve", name, now, denied)
                    reasons[party] = denied
        self.dismiss_all(reasons, Cause.DENIED, now)

    def _remark(self, kind: str, worker: Worker, **facts: Any) -> None:
        if not self._observer.makes_notes:
            return
        known = {"worker": worker.address, "service": worker.service.name}
        self._observer.remark(kind, known | facts, self._out)

    # --- presence -------------------------------------------------------------------------------
    def blocked(self, worker: Worker) -> None:
        """Send no requests to a worker with back-pressure."""
        worker.blocked = True
        worker.service.waiting.pop(worker, None)

    def writable(self, worker: Worker, now: float) -> None:
        """Use a worker again after its back-pressure has ended."""
        worker.blocked = False
        self._offer(worker, now)

    def due(self, worker: Worker, now: float) -> None:
        """Dismiss a silent worker, or send it a heartbeat if one is due."""
        self._observer.worker(Kind.HEARTBEAT, worker, now)
        if now >= self._gone_at(worker):
            silent_s = now - worker.liveness.heard_at
            why = f"the worker was silent for {silent_s:.2f} s"
            self.dismiss(worker, why, Cause.SILENT, now)
            return
        if now >= worker.liveness.speak_at():
            self._speak(worker, now)
        self._watch(worker)

    def _watch(self, worker: Worker, now: float = 0.0) -> None:
        """Set the timer of a worker to its next check, `now` at the earliest."""
        at = min(self._gone_at(worker), worker.liveness.speak_at())
        self._timers.set(worker, max(now, at))

    def _gone_at(self, worker: Worker) -> float:
        """Return the instant at which a silent worker counts as dead.

        A single-threaded worker of MDP 0.1 or 0.2, such as the Guide's, sends no heartbeats while
        it works. So busy workers of these dialects have a separate limit, and idle ones have at
        least the Guide's three intervals.
        """
        if worker.holds and not worker.dialect.has_ids:
            since = max(worker.liveness.heard_at, worker.given_at)
            return since + self._policy.legacy_busy_timeout_s
        return worker.liveness.gone_at()

    def woken(self, planned_at: float, now: float) -> None:
        """Excuse all workers after a pause of the broker, which planned to wake earlier."""
        away_s = absence_s(planned_at, now, self._policy.heartbeat.interval_s)
        if not away_s:
            return
        self._back_at = now  # answers to requests that expire now may be unread
        for party in self._parties.values():
            if isinstance(party, Worker):
                party.liveness.excuse(away_s, now)
                party.given_at = min(now, party.given_at + away_s)
                party.expired = 0

    def stop(self) -> None:
        """Send DISCONNECT to all workers."""
        for peer, party in self._parties.items():
            if isinstance(party, Worker):
                self._timers.clear(party)
                self._out.append(Send(peer, party.dialect.encode(Disconnect())))
