"""Broken scalability-protocol engines: each is a real engine with one rule removed.

If the rule belongs to a part of the engine, that part gets another class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from tests.sim.parts import with_part

from requite.core.turns import Turns
from requite.engine import Cause, Deliver, Disconnect, Effect, Fail, Input, Received, Send
from requite.errors import CallTimeout
from requite.protocols.scalability.channels import Channel, Channels
from requite.protocols.scalability.device import ScalabilityDevice
from requite.protocols.scalability.raw import ReturnPaths
from requite.protocols.scalability.rep import ScalabilityWorker
from requite.protocols.scalability.req import ScalabilityClient
from requite.request import Reply
from requite.sim.scalability.parties import one_by_one


class _Client(ScalabilityClient):
    """A client that handles one event at a time and yields one effect at a time."""

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        for event in events:
            for effect in super().handle([event], now):
                yield from one_by_one(effect)


class _Worker(ScalabilityWorker):
    """A worker that handles one event at a time and yields one effect at a time."""

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        for event in events:
            for effect in super().handle([event], now):
                yield from one_by_one(effect)


# --- clients --------------------------------------------------------------------------------------
class AnswersTwice(_Client):
    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        for effect in super().handle(events, now):
            yield effect
            if isinstance(effect, Deliver) and isinstance(effect.what, Reply):
                yield effect


class ForgetsToExpire(_Client):
    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        effects = super().handle(events, now)
        return (e for e in effects if not (type(e) is Fail and type(e.error) is CallTimeout))


class TakesStrayReplies(ScalabilityClient):
    """Matches a reply to an unknown request with the oldest pending call."""

    def _received(self, event: Received, now: float) -> None:
        messages = []
        for (payload,) in event.messages:
            known = self._pending or {payload[:4]: None}
            messages.append([payload if payload[:4] in known else next(iter(known)) + payload[4:]])
        super()._received(Received(event.peer, messages), now)


class NeverSendsAgain(ScalabilityClient):
    def _resend(self, call: Any, now: float) -> None:
        self.calls.wait_until(call, call.deadline)


class SpendsItsBudgetForGood(ScalabilityClient):
    """Refills the resend budget only with new calls, not over time."""

    def _resend(self, call: Any, now: float) -> None:
        self._budget._earned_at = now
        super()._resend(call, now)


class SendsAgainTooSoon(ScalabilityClient):
    def _transmit(self, call: Any, channel: Channel, now: float) -> None:
        super()._transmit(call, channel, now)
        if call.due_at != call.deadline:
            self.calls.wait_until(call, call.due_at - call.resend_s / 2)


class SendsAgainWhatMayHaveRun(ScalabilityClient):
    def _interrupt(self, call: Any, reason: str, now: float) -> None:
        self._hold(call)


class TriesForEver(ScalabilityClient):
    def _is_last(self, call: Any) -> bool:
        return False


class SendsWhatIsTooLate(ScalabilityClient):
    """Sends held requests although their deadline has passed."""

    def _release(self, now: float) -> None:
        for call in self._held:
            call.deadline += 1000
        super()._release(now)
        for call in self.calls.values():
            call.deadline -= 1000 * (call.deadline > now + 900)


class SaysItHasNotRun(ScalabilityClient):
    def _fail(self, call: Any, error: Any, now: float) -> None:
        super()._fail(call, error, now)
        error.may_have_executed = False


class TakesNoNotice(ScalabilityClient):
    """Ignores back-pressure: keeps sending to a blocked channel."""

    def _blocked(self, event: Any, now: float) -> None:
        """Ignore the event."""


class WaitsForItsTimer(ScalabilityClient):
    """Does not resend requests lost with their channel."""

    def _lost(self, event: Any, now: float) -> None:
        self._channels.leave(event.peer)


class HasNoLimit(ScalabilityClient):
    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.calls.slots = 1000


class HoldsOn(ScalabilityClient):
    """Keeps calls held when a channel becomes writable."""

    def _writable(self, event: Any, now: float) -> None:
        self._channels.unblock(event.peer)


class RemembersTokens(ScalabilityClient):
    def _hold(self, call: Any) -> None:
        super()._hold(call)
        self.seen = [*getattr(self, "seen", ()), call.token]


class KeepsTags(ScalabilityClient):
    """Keeps abandoned calls in the table of pending ones."""

    def _forget(self, call: Any) -> None:
        super()._forget(call)
        self._pending[call.tag] = call


class _SameForEver(Channels):
    """Always picks the first channel."""

    __slots__ = ()

    def next(self) -> Channel | None:
        return next((channel for channel in self._by_peer.values() if channel.is_open), None)

    def next_but(self, peer: Any) -> Channel | None:
        return self.next()


class _Backwards(Channels):
    """Picks channels of the lowest priority first."""

    __slots__ = ()

    def _choose_tier(self) -> None:
        self._tiers = dict(sorted(self._tiers.items(), reverse=True))
        super()._choose_tier()


class _WithoutWeights(Channels):
    __slots__ = ()

    def join(self, peer: Any, place: Any) -> None:
        super().join(peer, place._replace(weight=1))


SameForEver = with_part(ScalabilityClient, "_channels", _SameForEver)
Backwards = with_part(ScalabilityClient, "_channels", _Backwards)
WithoutWeights = with_part(ScalabilityClient, "_channels", _WithoutWeights)


# --- workers --------------------------------------------------------------------------------------
class _OneAfterTheOther(Turns[Any]):
    """Serves one channel until its queue is empty."""

    __slots__ = ()

    def pop(self) -> Any:
        due = super().pop()
        if due is not None and due[0].has_turn:
            self.line.remove(due[0])
            self.line.appendleft(due[0])
        return due


class _ReadsOn(Turns[Any]):
    """Never stops reading, however much is queued."""

    __slots__ = ()

    def push(self, caller: Any, request: Any, size: int) -> bool:
        super().push(caller, request, size)
        caller.is_read = True
        return False


class _SwapsRequests(Turns[Any]):
    """Attributes a request to another channel than the one it arrived on."""

    __slots__ = ()

    def pop(self) -> Any:
        due = super().pop()
        others = [caller for caller in self if due is not None and caller is not due[0]]
        return (others[0], due[1]) if others else due


class _NeverReadsAgain(Turns[Any]):
    __slots__ = ()

    def resumes(self, caller: Any) -> bool:
        return False


NeverReadsAgain = with_part(ScalabilityWorker, "_turns", _NeverReadsAgain)
ServesOneAfterTheOther = with_part(ScalabilityWorker, "_turns", _OneAfterTheOther)
ReadsOn = with_part(ScalabilityWorker, "_turns", _ReadsOn)
SwapsRequests = with_part(ScalabilityWorker, "_turns", _SwapsRequests)


class StartsWhatWasLost(ScalabilityWorker):
    """Moves the requests of a lost channel to another one."""

    def _lost(self, event: Any, now: float) -> None:
        caller = self._turns.by_peer.get(event.peer)
        waiting = [] if caller is None else list(caller.waiting)
        super()._lost(event, now)
        for heir in list(self._turns)[:1]:
            for size, request in waiting:
                self._turns.push(heir, request, size)


class WorksForNobody(ScalabilityWorker):
    """Never frees the capacity of abandoned requests."""

    def _finished(self, event: Any, now: float) -> None:
        if not event.token.abandoned:
            super()._finished(event, now)


class TakesTooMany(ScalabilityWorker):
    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self._capacity += 1


class TakesDeepRequests(ScalabilityWorker):
    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self._hops += 1


class DiesOfGarbage(ScalabilityWorker):
    def _refuse(self, payload: bytes, now: float) -> None:
        raise KeyError(payload[:4])


class PunishesTheInnocent(_Worker):
    """Disconnects all peers when one breaks the protocol."""

    def _refuse(self, payload: bytes, now: float) -> None:
        super()._refuse(payload, now)
        for caller in list(self._turns):
            self._out.append(Disconnect(caller.peer, "malformed", Cause.FAULTY))
            self._turns.leave(caller.peer)


# --- devices --------------------------------------------------------------------------------------
class GoesRoundAndRound(ScalabilityDevice):
    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self._hops = 100


class HoldsForEver(ScalabilityDevice):
    """Never releases held requests."""

    def _release(self, now: float) -> None:
        self._stuck_at = inf


class ReadsAndReads(ScalabilityDevice):
    """Applies no back-pressure."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self._turns.__class__ = _ReadsOn


