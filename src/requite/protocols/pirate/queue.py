"""The queue of the Pirates: between clients that ask again and workers that come and go.

    clients ──requests──► front │ back ──requests──► the worker that has been idle for longest
            ◄──replies───       │      ◄──replies───

One engine is both the Simple Pirate's queue and the Paranoid Pirate's; the latter has heartbeats in
both directions, and forgets a worker that is silent. Requests wait until a worker is idle; one that
was handed to a worker is never handed to another, since nothing on this wire tells whether it may
run twice. Its client knows, and asks again.

Where a worker is lost with a request, the client that waits for it alone is hung up on, so that it
asks again now and not when its time is over. Clients are known by addresses of the queue's own, one
per connection: a late reply never reaches a connection that asked for something else (I2).

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
from requite.core.observer import observer_of
from requite.core.sweep import Sweep
from requite.core.turns import Turns
from requite.engine import (
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
from requite.protocols.pirate.asker import Asker
from requite.protocols.pirate.crew import BUSY, IDLE, UNREADY, Crew, Hand
from requite.protocols.pirate.jobs import REQUESTS, QueueSnapshot, Why
from requite.protocols.pirate.policy import BACK, FRONT, QueuePolicy
from requite.protocols.pirate.recorders import NO_QUEUE_OBSERVER, QueueRecorder
from requite.protocols.pirate.wire import Envelope, Pattern, Ready


class PirateQueue(Machine):
    """Hands requests of its front to workers at its back; on which side a peer is, its place tells:
    FRONT or BACK. After `Drain` requests are left unread; `Stopped` follows when no worker has one
    any more.

    `first_address` should be random per start: a worker may still answer a former queue's client.
    So should `instance`: journals know the queue by it. `chronicle` takes down what happens to the
    requests that come by.
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
        self._turns: Turns[Asker[Hand]] = Turns(
            policy.queue_max, policy.queue_size_max, stops_at_max=True
        )
        self._crew = Crew()
        self._observer = observer_of(
            NO_QUEUE_OBSERVER if chronicle is None else QueueRecorder(chronicle, instance),
            notes=policy.notes,
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
        """Return a handler after which requests that wait go to workers that are idle."""

        def handle(event: Any, now: float) -> None:
            handler(event, now)
            self._dispatch(now)

        return handle

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        at = min(self._sweep.at, self._stop_at)
        at = min(at, self._observer.look_at)
        return None if at == inf else at

    def snapshot(self) -> QueueSnapshot:
        """Return the sizes of all tables."""
        crew = self._crew
        return QueueSnapshot(
            len(self._turns),
            self._turns.waiting,
            crew.count(UNREADY),
            crew.count(IDLE),
            crew.count(BUSY),
            self._requests,
            self._replies,
            dict(self._dropped),
            self._draining,
            self._stopped,
        )

    # --- messages ---------------------------------------------------------------------------------
    def _received(self, event: Received, now: float) -> None:
        peer, messages = event.peer, event.messages
        if hand := self._crew.by_peer.get(peer):
            self._from_worker(hand, messages, now)
        elif asker := self._turns.by_peer.get(peer):
            self._from_client(asker, messages, now)

    def _from_client(self, asker: Asker[Hand], messages: Iterable[Message], now: float) -> None:
        if self._draining:
            return
        try:
            for message in messages:
                body = wire.split(message).body
                if self._turns.push(asker, message, sum(map(len, message))):
                    self._out.append(StopReading(asker.peer))
                self._observer.accepted(asker, body, now)
        except RemoteViolation as violation:
            self._expel(asker.peer, f"a client broke the protocol: {violation}", now)
            self._forget_client(asker, "it broke the protocol", now)

    def _from_worker(self, hand: Hand, messages: Iterable[Message], now: float) -> None:
        hand.liveness.heard_at = now
        try:
            for message in messages:
                self._heard(hand, wire.decode_from_worker(self._pattern, message), now)
        except RemoteViolation as violation:
            self._expel(hand.peer, f"a worker broke the protocol: {violation}", now)
            self._forget_worker(hand, "it broke the protocol", now)

    def _heard(self, hand: Hand, said: wire.FromWorker, now: float) -> None:
        if isinstance(said, Ready):
            hand.words = said.words
            if hand.state is BUSY:  # it has begun anew
                self._lose_request(hand, "its worker began a new conversation", now)
            self._make_ready(hand, now)
            self._remark("ready", hand)
        elif isinstance(said, Envelope):
            self._take_reply(hand, said, now)
        elif hand.state is UNREADY:  # 6/PPP: the first message is READY
            self._drop(Why.UNREADY, now)

    def _take_reply(self, hand: Hand, reply: Envelope, now: float) -> None:
        if hand.state is not BUSY or reply.envelope != hand.envelope:
            self._take_stray_reply(hand, now)
            return
        asker = hand.asker
        assert asker is not None
        asker.in_hand.pop(hand, None)
        self._make_ready(hand, now)
        if asker.peer in self._turns.by_peer:
            self._replies += 1
            self._out.append(Send(asker.peer, [*reply.envelope[1:], *reply.body]))
            self._observer.answered(hand, reply.body, now)
            self._remark("replied", hand)
            if self._draining:
                self._maybe_see_off(asker)
        else:
            self._drop(Why.LEFT, now)

    def _take_stray_reply(self, hand: Hand, now: float) -> None:
        """Drop a reply to something that its worker does not have in hand. To what it has, no other
        reply will come: a worker speaks once per request.

        Guide, "Simple Pirate": a REQ worker then waits for the next. One that outlived the former
        queue says READY to none again. A Paranoid one has to say it first; until it does so, on a
        new connection, nobody knows what it is doing.
        """
        if hand.state is BUSY and self._pattern.beats:
            raise RemoteViolation("its reply is to something else than it was given")
        self._drop(Why.UNREADY if hand.state is UNREADY else Why.STRAY, now)
        if hand.state is not IDLE and not self._pattern.beats:
            self._lose_request(hand, "its worker answered something else", now)
            self._make_ready(hand, now)

    def _make_ready(self, hand: Hand, now: float) -> None:
        if hand.state is UNREADY:
            self._observer.came(hand, now)
        self._crew.ready(hand)
        if self._pattern.beats:
            self._watch(hand, hand.liveness.next_at())

    # --- requests ---------------------------------------------------------------------------------
    def _dispatch(self, now: float) -> None:
        """Hand on what waits, in turn, while there is an idle worker."""
        while self._crew.is_any_idle and not self._draining and (due := self._turns.pop()):
            asker, message = due
            hand = self._crew.take()
            hand.asker = asker
            hand.envelope = [asker.address, *wire.split(message).envelope]
            hand.liveness.spoke_at = now
            asker.in_hand[hand] = None
            self._requests += 1
            self._observer.dispatched(asker, hand, now)
            self._out.append(Send(hand.peer, wire.request(self._pattern, asker.address, message)))
            self._remark("dispatched", hand)
            if self._turns.resumes(asker):
                self._out.append(ResumeReading(asker.peer))

    def _lose_request(self, hand: Hand, why: str, now: float) -> None:
        """Give up a request whose worker is gone, and let its client know, if it waits for nothing
        else: to be hung up on is all that this wire can tell it."""
        asker = hand.asker
        if asker is None or self._turns.by_peer.get(asker.peer) is not asker:
            return
        self._drop(Why.LOST, now)
        self._observer.lost(hand, why, now)
        asker.in_hand.pop(hand, None)
        if not (asker.in_hand or asker.waiting):
            self._turns.leave(asker.peer)
            self._out.append(Disconnect(asker.peer, f"its request was lost: {why}"))

    def _drop(self, why: str, now: float, count: int = 1) -> None:
        """Count messages that nothing becomes of."""
        if not count:
            return
        self._dropped[why] += count
        if why not in REQUESTS:
            self._observer.dropped(why, now, count)
        self._observer.remark("dropped", {"why": why, "count": count}, self._out)

    # --- connections ------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined, now: float) -> None:
        if self._draining:
            self._out.append(Disconnect(event.peer, "the queue is shutting down"))
        elif event.place == FRONT:
            address = wire.new_address(self._next_address)
            self._next_address += 1
            self._turns.join(Asker(event.peer, address))
        elif event.place == BACK:
            hand = Hand(event.peer, self._policy.heartbeat, now)
            self._crew.by_peer[event.peer] = hand
            if self._pattern.beats:
                self._watch(hand, hand.liveness.gone_at())
        else:
            raise LocalViolation(f"a queue has a front and a back; {event.place!r} is neither")

    def _lost(self, event: PeerLost, now: float) -> None:
        if hand := self._crew.by_peer.get(event.peer):
            self._forget_worker(hand, event.reason or "its connection was closed", now)
        elif asker := self._turns.by_peer.get(event.peer):
            self._forget_client(asker, event.reason or "its connection was closed", now)

    def _forget_worker(self, hand: Hand, why: str, now: float) -> None:
        self._remark("lost", hand, why=why)
        if hand.state is not UNREADY:
            self._observer.went(hand, why, now)
        self._crew.leave(hand.peer)
        self._lose_request(hand, f"its worker is gone: {why}", now)

    def _forget_client(self, asker: Asker[Hand], why: str, now: float) -> None:
        self._turns.leave(asker.peer)
        self._drop(Why.LOST, now, len(asker.waiting))
        self._observer.left(asker, why, now)

    def _expel(self, peer: Any, reason: str, now: float) -> None:
        self._drop(Why.MALFORMED, now)
        self._out += (Warn("malformed", reason), Disconnect(peer, reason))

    def _blocked(self, event: PeerBlocked, _now: float) -> None:
        if hand := self._crew.by_peer.get(event.peer):
            self._crew.block(hand)
        else:
            self._turns.block(event.peer)

    def _writable(self, event: PeerWritable, _now: float) -> None:
        if hand := self._crew.by_peer.get(event.peer):
            self._crew.unblock(hand)
        else:
            self._turns.unblock(event.peer)

    # --- heartbeats -------------------------------------------------------------------------------
    def _watch(self, hand: Hand, at: float) -> None:
        hand.due_at = at
        self._sweep.arm(at)

    def _woken(self, _event: Wake, now: float) -> None:
        if now >= self._observer.look_at:
            self._observer.look(now)
        if now < self._sweep.at:
            return
        if away_s := absence_s(self._sweep.at, now, self._policy.heartbeat.interval_s):
            for hand in self._crew:
                hand.liveness.excuse(away_s, now)
        for hand in self._sweep.due(self._crew.by_peer.values(), now):
            self._look_at(hand, now)

    def _look_at(self, hand: Hand, now: float) -> None:
        """Forget a worker that is silent, or be heard by it."""
        liveness = hand.liveness
        if hand.state is not BUSY and now >= liveness.gone_at():
            reason = f"nothing came from it for {now - liveness.heard_at:.2f} s"
            self._out.append(Disconnect(hand.peer, reason))
            self._forget_worker(hand, reason, now)
            return
        if hand.state is UNREADY:  # 6/PPP: there is no conversation yet
            self._watch(hand, liveness.gone_at())
            return
        if now >= liveness.speak_at():
            liveness.spoke_at = now
            self._out.append(Send(hand.peer, [hand.words.heartbeat]))
            self._observer.beat(hand, now)
        self._watch(hand, liveness.speak_at() if hand.state is BUSY else liveness.next_at())

    # --- the end ----------------------------------------------------------------------------------
    def _drained(self, _event: Drain, now: float) -> None:
        if self._draining:
            return
        self._draining = True
        self._drop(Why.DRAINED, now, self._turns.clear())
        self._observer.drained(now)
        for asker in list(self._turns):
            self._maybe_see_off(asker)
            if asker.in_hand and asker.is_read:
                asker.is_read = False
                self._out.append(StopReading(asker.peer))
        self._stop_at = now + self._policy.drain_timeout_s

    def _maybe_see_off(self, asker: Asker[Hand]) -> None:
        """Hang up on a client whose requests no worker has: it may ask elsewhere at once."""
        if not asker.in_hand:
            self._turns.leave(asker.peer)
            self._out.append(Disconnect(asker.peer, "the queue is shutting down"))

    def _maybe_stop(self, now: float) -> None:
        if self._stopped or (self._crew.count(BUSY) and now < self._stop_at):
            return
        self._stopped = True
        self._stop_at = self._sweep.at = inf
        self._observer.stopped(now)
        self._out.append(Stopped())

    def tell_beginnings(self, now: float) -> None:
        """Let the journal, if one is kept, have the beginnings of what is under way."""
        self._observer.look(now)

    def _remark(self, kind: str, hand: Hand, **facts: Any) -> None:
        if self._observer.makes_notes:
            known = {"worker": hand.peer, "state": hand.state.value}
            self._observer.remark(kind, known | facts, self._out)
