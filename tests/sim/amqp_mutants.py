"""Broken RPC-over-AMQP engines: each is a real engine with one rule removed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tests.sim.parts import with_part

from requite.core.slots import Slots
from requite.engine import Cause, Deliver, Disconnect, Effect, Fail, Input, Send, Stopped
from requite.errors import CallTimeout
from requite.protocols.amqp import methods
from requite.protocols.amqp.caller import AmqpCaller
from requite.protocols.amqp.connected import WORK
from requite.protocols.amqp.control import Cancels
from requite.protocols.amqp.jobs import Why
from requite.protocols.amqp.request_queue import RequestQueue
from requite.protocols.amqp.responder import AmqpResponder
from requite.request import Reply


# --- callers --------------------------------------------------------------------------------------
class AnswersTwice(AmqpCaller):
    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        for effect in super().handle(events, now):
            yield effect
            if isinstance(effect, Deliver) and isinstance(effect.what, Reply):
                yield effect


class ForgetsToExpire(AmqpCaller):
    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        effects = super().handle(events, now)
        return (e for e in effects if not (type(e) is Fail and type(e.error) is CallTimeout))


class _AnySequence(Slots[Any]):
    """Matches a reply to whatever call occupies the slot now."""

    __slots__ = ()

    def get(self, request_id: int) -> Any:
        slot = request_id >> 32
        return self._held[slot] if slot < len(self._held) else None


TakesLateReplies = with_part(AmqpCaller, "_table", _AnySequence)


class JumblesPartials(AmqpCaller):
    """Puts each partial reply before the earlier ones."""

    def _take_partial(self, call: Any, source: Any, index: int, body: bytes, now: float) -> None:
        super()._take_partial(call, source, index, body, now)
        call.pieces = {each: [*pieces[-1:], *pieces[:-1]] for each, pieces in call.pieces.items()}


class MissesSome(AmqpCaller):
    """Accepts a final reply although partial replies are missing."""

    def _take_final(self, call: Any, source: Any, headers: Any, body: bytes, now: float) -> None:
        super()._take_final(call, source, {}, body, now)

    def _take_partial(self, call: Any, source: Any, index: int, body: bytes, now: float) -> None:
        if not call.pieces or source in call.pieces:
            super()._take_partial(call, source, index, body, now)


class SaysItHasNotRun(AmqpCaller):
    def _fail(self, call: Any, error: Any, now: float) -> None:
        super()._fail(call, error, now)
        error.may_have_executed = False


class TakesOneMore(AmqpCaller):
    def __init__(self, policy: Any, *args: Any, **given: Any) -> None:
        super().__init__(replace(policy, slots=policy.slots + 1), *args, **given)


class RemembersCalls(AmqpCaller):
    def _hold(self, call: Any, until: float) -> None:
        super()._hold(call, until)
        self.seen = [*getattr(self, "seen", ()), call.token]


class SendsWhatMayHaveRun(AmqpCaller):
    def _is_last(self, call: Any) -> bool:
        return call.tries >= self._policy.retry.attempts


class TriesForEver(AmqpCaller):
    def _is_last(self, call: Any) -> bool:
        return not call.idempotent


class IsImpatient(AmqpCaller):
    """Halves the attempt timeout."""

    def __init__(self, policy: Any, *args: Any, **given: Any) -> None:
        timeout = policy.retry.attempt_timeout
        retry = replace(policy.retry, attempt_timeout=timeout and timeout / 2)
        super().__init__(replace(policy, retry=retry), *args, **given)


class IgnoresReturns(AmqpCaller):
    def _came_back(self, returned: Any, message: Any, now: float) -> None:
        """Ignore the returned request."""


class KeepsTheOldQueue(AmqpCaller):
    """Keeps waiting for replies in a deleted queue."""

    def _lost_queue(self, heard: Any, message: Any, now: float) -> None:
        self._reply_path._is_consuming = False


class NeverBeats(AmqpCaller):
    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        effects = super().handle(events, now)
        return (e for e in effects if not (type(e) is Send and not e.message))


class WaitsForEver(AmqpCaller):
    """Never considers a silent RabbitMQ lost."""

    def _attend(self, now: float) -> None:
        if self._liveness is not None:
            self._liveness.heard_at = now
        super()._attend(now)


class HearsBadly(AmqpCaller):
    """Drops every tenth reply."""

    heard = 0

    def _replied(self, heard: Any, message: Any, now: float) -> None:
        self.heard += 1
        if self.heard % 10:
            super()._replied(heard, message, now)


class PublishesAnyhow(AmqpCaller):
    """Publishes held requests whose deadline has passed."""

    def _maybe_release(self, now: float) -> None:
        if self._reply_path.is_ready:
            for call in list(self._held):
                del self._held[call]
                self._transmit(call, now)


# --- responders -----------------------------------------------------------------------------------
class RunsForEver(AmqpResponder):
    """Runs a request however many workers it has crashed."""

    def __init__(self, assignment: Any, policy: Any, **given: Any) -> None:
        super().__init__(assignment, replace(policy, attempts_max=None), **given)


class TakesTooMany(AmqpResponder):
    def __init__(self, assignment: Any, policy: Any, **given: Any) -> None:
        super().__init__(assignment, replace(policy, prefetch=policy.prefetch + 1), **given)


class _StaysAway(RequestQueue):
    """Does not consume again after its queue is deleted."""

    def lost_consumer(self, cancelled: Any) -> None:
        self.is_consuming = False


StaysAway = with_part(AmqpResponder, "_queue", _StaysAway)


class NeverAcknowledges(AmqpResponder):
    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        effects = super().handle(events, now)
        return (e for e in effects if not (type(e) is Send and _is_ack(e)))


class AcknowledgesAtOnce(AmqpResponder):
    """Acknowledges a request before RabbitMQ confirms its reply."""

    def _publish(self, job: Any, headers: Any, body: bytes, tag: int | None) -> None:
        super()._publish(job, headers, body, None)
        if tag is not None:
            self._send(WORK, methods.ack(tag))


class AcknowledgesTwice(AmqpResponder):
    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        for effect in super().handle(events, now):
            yield effect
            if type(effect) is Send and _is_ack(effect):
                yield effect


class KeepsWhatIsLost(AmqpResponder):
    """Keeps requests of a closed channel: answers and acknowledges them on the next channel."""

    def _abandon_all(self, reason: str, now: float) -> None:
        """Abandon nothing."""


class _NoCancels(Cancels):
    def add(self, name: Any) -> None:
        """Store nothing."""


class ForgetsCancels(AmqpResponder):
    """Starts a request whose cancel arrived first."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._cancels = _NoCancels(1)


