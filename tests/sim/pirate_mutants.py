"""Broken Pirate engines: each is a real engine with one rule removed.

If the rule belongs to a part of the engine, that part gets another class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from requite.core.turns import Turns
from requite.engine import Cause, Deliver, Disconnect, Effect, Fail, Input, Received, Send
from requite.errors import CallTimeout, RemoteViolation
from requite.protocols.pirate import wire
from requite.protocols.pirate.client import LazyPirate
from requite.protocols.pirate.queue import PirateQueue
from requite.protocols.pirate.server import PirateServer
from requite.protocols.pirate.worker import PirateWorker
from requite.protocols.pirate.workers import BUSY, WorkerSet


# --- clients --------------------------------------------------------------------------------------
class AnswersTwice(LazyPirate):
    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        for effect in super().handle(events, now):
            yield effect
            if isinstance(effect, Deliver):
                yield effect


class ForgetsToExpire(LazyPirate):
    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        effects = super().handle(events, now)
        return (e for e in effects if not (type(e) is Fail and type(e.error) is CallTimeout))


class KeepsItsSocket(LazyPirate):
    """Retries over the connection that timed out, so a late reply matches the next request."""

    def _recall(self, call: Any) -> None:
        if call.peer is not None:
            self._lanes.vacate(call.peer)
            self._lanes.rest(call.peer)
            call.peer = None


class SendsAgainWhatMayHaveRun(LazyPirate):
    def _interrupt(self, call: Any, reason: str, now: float) -> None:
        call.idempotent = True
        super()._interrupt(call, reason, now)


class TriesForEver(LazyPirate):
    def _try_again(self, call: Any, why: str, now: float) -> None:
        super()._try_again(call, why, now)
        call.tries = 1


class LosesWhatWasSent(LazyPirate):
    """Never ends a call whose connection is lost."""

    def _interrupt(self, call: Any, reason: str, now: float) -> None:
        call.deadline = inf
        self.calls.wait_until(call, inf)


class NeverDialsAgain(LazyPirate):
    def _supply(self, now: float) -> None:
        super()._supply(now)
        if self.calls.resent:
            self._out = [e for e in self._out if type(e).__name__ != "Connect"]


class RemembersTokens(LazyPirate):
    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._all: list[Any] = []

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        self._all += events
        return super().handle(events, now)


class SaysItHasNotRun(LazyPirate):
    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        for effect in super().handle(events, now):
            if isinstance(effect, Fail):
                effect.error.may_have_executed = False
            yield effect


# --- queues ---------------------------------------------------------------------------------------
class MostRecentlyUsed(PirateQueue):
    class _Workers(WorkerSet):
        def take(self) -> Any:
            hand, _ = self._idle.popitem()
            hand.state = BUSY
            return hand

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._workers = self._Workers()


class Redelivers(PirateQueue):
    """Redelivers the request of a lost worker, even if it must not run twice."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._bodies: dict[Any, Any] = {}

    def _dispatch(self, now: float) -> None:
        before = len(self._out)
        super()._dispatch(now)
        for effect in self._out[before:]:
            if isinstance(effect, Send) and len(effect.message) > 1:
                self._bodies[effect.peer] = list(effect.message)

    def _lose_request(self, hand: Any, why: str, now: float) -> None:
        message = self._bodies.get(hand.peer)
        asker = hand.client
        if message and asker and self._turns.by_peer.get(asker.peer) is asker:
            asker.in_flight.pop(hand, None)
            del message[: 2 if self._pattern is wire.Pattern.SIMPLE else 1]
            self._turns.push(asker, message, sum(map(len, message)))
            return
        super()._lose_request(hand, why, now)


class KeepsWhatWasGivenUp(PirateQueue):
    """Dispatches requests of clients that have disconnected."""

    def _forget_client(self, asker: Any, why: str, now: float) -> None:
        del self._turns.by_peer[asker.peer]


class HandsOutOnTop(PirateQueue):
    """Treats a heartbeat as READY, like the queue in the ZeroMQ Guide."""

    def _heard(self, hand: Any, said: Any, now: float) -> None:
        if isinstance(said, wire.Heartbeat):
            self._workers.ready(hand)
        super()._heard(hand, said, now)


class TakesAnyWord(PirateQueue):
    """Dispatches to workers that have not sent READY."""

    def _joined(self, event: Any, now: float) -> None:
        super()._joined(event, now)
        if hand := self._workers.by_peer.get(event.peer):
            self._make_ready(hand, now)


