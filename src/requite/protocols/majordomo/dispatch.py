"""The life of a request inside the broker, from its acceptance to its final reply.

    accepted ──► queued ──► dispatched ──► answered
                   ▲            │
                   └─ redelivered (its worker was lost, or its lease ran out)

In any state a request may also expire, be cancelled, or lose its client. `Dispatcher` implements
these transitions and the timers of requests; `broker.py` handles peers and their messages. Rule ids
in brackets are those of docs/protocols/mdp-0.3.md.
"""

from __future__ import annotations

from bisect import bisect_left
from math import inf
from typing import Any

from requite.core.durations import BOUNDS_S
from requite.core.timers import Timers
from requite.engine import Effect, Note, Send
from requite.protocols.majordomo.directory import Directory
from requite.protocols.majordomo.lateness import MARGIN_S_MAX, is_late, learn_time
from requite.protocols.majordomo.parties import (
    Client,
    Load,
    PendingRequest,
    Service,
    Worker,
    size_of,
)
from requite.protocols.majordomo.policy import BrokerPolicy, PartialsFor01
from requite.protocols.majordomo.pushback import Pushback
from requite.protocols.majordomo.recorders import BrokerObserver
from requite.protocols.majordomo.refusals import Refusals
from requite.protocols.majordomo.wire import (
    NOT_IDEMPOTENT,
    ClientPartial,
    WorkerCancel,
    timeout_ms,
)
from requite.request import FINAL, Status, is_final
from requite.trace_context import is_sampled


