"""Broken Freelance engines: each is a real engine with one rule removed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.sim.parts import with_part

from requite.core.turns import Turns
from requite.engine import Cause, Deliver, Disconnect, Effect, Fail, Input, Send
from requite.errors import CallTimeout
from requite.protocols.freelance import wire
from requite.protocols.freelance.agent import AgentClient
from requite.protocols.freelance.failover import FailoverClient
from requite.protocols.freelance.server import FreelanceServer
from requite.protocols.freelance.shotgun import ShotgunClient
from requite.request import Reply


# --- clients of any model -------------------------------------------------------------------------
class AnswersTwice(AgentClient):
    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        for effect in super().handle(events, now):
            yield effect
            if isinstance(effect, Deliver) and isinstance(effect.what, Reply):
                yield effect


class ForgetsToExpire(AgentClient):
    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        effects = super().handle(events, now)
        return (e for e in effects if not (type(e) is Fail and type(e.error) is CallTimeout))


class SaysItHasNotRun(AgentClient):
    def _fail(self, call: Any, error: Any, now: float) -> None:
        super()._fail(call, error, now)
        error.may_have_executed = False


class HasNoLimit(AgentClient):
    def _submitted(self, asked: Any, now: float) -> None:
        self.calls.slots = len(self.calls) + 1
        super()._submitted(asked, now)


class RemembersCalls(AgentClient):
    def _hold(self, call: Any, until: float) -> None:
        super()._hold(call, until)
        self.seen = [*getattr(self, "seen", ()), call.token]


class SendsWhatMayHaveRun(AgentClient):
    def _is_last(self, call: Any) -> bool:
        return call.tries >= self._retry.attempts


class TriesForEver(AgentClient):
    def _is_last(self, call: Any) -> bool:
        return not call.idempotent


# --- model three ----------------------------------------------------------------------------------
class TakesAnyReply(AgentClient):
    """Matches a reply to an unknown request with the oldest pending call."""

    def _take(self, message: Any, now: float) -> None:
        if len(message) > 1 and message[0] not in self._pending and self._pending:
            message = [next(iter(self._pending)), *message[1:]]
        super()._take(message, now)


class NeverPings(AgentClient):
    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        effects = super().handle(events, now)
        return (e for e in effects if not (type(e) is Send and e.message == (wire.PING,)))


class BelievesForEver(AgentClient):
    """Never considers a silent server lost."""

    def _attend(self, now: float) -> None:
        for server in self._servers.values():
            server.liveness.silence_s = 1e9
        super()._attend(now)


class IsImpatient(AgentClient):
    """Considers a server lost after 1.05 ping intervals of silence."""

    def _attend(self, now: float) -> None:
        for server in self._servers.values():
            server.liveness.silence_s = 1.05 * self._policy.ping.interval_s
        super()._attend(now)


class ChangesItsMind(AgentClient):
    """Sends to the server that joined last."""

    def _choose(self, call: Any) -> Any:
        return next((s for s in reversed(self._live.values()) if s.is_open), None)


class TakesNoNotice(AgentClient):
    """Ignores back-pressure: keeps sending to a blocked server."""

    def _blocked(self, event: Any, now: float) -> None:
        """Ignore the event."""


class WaitsForGodot(AgentClient):
    """Holds requests lost with their server until another server joins."""

    def _interrupt(self, call: Any, reason: str, now: float) -> None:
        self._hold(call, call.deadline)


# --- models one and two ---------------------------------------------------------------------------
class SendsOneAfterTheOther(FailoverClient):
    """Reuses connections on which a reply is still due."""

    def _occupy(self, place: Any, call: Any, now: float) -> None:
        super()._occupy(place, call, now)
        self._line[place].idle |= call.peers


class KeepsTheLane(FailoverClient):
    """Keeps the connection of an abandoned attempt, so a late reply matches the next request."""

    def _recall(self, call: Any) -> None:
        for peer in call.peers:
            self._lanes_with(peer).vacate(peer)
            self._lanes_with(peer).rest(peer)
        call.peers.clear()


class HitsOne(ShotgunClient):
    """Sends each request to one server only."""

    def _maybe_send(self, call: Any, now: float) -> bool:
        if call.peers:
            return True
        everybody = self._open
        self._open = dict(list(everybody.items())[:1])
        try:
            return super()._maybe_send(call, now)
        finally:
            self._open = everybody


class ShootsAgain(ShotgunClient):
    """Sends every request to all servers again when a server joins."""

    def _joined(self, event: Any, now: float) -> None:
        for call in self.calls.values():
            call.peers.clear()
        super()._joined(event, now)


class TakesTheWrongAnswer(ShotgunClient):
    def _take(self, message: Any, now: float) -> None:
        if len(message) > 2 and message[1] not in self._pending and self._pending:
            message = [b"", next(iter(self._pending)), *message[2:]]
        super()._take(message, now)


# --- servers --------------------------------------------------------------------------------------
class SaysNothingWhenBusy(FreelanceServer):
    """Answers pings only while a handler is free."""

    def _take(self, caller: Any, message: Any, now: float) -> None:
        if message == [wire.PING] and len(self.jobs) >= self._policy.capacity:
            return
        super()._take(caller, message, now)


class DiesOfGarbage(FreelanceServer):
    def _refuse(self, violation: Any, now: float) -> None:
        raise KeyError(str(violation))


class PunishesTheInnocent(FreelanceServer):
    """Disconnects all clients when one breaks the protocol."""

    def _refuse(self, violation: Any, now: float) -> None:
        super()._refuse(violation, now)
        for caller in list(self._turns):
            self._out.append(Disconnect(caller.peer, "malformed", Cause.FAULTY))
            self._turns.leave(caller.peer)


class TakesTooMany(FreelanceServer):
    def __init__(self, policy: Any, **given: Any) -> None:
        super().__init__(policy, **given)
        object.__setattr__(self._policy, "capacity", policy.capacity + 1)


class WorksForNobody(FreelanceServer):
    """Never frees the capacity of abandoned requests."""

    def _finished(self, event: Any, now: float) -> None:
        if not event.token.abandoned:
            super()._finished(event, now)


class StartsWhatWasLost(FreelanceServer):
    """Starts a queued request of a client that has disconnected."""

    def _lost(self, event: Any, now: float) -> None:
        caller = self._turns.by_peer.get(event.peer)
        if caller is not None and caller.waiting:
            self._deliver(caller, caller.waiting[0][1], now)
        super()._lost(event, now)


class JumblesPartials(FreelanceServer):
    """Puts each partial reply before the earlier ones."""

    def _produced(self, event: Any, now: float) -> None:
        before, event.token.joined = event.token.joined or [], None
        super()._produced(event, now)
        event.token.joined = [*(event.token.joined or ()), *before]


class LosesSome(FreelanceServer):
    """Drops every tenth request."""

    taken = 0

    def _take(self, caller: Any, message: Any, now: float) -> None:
        self.taken += 1
        if self.taken % 10:
            super()._take(caller, message, now)


class _OneAfterTheOther(Turns[Any]):
    """Serves one client until its queue is empty."""

    __slots__ = ()

    def pop(self) -> Any:
        due = super().pop()
        if due is not None and due[0].waiting:
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


class _NeverReadsAgain(Turns[Any]):
    __slots__ = ()

    def resumes(self, caller: Any) -> bool:
        return False


ServesOneAfterTheOther = with_part(FreelanceServer, "_turns", _OneAfterTheOther)
ReadsOn = with_part(FreelanceServer, "_turns", _ReadsOn)
NeverReadsAgain = with_part(FreelanceServer, "_turns", _NeverReadsAgain)


# --- bugs that the simulator found, put back in ---------------------------------------------------
class AsksTooLate(ShotgunClient):
    """Sends requests whose deadline has passed to a server that joins."""

    def _joined(self, event: Any, now: float) -> None:
        self._open[event.peer] = True
        self._release(now)
        for call in list(self.calls.values()):
            self._maybe_send(call, now)
