"""Broken MDP clients and workers: each is a real engine with one rule removed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from requite.core.slots import Slots
from requite.engine import Deliver, Effect, Fail, Input
from requite.errors import CallError, CallTimeout, NoService, TransportError
from requite.protocols.majordomo.calls import HELD
from requite.protocols.majordomo.client import MajordomoClient
from requite.protocols.majordomo.lanes import LaneClient
from requite.protocols.majordomo.worker import MajordomoWorker
from requite.request import Reply


# --- clients --------------------------------------------------------------------------------------
class _Client03:
    """Factory of a broken MDP 0.3 client. Clients of older dialects stay intact."""

    broken: type[MajordomoClient] = MajordomoClient

    def __new__(cls, dialect: Any, policy: Any, **given: Any) -> Any:
        kind = cls.broken if dialect.has_ids else LaneClient
        return kind(dialect, policy, **given)


class AnswersTwice(_Client03):
    class broken(MajordomoClient):
        def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
            for effect in super().handle(events, now):
                yield effect
                if isinstance(effect, Deliver) and isinstance(effect.what, Reply):
                    yield effect


class ForgetsToExpire(_Client03):
    class broken(MajordomoClient):
        def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
            return (e for e in super().handle(events, now) if not _fails_with(e, CallTimeout))


class LosesWhatWasSent(_Client03):
    class broken(MajordomoClient):
        def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
            return (e for e in super().handle(events, now) if not _fails_with(e, TransportError))


def _fails_with(effect: Effect, error: type[CallError]) -> bool:
    return isinstance(effect, Fail) and isinstance(effect.error, error)


class _SlotsWithoutSequence(Slots[Any]):
    """Matches a reply by its slot alone."""

    __slots__ = ()

    def _exact(self, request_id: int) -> int:
        slot = request_id >> 32
        return self._ids[slot] if self._held[slot] is not None else request_id

    def get(self, request_id: int) -> Any:
        return super().get(self._exact(request_id))

    def free(self, request_id: int) -> Any:
        return super().free(self._exact(request_id))


class TakesLateReplies(_Client03):
    class broken(MajordomoClient):
        def __init__(self, *args: Any, **given: Any) -> None:
            super().__init__(*args, **given)
            self._slots.__class__ = _SlotsWithoutSequence


class KeepsLanesOpen(LaneClient):
    """Reuses a connection on which the reply to an abandoned request may still arrive."""

    def _recall(self, call: Any, now: float) -> None:
        self._lanes.vacate(call.peer)
        self._release(call.peer, now)


def keeps_lanes_open(dialect: Any, policy: Any, **given: Any) -> Any:
    """Return a client for the dialect; the lane client is broken."""
    kind = MajordomoClient if dialect.has_ids else KeepsLanesOpen
    return kind(dialect, policy, **given)


class StreamsAnew(_Client03):
    class broken(MajordomoClient):
        def _may_go_again(self, call: Any) -> bool:
            return call.tries < self._retry.attempts and call.idempotent


class SendsAgainWhatMayHaveRun(_Client03):
    class broken(MajordomoClient):
        def _may_go_again(self, call: Any) -> bool:
            return call.tries < self._retry.attempts and not call.is_streaming


class TriesForEver(_Client03):
    class broken(MajordomoClient):
        def _may_go_again(self, call: Any) -> bool:
            return call.idempotent and not call.is_streaming


class BelievesNoService(_Client03):
    """Reports NO_SERVICE as not executed, even if a worker was lost with the request."""

    class broken(MajordomoClient):
        def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
            for effect in super().handle(events, now):
                if _fails_with(effect, NoService):
                    effect.error.may_have_executed = False
                yield effect


class SendsWhatIsTooLate(_Client03):
    class broken(MajordomoClient):
        def _joined(self, event: Any, now: float) -> None:
            super()._joined(event, now)
            for call in self.calls.values():
                if call.state is HELD and self._peer is not None:
                    self._transmit(call, now)


class SaysItHasNotRun(_Client03):
    class broken(MajordomoClient):
        def _fail(self, call: Any, error: Any, now: float) -> None:
            call.may_have_run = call.may_have_run and call.state is not HELD
            super()._fail(call, error, now)


class KeepsSlots(_Client03):
    class broken(MajordomoClient):
        def _fail(self, call: Any, error: Any, now: float) -> None:
            call.request_id = -1
            super()._fail(call, error, now)


class RemembersTokens(_Client03):
    class broken(MajordomoClient):
        def _submitted(self, asked: Any, now: float) -> None:
            super()._submitted(asked, now)
            self.seen = [*getattr(self, "seen", ()), asked.token]


class LeavesTooSoon(_Client03):
    class broken(MajordomoClient):
        def _beat(self, now: float) -> None:
            self._liveness.heard_at -= self._liveness.interval_s
            super()._beat(now)


# --- workers --------------------------------------------------------------------------------------
class NeverComesBack(MajordomoWorker):
    """Never reconnects."""

    def _connection_lost(self, reason: str, now: float) -> None:
        super()._connection_lost(reason, now)
        self._redial.at = float("inf")
        self._out = [e for e in self._out if type(e).__name__ != "Connect"]


class KeepsJobs(MajordomoWorker):
    """Never frees the capacity of abandoned requests."""

    def _finished(self, event: Any, now: float) -> None:
        if not event.token.abandoned:
            super()._finished(event, now)
