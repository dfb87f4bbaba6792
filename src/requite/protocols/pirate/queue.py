"""The queue of the Pirates, between clients that retry and workers that come and go.

    clients ──requests──► front │ back ──requests──► the worker that has been idle for longest
            ◄──replies───       │      ◄──replies───

One engine implements the Simple and the Paranoid Pirate; the latter has heartbeats in both
directions, and forgets silent workers. Requests wait for an idle worker. A request that was sent to
a worker is never sent to another: the protocol does not say whether it may run twice. Its client
knows, and retries.

When a worker is lost with a request, and its client waits for nothing else, the queue disconnects
the client, which then retries at once instead of after its timeout. The queue gives each connection
of a client an address, so a late reply never reaches a connection with another request (I2).

Sources: Guide, "Basic Reliable Queuing (Simple Pirate Pattern)" and "Robust Reliable Queuing
(Paranoid Pirate Pattern)"; 6/PPP.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from math import inf
from typing import Any, ClassVar

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.core.liveness import absence_s
from requite.core.machine import Handlers, Machine
from requite.core.sweep import Sweep
from requite.core.turns import Turns
from requite.engine import (
    Cause,
    Disconnect,
    Drain,
    Message,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    ResumeReading,
    Send,
    Stopped,
    StopReading,
    Wake,
    Warn,
)
from requite.errors import LocalViolation, RemoteViolation
from requite.protocols.pirate import wire
from requite.protocols.pirate.clients import AddressedClient
from requite.protocols.pirate.jobs import REQUESTS, QueueSnapshot, Why
from requite.protocols.pirate.policy import BACK, FRONT, QueuePolicy
from requite.protocols.pirate.recorders import QueueObserver, QueueRecorder
from requite.protocols.pirate.wire import Envelope, Pattern, Ready
from requite.protocols.pirate.workers import BUSY, IDLE, UNREADY, WorkerPeer, WorkerSet


class PirateQueue(Machine):
    """Passes requests from its front to workers at its back; `PeerJoined.place` is the side of a
    peer: FRONT or BACK. After `Drain`, requests are not read; `Stopped` follows when no worker has
    a request any more.

    `first_address` should be random per start: a worker may still answer an earlier queue's client.
    `instance` identifies the queue in journals and should be random per start. `chronicle` journals
    its requests.
    """

    _kind: ClassVar = "a queue"

    def __init__(
        self,
        pattern: Pattern,
        policy: QueuePolicy | None = None,
        *,
        first_address: int,
        instance: bytes = NO_INSTANCE,
        chronicle: Chronicle | None = None,
    ) -> None:
        super().__init__()
        self._pattern = pattern
        self._policy = policy = policy or QueuePolicy()
        self._next_address = first_address
        self._turns: Turns[AddressedClient[WorkerPeer]] = Turns(
            policy.queue_max, policy.queue_size_max, stops_at_max=True
        )
        self._workers = WorkerSet()
        self._observer = (
            QueueObserver(notes=policy.notes)
            if chronicle is None
            else QueueRecorder(chronicle, instance, notes=policy.notes)
        )
        self._sweep = Sweep()
        self._requests = self._replies = 0
        self._dropped: Counter[str] = Counter()
        self._stop_at = inf

    def _handlers(self) -> Handlers:
        handlers: Handlers = {
            Received: self._received,
            Wake: self._woken,
            PeerJoined: self._joined,
            PeerLost: self._lost,
            PeerBlocked: self._blocked,
            PeerWritable: self._writable,
            Drain: self._drained,
        }
        return {kind: self._then_dispatch(handler) for kind, handler in handlers.items()}

    def _then_dispatch(self, handler: Callable[[Any, float], None]) -> Callable[[Any, float], None]:
        """Return a handler that dispatches queued requests afterwards."""

        def handle(event: Any, now: float) -> None:
            handler(event, now)
            self._dispatch(now)

        return handle

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        at = min(self._sweep.at, self._stop_at)
        at = min(at, self._observer.flush_at)
        return None if at == inf else at

    def snapshot(self) -> QueueSnapshot:
        """Return the sizes of all tables."""
        workers = self._workers
        return QueueSnapshot(
            len(self._turns),
            self._turns.waiting,
            workers.count(UNREADY),
            workers.count(IDLE),
            workers.count(BUSY),
            self._requests,
            self._replies,
            dict(self._dropped),
            self._draining,
            self._stopped,
        )

    # --- messages ---------------------------------------------------------------------------------
    def _received(self, event: Received, now: float) -> None:
        peer, messages = event.peer, event.messages
        if worker := self._workers.by_peer.get(peer):
            self._from_worker(worker, messages, now)
        elif client := self._turns.by_peer.get(peer):
            self._from_client(client, messages, now)

    def _from_client(
        self, client: AddressedClient[WorkerPeer], messages: Iterable[Message], now: float
    ) -> None:
        if self._draining:
            return
        try:
            for message in messages:
                body = wire.split(message).body
                if self._turns.push(client, message, sum(map(len, message))):
                    self._out.append(StopReading(client.peer))
                self._observer.accepted(client, body, now)
        except RemoteViolation as violation:
            self._expel(client.peer, f"a client broke the protocol: {violation}", now)
            self._forget_client(client, "it broke the protocol", now)

    def _from_worker(self, worker: WorkerPeer, messages: Iterable[Message], now: float) -> None:
        worker.liveness.heard_at = now
        try:
            for message in messages:
                self._heard(worker, wire.decode_from_worker(self._pattern, message), now)
        except RemoteViolation as violation:
            self._expel(worker.peer, f"a worker broke the protocol: {violation}", now)
            self._forget_worker(worker, "it broke the protocol", now)

    def _heard(self, worker: WorkerPeer, said: wire.FromWorker, now: float) -> None:
        if isinstance(said, Ready):
            worker.words = said.words
            if worker.state is BUSY:  # it has restarted
                self._lose_request(worker, "the worker sent READY again instead of a reply", now)
            self._make_ready(worker, now)
            self._remark("ready", worker)
        elif isinstance(said, Envelope):
            self._take_reply(worker, said, now)
        elif worker.state is UNREADY:  # 6/PPP: the first message is READY
            self._drop(Why.UNREADY, now)

    def _take_reply(self, worker: WorkerPeer, reply: Envelope, now: float) -> None:
        if worker.state is not BUSY or reply.envelope != worker.envelope:
            self._take_stray_reply(worker, now)
            return
        client = worker.client
        assert client is not None
        client.in_flight.pop(worker, None)
        self._make_ready(worker, now)
        if client.peer in self._turns.by_peer:
            self._replies += 1
            self._out.append(Send(client.peer, [*reply.envelope[1:], *reply.body]))
            self._observer.answered(worker, reply.body, now)
            self._remark("replied", worker)
            if self._draining:
                self._maybe_disconnect(client)
        else:
            self._drop(Why.LEFT, now)

    def _take_stray_reply(self, worker: WorkerPeer, now: float) -> None:
        """Drop a reply to a request that its worker does not have. The request that it has gets no
        other reply: a worker replies once per request.

        Guide, "Simple Pirate": a REQ worker is then ready for the next request; a worker that has
        outlived a queue does not send READY again. A Paranoid worker must send READY on a new
        connection first; until then its state is unknown.
        """
        if worker.state is BUSY and self._pattern.beats:
            raise RemoteViolation("it replied to a request that it did not have")
        self._drop(Why.UNREADY if worker.state is UNREADY else Why.STRAY, now)
        if worker.state is not IDLE and not self._pattern.beats:
            self._lose_request(worker, "the worker replied to another request", now)
            self._make_ready(worker, now)

    def _make_ready(self, worker: WorkerPeer, now: float) -> None:
        if worker.state is UNREADY:
            self._observer.came(worker, now)
        self._workers.ready(worker)
        if self._pattern.beats:
            # Not in the past, even if READY came late: it would look like a pause of the queue.
            self._watch(worker, max(now, worker.liveness.next_at()))

    # --- requests ---------------------------------------------------------------------------------
    def _dispatch(self, now: float) -> None:
        """Send queued requests, clients in turn, to idle workers."""
        while self._workers.is_any_idle and not self._draining and (due := self._turns.pop()):
            client, message = due
            worker = self._workers.take()
            worker.client = client
            worker.envelope = [client.address, *wire.split(message).envelope]
            worker.liveness.spoke_at = now
            client.in_flight[worker] = None
            self._requests += 1
            self._observer.dispatched(client, worker, now)
            self._out.append(
                Send(worker.peer, wire.request(self._pattern, client.address, message))
            )
            self._remark("dispatched", worker)
            if self._turns.resumes(client):
                self._out.append(ResumeReading(client.peer))

    def _lose_request(self, worker: WorkerPeer, why: str, now: float) -> None:
        """Drop a request whose worker is lost. Disconnect its client if it waits for nothing else;
        the protocol has no other way to report it."""
        client = worker.client
        if client is None or self._turns.by_peer.get(client.peer) is not client:
            return
        self._drop(Why.LOST, now)
        self._observer.lost(worker, why, now)
        client.in_flight.pop(worker, None)
        if not (client.in_flight or client.waiting):
            self._turns.leave(client.peer)
            self._out.append(Disconnect(client.peer, f"its request was lost: {why}", Cause.DONE))

    def _drop(self, why: str, now: float, count: int = 1) -> None:
        """Count dropped messages."""
        if not count:
            return
        self._dropped[why] += count
        if why not in REQUESTS:
            self._observer.dropped(why, now, count)
        self._observer.remark("dropped", {"why": why, "count": count}, self._out)

    # --- connections ------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined, now: float) -> None:
        if self._draining:
            self._out.append(Disconnect(event.peer, "the queue is shutting down", Cause.DONE))
        elif event.place == FRONT:
            address = wire.new_address(self._next_address)
            self._next_address += 1
            self._turns.join(AddressedClient(event.peer, address))
        elif event.place == BACK:
            worker = WorkerPeer(event.peer, self._policy.heartbeat, now)
            self._workers.by_peer[event.peer] = worker
            if self._pattern.beats:
                self._watch(worker, worker.liveness.gone_at())
        else:
            raise LocalViolation(f"the place of a peer is FRONT or BACK, not {event.place!r}")

    def _lost(self, event: PeerLost, now: float) -> None:
        if worker := self._workers.by_peer.get(event.peer):
            self._forget_worker(worker, event.reason or "its connection was closed", now)
        elif client := self._turns.by_peer.get(event.peer):
            self._forget_client(client, event.reason or "its connection was closed", now)

    def _forget_worker(self, worker: WorkerPeer, why: str, now: float) -> None:
        self._remark("lost", worker, why=why)
        if worker.state is not UNREADY:
            self._observer.went(worker, why, now)
        self._workers.leave(worker.peer)
        self._lose_request(worker, f"the worker was lost: {why}", now)

    def _forget_client(self, client: AddressedClient[WorkerPeer], why: str, now: float) -> None:
        self._turns.leave(client.peer)
        self._drop(Why.LOST, now, client.queued)
        self._observer.left(client, why, now)

    def _expel(self, peer: Any, reason: str, now: float) -> None:
        self._drop(Why.MALFORMED, now)
        self._out += (Warn("malformed", reason), Disconnect(peer, reason, Cause.FAULTY))

    def _blocked(self, event: PeerBlocked, _now: float) -> None:
        if worker := self._workers.by_peer.get(event.peer):
            self._workers.block(worker)
        else:
            self._turns.block(event.peer)

    def _writable(self, event: PeerWritable, _now: float) -> None:
        if worker := self._workers.by_peer.get(event.peer):
            self._workers.unblock(worker)
        else:
            self._turns.unblock(event.peer)

    # --- heartbeats -------------------------------------------------------------------------------
    def _watch(self, worker: WorkerPeer, at: float) -> None:
        worker.due_at = at
        self._sweep.arm(at)

    def _woken(self, _event: Wake, now: float) -> None:
        if now >= self._observer.flush_at:
            self._observer.flush_open_spans(now)
        if now < self._sweep.at:
            return
        if away_s := absence_s(self._sweep.at, now, self._policy.heartbeat.interval_s):
            for worker in self._workers:
                worker.liveness.excuse(away_s, now)
        for worker in self._sweep.due(self._workers.by_peer.values(), now):
            self._attend(worker, now)

    def _attend(self, worker: WorkerPeer, now: float) -> None:
        """Forget a silent worker, or send it a heartbeat if one is due."""
        liveness = worker.liveness
        if worker.state is not BUSY and now >= liveness.gone_at():
            reason = f"nothing came from it for {now - liveness.heard_at:.2f} s"
            self._out.append(Disconnect(worker.peer, reason, Cause.SILENT))
            self._forget_worker(worker, reason, now)
            return
        if worker.state is UNREADY:  # 6/PPP: no heartbeats before READY
            self._watch(worker, liveness.gone_at())
            return
        if now >= liveness.speak_at():
            liveness.spoke_at = now
            self._out.append(Send(worker.peer, [worker.words.heartbeat]))
            self._observer.beat(worker, now)
        self._watch(worker, liveness.speak_at() if worker.state is BUSY else liveness.next_at())

    # --- drain ------------------------------------------------------------------------------------
    def _drained(self, _event: Drain, now: float) -> None:
        if self._draining:
            return
        self._draining = True
        self._drop(Why.DRAINED, now, self._turns.clear())
        self._observer.drained(now)
        for client in list(self._turns):
            self._maybe_disconnect(client)
            if client.in_flight and client.is_read:
                client.is_read = False
                self._out.append(StopReading(client.peer))
        self._stop_at = now + self._policy.drain_timeout_s

    def _maybe_disconnect(self, client: AddressedClient[WorkerPeer]) -> None:
        """Disconnect a client without requests at workers, so it can use another queue at once."""
        if not client.in_flight:
            self._turns.leave(client.peer)
            self._out.append(Disconnect(client.peer, "the queue is shutting down", Cause.DONE))

    def _maybe_stop(self, now: float) -> None:
        if self._stopped or (self._workers.count(BUSY) and now < self._stop_at):
            return
        self._stopped = True
        self._stop_at = self._sweep.at = inf
        self._observer.stopped(now)
        self._out.append(Stopped())

    def flush_open_spans(self, now: float) -> None:
        """Journal the beginnings of requests in progress."""
        self._observer.flush_open_spans(now)

    def _remark(self, kind: str, worker: WorkerPeer, **facts: Any) -> None:
        if self._observer.makes_notes:
            known = {"worker": worker.peer, "state": worker.state.value}
            self._observer.remark(kind, known | facts, self._out)