class SwapsBodies(ScalabilityDevice):
    """Swaps the bodies of two requests that arrive in one read."""

    def handle(self, events: Sequence[Input], now: float) -> Any:
        for event in events:
            if isinstance(event, Received) and len(event.messages) > 1:
                first, second = event.messages[0][0], event.messages[1][0]
                event.messages[0][0] = first[:8] + second[8:]
                event.messages[1][0] = second[:8] + first[8:]
        return super().handle(events, now)


class LosesSome(ScalabilityDevice):
    """Drops every tenth message."""

    sent = 0

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        for effect in super().handle(events, now):
            self.sent += isinstance(effect, Send)
            if not isinstance(effect, Send) or self.sent % 10:
                yield effect


class GivesUpAtOnce(ScalabilityDevice):
    """Drops held requests when a channel becomes writable."""

    def _writable(self, event: Any, now: float) -> None:
        self._channels.unblock(event.peer)
        self._give_up(now)


class RemembersEverybody(ScalabilityDevice):
    """Adds an entry to a new table for each peer, and never removes it."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.seen: list[Any] = []

    def _joined(self, event: Any, now: float) -> None:
        super()._joined(event, now)
        self.seen.append(event.place)


class _OneIdForAll(ReturnPaths):
    """Gives all channels the same id."""

    __slots__ = ()

    def join(self, peer: Any) -> Any:
        caller = super().join(peer)
        del self.by_tag[caller.tag]
        caller.tag = b"\0\0\0\1"
        self.by_tag[caller.tag] = caller
        return caller

    def leave(self, caller: Any) -> None:
        self.by_tag.setdefault(caller.tag, caller)
        super().leave(caller)


OneIdForAll = with_part(ScalabilityDevice, "_paths", _OneIdForAll)


class CountsFromOne(ScalabilityClient):
    """Starts with request id 1 in every client."""

    def __init__(self, policy: Any, *, first_id: int, **given: Any) -> None:
        super().__init__(policy, first_id=1, **given)