class SendsToTheFirst(PirateQueue):
    """Sends every reply to the first client."""

    def _take_reply(self, hand: Any, reply: Any, now: float) -> None:
        if hand.client is not None and self._turns.by_peer:
            hand.client = next(iter(self._turns.by_peer.values()))
        super()._take_reply(hand, reply, now)


class NeverBeats(PirateQueue):
    def _attend(self, hand: Any, now: float) -> None:
        hand.liveness.spoke_at = now
        super()._attend(hand, now)


class TrustsForEver(PirateQueue):
    """Never considers a worker lost."""

    def _attend(self, hand: Any, now: float) -> None:
        hand.liveness.heard_at = now
        super()._attend(hand, now)


class JudgesTheBusy(PirateQueue):
    """Considers a busy, silent worker lost after half of the permitted silence."""

    def _attend(self, hand: Any, now: float) -> None:
        if now - hand.liveness.heard_at > hand.liveness.silence_s / 2:
            self._out.append(Disconnect(hand.peer, "nothing came from it", Cause.SILENT))
            self._forget_worker(hand, "nothing came from it", now)
            return
        super()._attend(hand, now)


class RemembersEverybody(PirateQueue):
    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._all: list[Any] = []

    def _joined(self, event: Any, now: float) -> None:
        self._all.append(event)
        super()._joined(event, now)


class LetsWait(PirateQueue):
    """Dispatches on messages from workers, but not on those from clients."""

    _by_client = False

    def _from_client(self, asker: Any, messages: Any, now: float) -> None:
        self._by_client = True
        super()._from_client(asker, messages, now)

    def _dispatch(self, now: float) -> None:
        if not self._by_client:
            super()._dispatch(now)
        self._by_client = False


class DiesOfGarbage(PirateQueue):
    def _expel(self, peer: Any, reason: str, now: float) -> None:
        raise RemoteViolation(reason)


class LosesSome(PirateQueue):
    """Drops every tenth reply."""

    def _take_reply(self, hand: Any, reply: Any, now: float) -> None:
        super()._take_reply(hand, reply, now)
        if self._replies % 10 == 9:
            self._out = [e for e in self._out if not (type(e) is Send and e.message[0] == b"")]


# --- servers and workers --------------------------------------------------------------------------
class StartsWhatWasGivenUp(PirateServer):
    """Keeps the requests of clients that have disconnected."""

    class _Turns(Turns[Any]):
        def leave(self, peer: Any) -> Any:
            return self.by_peer.pop(peer, None)

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        policy = self._policy
        self._turns = self._Turns(
            policy.queue_max, policy.queue_size_max, stops_at_max=True, one_at_a_time=True
        )


class SwapsReplies(PirateServer):
    """Sends each reply to the client of the newest request."""

    def _finished(self, event: Any, now: float) -> None:
        if event.token in self.jobs and len(self.jobs) > 1:
            newest = list(self.jobs)[-1]
            ours, theirs = self.jobs[event.token], self.jobs[newest]
            self.jobs[event.token], self.jobs[newest] = theirs, ours
        super()._finished(event, now)


class KeepsJobs(PirateServer):
    def _finished(self, event: Any, now: float) -> None:
        asker = self.jobs.get(event.token)
        super()._finished(event, now)
        if asker is not None and event.token.abandoned:
            self.jobs[event.token] = asker


class NeverSaysReadyAgain(PirateWorker):
    def _joined(self, event: Any, now: float) -> None:
        super()._joined(event, now)
        if self._said_ready:
            self._out.pop()
        self._said_ready = True

    _said_ready = False


class NeverBreathes(PirateWorker):
    """Sends no heartbeats while it runs a request."""

    def _beat(self, now: float) -> None:
        if self._job is not None:
            self._liveness.spoke_at = now
        super()._beat(now)


class LeavesTooSoon(PirateWorker):
    """Considers the queue lost after 1.5 heartbeat intervals."""

    def _beat(self, now: float) -> None:
        if now - self._liveness.heard_at > 1.5 * self._liveness.interval_s:
            self._liveness.heard_at = -inf
        super()._beat(now)


class ForgetsReceived(PirateWorker):
    """Does not count incoming messages as signs of life of the queue."""

    def _received(self, event: Received, now: float) -> None:
        heard_at = self._liveness.heard_at
        super()._received(event, now)
        self._liveness.heard_at = heard_at