class LeavesAtOnce(AmqpResponder):
    """Stops without waiting for requests in flight."""

    def _maybe_stop(self, _now: float) -> None:
        if not self._stopped:
            self._stopped = True
            self._out.append(Stopped())


class DiesOfGarbage(AmqpResponder):
    def _drop(self, why: str, now: float) -> None:
        if why == Why.MALFORMED:
            raise KeyError(why)
        super()._drop(why, now)


class PunishesTheInnocent(AmqpResponder):
    """Disconnects from RabbitMQ when another client publishes a malformed request."""

    def _drop(self, why: str, now: float) -> None:
        super()._drop(why, now)
        if why == Why.MALFORMED and self._peer is not None:
            self._out.append(Disconnect(self._peer, "malformed", Cause.FAULTY))
            self._leave("malformed", now)


# --- bugs that the simulator found, put back in ---------------------------------------------------
class ForgetsCopies(AmqpResponder):
    """Discards a cancel after its first match."""

    def _give_up(self, name: Any, now: float) -> None:
        for job in self.jobs:
            if job.name == name and not job.abandoned:
                self.jobs.abandon(job, "the caller cancelled the request", self._out, now)
                self._send(WORK, methods.ack(job.tag))
                return
        self._cancels.add(name)

    _cancelled = _give_up


class WaitsForTheNextReturn(AmqpCaller):
    """Ignores a returned request while its call waits for a new reply queue."""

    def _came_back(self, returned: Any, message: Any, now: float) -> None:
        if not self._held:
            super()._came_back(returned, message, now)


def _is_ack(effect: Send) -> bool:
    return bool(effect.message) and effect.message[1].startswith(methods.BASIC_ACK)