class Dispatcher:
    """Moves requests between clients, queues and workers. Effects go to `out`, in order."""

    def __init__(
        self,
        policy: BrokerPolicy,
        directory: Directory,
        timers: Timers[Any],
        out: list[Effect],
        pushback: Pushback,
        load: Load,
        observer: BrokerObserver,
        refusals: Refusals,
    ) -> None:
        self._policy = policy
        self._directory = directory
        self._pushback = pushback
        self._unread = pushback.unread
        self._held = pushback.held
        self._observer = observer
        self._refusals = refusals
        self._keeps_journal = observer.keeps_journal
        self._makes_notes = observer.makes_notes
        self._notes_traces = policy.notes_traces
        self._timers = timers
        self._out = out
        self._dispatch_id = 0
        self._load = load

    # --- in -------------------------------------------------------------------------------------
    def accept(self, pending: PendingRequest, now: float) -> None:
        """Accept a request: dispatch or queue it."""
        service = pending.service
        client = pending.client
        size = pending.size
        client.pending[pending.request_id] = pending
        client.size += size
        usage = client.usage
        if usage is not None:
            usage.room -= 1
            usage.size += size
            if usage.groups_max and service.is_keyed:
                usage.join_group(service.name)
        load = self._load
        load.count += 1
        load.size += size
        counters = service.counters
        counters.accepted += 1
        counters.received += size
        if pending.deadline != inf:
            self._timers.set(pending, pending.deadline)
        if self._makes_notes or (self._notes_traces and is_sampled(pending.trace)):
            pending.is_noted = True
            self._remark("accepted", pending)
        if service.waiting and not service.queue.length and not service.is_paused:
            self._dispatch(pending, service.waiting.popitem(last=False)[0], now)
        else:
            self._enqueue(pending, now)

    def _enqueue(self, pending: PendingRequest, now: float) -> None:
        service = pending.service
        client, queue = pending.client, service.queue
        if queue.length >= self._policy.queue_max:
            why = (
                f"the queue of {_text(service)} is full: the maximum is {self._policy.queue_max} "
                "(queue_max, --queue-max)"
            )
            if not self._pushback.can_tell(client):
                self._pushback.stop(client, service, why)
            elif queue.has_turn(client) or not self._pushback.is_waited_for(service):
                service.counters.refused += 1
                self._end(pending, Status.OVERLOADED, why, now)
                return
        queue.push(pending)
        if pending.is_noted:
            self._remark("queued", pending)
        if service.is_bare:
            self.start_grace(pending, now)

    def start_grace(self, pending: PendingRequest, now: float) -> None:
        """Start the grace period of a queued request of a bare service."""
        pending.queued_at = now
        self._timers.set(pending, min(pending.deadline, now + self._policy.service_grace_s))

    # --- to a worker ----------------------------------------------------------------------------
    def feed(self, service: Service, now: float) -> None:
        """Dispatch queued requests while workers wait, unless the service is paused."""
        queue = service.queue
        waiting = service.waiting
        while queue.length and waiting and not service.is_paused:
            pending = queue.pop()
            if pending.deadline <= now:  # I15: expired work never starts
                self._end(
                    pending, Status.EXPIRED, "the deadline passed while the request was queued", now
                )
                queue.return_turn(pending)
            # Compared here, too: most requests have more time, and a call costs 0.05 us.
            elif pending.deadline - now < service.takes_s + MARGIN_S_MAX and is_late(pending, now):
                queue.put_off(pending)
                queue.return_turn(pending)
                if pending.is_noted:
                    self._remark("put_off", pending)
            else:
                self._dispatch(pending, waiting.popitem(last=False)[0], now)
        if self._unread:
            self._pushback.make_room(service, now)

    def _dispatch(self, pending: PendingRequest, worker: Worker, now: float) -> None:
        self._dispatch_id += 1
        dispatch_id = self._dispatch_id
        pending.dispatch_id = dispatch_id
        pending.worker = worker
        pending.attempts += 1
        pending.dispatched_at = now
        worker.holds[dispatch_id] = pending
        worker.liveness.spoke_at = worker.given_at = now
        if len(worker.holds) < worker.capacity:
            worker.service.waiting[worker] = None
        deadline = pending.deadline
        message = worker.dialect.worker_request(
            pending.client.address,
            pending.body,
            dispatch_id,
            0 if deadline == inf else timeout_ms(deadline - now),
            pending.attempts,
            pending.key,
            pending.call_id,
            pending.principal if worker.takes_principals else b"",
            pending.trace if worker.takes_traces else b"",
        )
        self._out.append(Send(worker.peer, message))
        if worker.lease_s:
            self._timers.set((worker, dispatch_id), now + worker.lease_s)
        if self._keeps_journal and pending.is_expanded:
            self._observer.dispatched(pending)
        if pending.is_noted:
            self._remark("dispatched", pending)

    # --- from a worker --------------------------------------------------------------------------
    def partial(self, pending: PendingRequest, body: list[bytes], now: float) -> None:
        """Forward a partial reply, or buffer it for a client whose dialect has one reply."""
        client = pending.client
        self._observer.partial(pending, body, now)
        if client.dialect.has_partials:
            index = pending.partials
            pending.partials = index + 1
            message = client.dialect.encode(
                ClientPartial(pending.service.name, body, pending.request_id, index)
            )
            self._out.append(Send(client.peer, message))
            if self._makes_notes:  # not for traces, where they would displace the attempts
                self._remark("partial", pending, index=index)
        elif option := self._full_of_partials(client):
            reason = f"too many bytes of partial replies wait to be joined ({option})"
            self.fail(pending, Status.FAILED, reason, now)
        else:
            if pending.joined is None:
                pending.joined = []
            pending.joined += body
            self._grow(pending, size_of(body))

    def _full_of_partials(self, client: Client) -> str:
        """Return the limit that forbids to join one more partial reply; "" if none does.

        Partial replies may take as much memory as requests, so that requests at their limit leave
        room for them. Those of a principal may take the bytes of its quota.
        """
        quota_size = client.principal.quota.bytes
        if client.usage is not None and quota_size and client.usage.joined >= quota_size:
            return f"{client.principal} has reached its quota: bytes = {quota_size}"
        if client.size >= 2 * self._policy.client_pending_bytes_max:
            return "client_pending_bytes_max, --client-pending-bytes-max"
        if self._load.size >= 2 * self._policy.pending_bytes_max:
            return "pending_bytes_max, --pending-bytes-max"
        return ""

    def final(
        self, worker: Worker, dispatch_id: int, status: int, body: list[bytes], now: float
    ) -> None:
        """Answer the request that `worker` holds under `dispatch_id`, and free its slot."""
        pending = worker.holds.pop(dispatch_id)
        worker.served += 1
        if worker.lease_s:
            self._timers.clear((worker, dispatch_id))
        # `may_take`, inlined; the third condition holds.
        if not worker.draining and not worker.blocked:
            worker.service.waiting[worker] = None
        if pending is None:
            return
        if worker.service.queue.length:
            learn_time(pending, now)
        if status == Status.OK and pending.joined is None:
            self._answer(pending, body, now)
        else:
            self._answer_unusual(pending, Status(status), body, now)

    def _answer(self, pending: PendingRequest, body: list[bytes], now: float) -> None:
        client = pending.client
        self._settle(pending, now)
        counters = pending.service.counters
        took_s = now - pending.accepted_at
        took = counters.took  # `add`, inlined: a call costs as much as counting
        took.counts[bisect_left(BOUNDS_S, took_s)] += 1
        took.total_s += took_s
        counters.sent += len(body[0]) if len(body) == 1 else sum(map(len, body))
        message = client.dialect.client_final(
            pending.service.name, body, pending.request_id, 0, pending.attempts
        )
        self._out.append(Send(client.peer, message))
        if self._keeps_journal:
            self._observer.answered(pending, body, now)
        if pending.is_noted:
            self._remark("answered", pending, status="OK", withdrawn=False)

    def _answer_unusual(
        self, pending: PendingRequest, status: Status, body: list[bytes], now: float
    ) -> None:
        if status is Status.CANCELLED and pending.deadline <= now:
            status = Status.EXPIRED  # the worker's timer for it fired before ours
        if status is not Status.OK:
            reason = body[0].decode(errors="replace")
            self._end(pending, status, reason, now, is_final=is_final(body))
        elif self._policy.partials_for_0_1 is PartialsFor01.REFUSE:
            reason = "the worker sent partial replies, which MDP 0.1 does not have"
            self._end(pending, Status.FAILED, reason, now)
        else:
            self._answer(pending, [*(pending.joined or ()), *body], now)

    def renew_lease(self, worker: Worker, dispatch_id: int, extend_s: float, now: float) -> None:
        """Extend the lease of a dispatch by `extend_s`, or for 0 by the worker's lease."""
        if worker.lease_s:
            self._timers.set((worker, dispatch_id), now + (extend_s or worker.lease_s))

    # --- out ------------------------------------------------------------------------------------
    def cancel(self, pending: PendingRequest, reason: str, now: float) -> None:
        """Drop a request whose client cancelled it or left, without an answer."""
        pending.service.counters.ended[Status.CANCELLED] += 1  # before its service is removed
        self._withdraw(pending, now)
        self._settle(pending, now)
        self._observer.ended(pending, Status.CANCELLED, reason, now)
        self._remark("cancelled", pending, reason=reason)

    def forget(self, client: Client, now: float) -> None:
        """Cancel the requests of a client that left ([client-left])."""
        self._pushback.forget(client, now)
        for pending in list(client.pending.values()):
            self.cancel(pending, "the client disconnected", now)

    def fail(self, pending: PendingRequest, status: Status, reason: str, now: float) -> None:
        """Fail a request in any state, and answer its client."""
        pending.service.counters.ended[status] += 1  # before its service is removed
        self._withdraw(pending, now)
        self._end(pending, status, reason, now, withdrawn=True)

    def due(self, pending: PendingRequest, now: float) -> Worker | None:
        """Handle the timer of a request: its deadline, or the end of its grace period. Return the
        worker with which it expired, if any."""
        service = pending.service
        if pending.deadline <= now:
            if pending.worker is not None and service.queue.length:
                learn_time(pending, now)  # it would have taken longer
            where = "in the queue" if pending.worker is None else "at a worker"
            self.fail(
                pending, Status.EXPIRED, f"the deadline passed while the request was {where}", now
            )
            return pending.worker
        if pending.worker is None and service.is_bare and not service.is_paused:
            waited_s = now - pending.queued_at
            reason = f"no worker serves {_text(service)}; waited {waited_s:.1f} s for a worker"
            self.fail(pending, Status.NO_SERVICE, reason, now)
        elif pending.deadline != inf:
            self._timers.set(pending, pending.deadline)
        return None

    def lease_due(self, worker: Worker, dispatch_id: int, now: float) -> None:
        """Redeliver a request whose lease has expired ([worker-lease])."""
        pending = worker.holds.get(dispatch_id)
        if pending is None:
            return
        self._withdraw(pending, now)
        self.redeliver(pending, "the handler's lease expired", now)
        waiting = pending.service.waiting
        if worker in waiting:  # it has free capacity, but prefer other workers
            waiting.move_to_end(worker)
        self.feed(pending.service, now)

    def redeliver(self, pending: PendingRequest, reason: str, now: float) -> None:
        """Queue a request again, first in line, if it may run again ([worker-lost]).

        The caller must call `feed` once all requests of the lost worker are queued.
        """
        lost_at = pending.worker
        self._observer.expand(pending)
        pending.worker = None
        if pending.joined is not None:
            self._grow(pending, -size_of(pending.joined))
            pending.joined = None
        if pending.deadline <= now:
            self._end(
                pending,
                Status.EXPIRED,
                "the deadline passed while the request was at a worker",
                now,
            )
        elif pending.flags & NOT_IDEMPOTENT:
            self._end(
                pending, Status.WORKER_LOST, f"{reason}, and the request is not idempotent", now
            )
        elif pending.partials:
            why = f"{reason}, after it had sent partial replies"
            self._end(pending, Status.WORKER_LOST, why, now)
        elif pending.attempts >= self._policy.attempts_max:
            given = (
                f"{reason}; dispatched {pending.attempts} times, the limit (attempts_max,"
                " --attempts)"
            )
            self._end(pending, Status.POISONED, given, now)
        else:
            pending.service.counters.redelivered += 1
            pending.service.queue.push_front(pending)
            self._observer.redelivered(pending, lost_at, reason, now)
            worker = None if lost_at is None else lost_at.address
            self._remark("redelivered", pending, reason=reason, lost_worker=worker)

    # --- common ---------------------------------------------------------------------------------
    def _grow(self, pending: PendingRequest, size: int) -> None:
        """Count bytes that a pending request holds in addition."""
        pending.size += size
        client = pending.client
        client.size += size
        if client.usage is not None:
            client.usage.size += size
            client.usage.joined += size
        self._load.size += size

    def _withdraw(self, pending: PendingRequest, now: float) -> None:
        """Remove a request from its queue or its worker, whose slot stays occupied."""
        worker = pending.worker
        if worker is None:
            pending.service.queue.remove(pending)
            self._directory.retire(pending.service, now)
            if self._unread:
                self._pushback.make_room(pending.service, now)
                self._pushback.make_room(self._directory, now)
            return
        worker.holds[pending.dispatch_id] = None
        if worker.lease_s:
            self._timers.clear((worker, pending.dispatch_id))
        if worker.dialect.has_ids:
            self._out.append(
                Send(worker.peer, worker.dialect.encode(WorkerCancel(pending.dispatch_id)))
            )
            worker.liveness.spoke_at = now

    def _settle(self, pending: PendingRequest, now: float) -> None:
        """Remove a request from all tables."""
        client = pending.client
        size = pending.size
        del client.pending[pending.request_id]
        client.size -= size
        usage = client.usage
        if usage is not None:
            usage.ended += 1
            usage.size -= size
            if pending.joined is not None:
                usage.joined -= size_of(pending.joined)
            if usage.groups:
                usage.leave_group(pending.service.name)
        load = self._load
        load.count -= 1
        load.size -= size
        self._timers.clear(pending)
        if self._unread or self._held:
            self._pushback.settled(pending, now)

    def _end(
        self,
        pending: PendingRequest,
        status: Status,
        reason: str,
        now: float,
        *,
        withdrawn: bool = False,
        is_final: bool = False,
    ) -> None:
        """Send the negative answer of a request that is in no queue and at no worker, or that was
        withdrawn from there; `is_final`: its worker has said so ([status-final])."""
        self._settle(pending, now)
        if not withdrawn:  # else it was counted before
            pending.service.counters.ended[status] += 1
        body = [reason.encode(), FINAL] if is_final else [reason.encode()]
        name = pending.service.name
        self._refusals.tell(
            pending.client, name, pending.request_id, status, body, pending.attempts
        )
        self._observer.ended(pending, status, reason, now)
        self._remark("answered", pending, status=status.name, reason=reason, withdrawn=withdrawn)

    def _remark(self, kind: str, pending: PendingRequest, **facts: Any) -> None:
        if not pending.is_noted:
            return
        known = {
            "service": pending.service.name,
            "client": pending.client.address,
            "request_id": pending.request_id,
            "attempt": pending.attempts,
            "dispatch_id": pending.dispatch_id,
            "worker": None if pending.worker is None else pending.worker.address,
        }
        if pending.trace:
            known["trace"] = pending.trace
        self._out.append(Note(kind, known | facts))


def _text(service: Service) -> str:
    return service.name.decode(errors="replace")
