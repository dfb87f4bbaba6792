"""Broken Titanics: each breaks one rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from requite.engine import Effect, Finished, Input
from requite.errors import CallError, RemoteFailure
from requite.protocols.titanic.attempts import Attempts
from requite.protocols.titanic.collecting import Collecting
from requite.protocols.titanic.dispatch import Dispatcher
from requite.protocols.titanic.engine import TitanicEngine
from requite.protocols.titanic.inputs import Asked
from requite.protocols.titanic.intake import Intake
from requite.protocols.titanic.requests import (
    DurableRequest,
    Lane,
    Owner,
    RecoveredRequest,
    Register,
)
from requite.protocols.titanic.wire import OK, REPLY, SERVICES, decode_ticket, encode_ticket
from requite.request import Reply, Status
from requite.sim.titanic.process import TitanicParts
from requite.sim.titanic.store import SimStore
from requite.titanic.bound import Bound
from requite.titanic.compaction import Compaction
from requite.titanic.index import Index


# --- engines --------------------------------------------------------------------------------------
class AcknowledgesAtOnce(TitanicEngine):
    """Answers 200 before the request is stored."""

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        effects = list(super().handle(events, now))
        for request in [request for request in self._core.register if request.waiting]:
            tokens, request.waiting = request.waiting or [], []
            answer = (OK, encode_ticket(request.uuid))
            effects += [Finished(token, answer, Status.OK) for token in tokens]
        return effects


class ReportsWhatIsNotStored(Attempts):
    """Hands a reply over before it is stored."""

    def _keep_reply(self, request: DurableRequest, now: float) -> None:
        super()._keep_reply(request, now)
        self._reply_stored(request, None, now)


class KeepsNoReply(Attempts):
    """Does not store replies."""

    def _keep_reply(self, request: DurableRequest, now: float) -> None:
        self._reply_stored(request, None, now)


class GivesOnce(TitanicEngine):
    """Removes a reply once it has been fetched."""

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        effects = list(super().handle(events, now))
        asked = {e.token: e.frames for e in events if isinstance(e, Asked) and e.service == REPLY}
        given = [e for e in effects if isinstance(e, Finished) and e.token in asked]
        for effect in given:
            if effect.frames[0] == OK:
                request = self._core.register.find(bytes.fromhex(asked[effect.token][0].decode()))
                if request is not None and request.closing is None:
                    self._collecting.begin_closing(request, [], expired=False)
        return effects


class MixesReplies(TitanicEngine):
    """Swaps two replies that are fetched in one turn."""

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        effects = list(super().handle(events, now))
        at = [i for i, e in enumerate(effects) if isinstance(e, Finished) and len(e.frames) == 2]
        replies = [i for i in at if effects[i].frames[1].startswith(b"re:")]  # type: ignore[union-attr]
        if len(replies) > 1:
            one, two = replies[0], replies[1]
            first, second = effects[one], effects[two]
            assert isinstance(first, Finished)
            assert isinstance(second, Finished)
            effects[one] = replace(first, frames=second.frames)
            effects[two] = replace(second, frames=first.frames)
        return effects


class ForgetsKeys(Intake):
    def _is_known(self, token: Any, owner: Owner, key: bytes, frames: Sequence[bytes]) -> bool:
        return False


class SharesKeys(Register):
    """Finds keys whatever their owner."""

    def uuid_of(self, owner: bytes, key: bytes) -> bytes | None:
        return next((uuid for (_, known), uuid in self._by_key.items() if known == key), None)


class ServesStrangers(Collecting):
    """Returns a reply to everybody that has the ticket."""

    def reply(self, token: Any, frames: Sequence[bytes], owner: bytes, now: float) -> None:
        super().reply(token, frames, _owner_of(self._core.register, frames, owner), now)


class ClosesForStrangers(Collecting):
    """Closes a request for everybody that has the ticket."""

    def close(self, token: Any, frames: Sequence[bytes], owner: bytes, now: float) -> None:
        super().close(token, frames, _owner_of(self._core.register, frames, owner), now)


def _owner_of(register: Register, frames: Sequence[bytes], owner: bytes) -> bytes:
    """Return the owner of the request with that ticket, or else `owner`."""
    request = register.find(decode_ticket(frames[0]))
    return owner if request is None else request.owner.name


class SendsForNobody(Dispatcher):
    """Sends requests without their owners."""

    def submit(self, request: DurableRequest, lane: Lane, now: float) -> None:
        emit, sent = self._emit, list[Any]()
        self._emit = sent.append
        super().submit(request, lane, now)
        self._emit = emit
        request.asked = replace(sent[0], principal=b"")
        emit(request.asked)


class ForgetsOwners(TitanicEngine):
    """Forgets the owners of requests when it restarts."""

    def _take_over(self, found: RecoveredRequest) -> DurableRequest:
        found.owner = b""
        return super()._take_over(found)


class TriesForEver(Attempts):
    """Retries forever, whatever the limit."""

    def poison(self, request: DurableRequest, reason: str, now: float) -> None:
        self._core.dispatcher.rest(request, now + 0.05)


class RetriesAnswers(Attempts):
    """Retries a request although its service refuses it each time."""

    def attempt_ended(
        self, request: DurableRequest, outcome: Reply | CallError, now: float
    ) -> None:
        if isinstance(outcome, RemoteFailure):
            outcome.is_final = False
        super().attempt_ended(request, outcome, now)


class GivesReasonsAsReplies(Attempts):
    """Stores the reason of a negative reply as a reply."""

    def _keep_reply(self, request: DurableRequest, now: float) -> None:
        request.is_negative = False
        super()._keep_reply(request, now)


class GivesUpAtOnce(Attempts):
    """Poisons a request on its first failure."""

    def _failed(self, request: DurableRequest, error: Any, lane: Lane, now: float) -> None:
        self.poison(request, str(error), now)


class LosesWhatIsTurnedAway(Dispatcher):
    def put_back(self, request: DurableRequest, lane: Lane, now: float) -> None:
        self.leave_alone(lane, now)


class SendsAll(Dispatcher):
    """Ignores send windows."""

    def pump(self, now: float) -> None:
        for lane in list(self.lanes.values()):
            while lane.queue.length and now < lane.usable_until and not self.halted:
                request = lane.queue.pop(lambda _owner: True)
                assert request is not None
                self._send(request, lane, now)
        super().pump(now)


class AsksForEach(Dispatcher):
    """Checks the service again for each request."""

    def seen(self, lane: Lane, now: float) -> None:
        lane.usable_until = now + 1e-3


class ClosesInMemory(Collecting):
    """Confirms a close before it is stored."""

    def begin_closing(self, request: DurableRequest, tokens: list[Any], *, expired: bool) -> None:
        super().begin_closing(request, tokens, expired=expired)
        self._core.entries.pop()
        self._core.entered.pop()
        self._closed(request, None, 0.0)


class KeepsKeys(Register):
    def expire_keys(self, now: float) -> float | None:
        return None


class DiesOfGarbage(TitanicEngine):
    def _other_service(
        self, token: Any, service: str, frames: Sequence[bytes], owner: bytes, now: float
    ) -> None:
        assert service in SERVICES
        assert all(len(frame) < 1000 for frame in frames)
        super()._other_service(token, service, frames, owner, now)


class IgnoresItsEnd(TitanicEngine):
    def _maybe_stop(self) -> None:
        """Never stop."""

    def _drain_timed_out(self, _now: float) -> None:
        """Never stop."""


# --- stores ---------------------------------------------------------------------------------------
class ForgetsClosed(Index):
    """Lets compaction drop every CLOSED record at once."""

    def _maybe_forget(self, uuid: bytes, item: Any) -> None:
        item.others, item.until_us = None, 0
        super()._maybe_forget(uuid, item)


class MovesNothing(Compaction):
    """Removes segments without copying their live records."""

    def _copy(self, copies: list[tuple[bytes, Any, bytes]]) -> None:
        for _uuid, place, _payload in copies:
            self._index._shrink(place)


class NeverCompacts(Compaction):
    def step(self, below: float) -> bool:
        return False


class SyncsTooLate(Compaction):
    """Removes a segment before its copies are synced."""

    def _remove(self) -> None:
        sync, self._log.sync = self._log.sync, lambda: None  # type: ignore[method-assign]
        super()._remove()
        self._log.sync = sync  # type: ignore[method-assign]


class KnowsNoBound(Bound):
    def refusal(self, records: Sequence[bytes], size: int, before: int) -> None:
        return None


class SaysNothingOfDamage(SimStore):
    """Does not report damage."""

    def view(self) -> Any:
        return super().view()._replace(damaged=0)


# --- builders -------------------------------------------------------------------------------------
def engine(**parts: type) -> TitanicParts:
    """Return a Titanic with some parts of its engine replaced.

    The parts are `attempts`, `intake`, `dispatcher`, `collecting` and `register`.
    """

    class Broken(TitanicEngine):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            with _Replaced(parts):
                super().__init__(*args, **kwargs)

    return TitanicParts(engine=Broken)


_HOMES = {
    "attempts": ("requite.protocols.titanic.collecting", "Attempts"),
    "intake": ("requite.protocols.titanic.engine", "Intake"),
    "collecting": ("requite.protocols.titanic.engine", "Collecting"),
    "dispatcher": ("requite.protocols.titanic.core", "Dispatcher"),
    "register": ("requite.protocols.titanic.core", "Register"),
    "index": ("requite.titanic.recovery", "Index"),
    "compaction": ("requite.titanic.store", "Compaction"),
    "bound": ("requite.titanic.store", "Bound"),
}


class _Replaced:
    """Replace classes in the modules that use them, while the context is open."""

    def __init__(self, parts: dict[str, type]) -> None:
        self._parts = parts
        self._before: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> None:
        for name, part in self._parts.items():
            module, attribute = import_module(_HOMES[name][0]), _HOMES[name][1]
            self._before.append((module, attribute, getattr(module, attribute)))
            setattr(module, attribute, part)

    def __exit__(self, *_: object) -> None:
        for module, attribute, before in self._before:
            setattr(module, attribute, before)


def store(**parts: type) -> TitanicParts:
    """Return a Titanic with some parts of its store replaced.

    The parts are `index`, `compaction` and `bound`.
    """

    def open_broken(*args: Any) -> SimStore:
        with _Replaced(parts):
            return SimStore.on(*args)

    return TitanicParts(open_store=open_broken)


def silent() -> TitanicParts:
    """Return a Titanic that reports no damage, neither when it opens its log nor later."""

    def open_broken(*args: Any) -> SimStore:
        opened = SaysNothingOfDamage.on(*args)
        opened.report = replace(opened.report, damaged=(), cut_bytes=0)
        return opened

    return TitanicParts(open_store=open_broken)


def unsynced() -> TitanicParts:
    """Return a Titanic whose log never syncs."""

    def open_broken(*args: Any) -> SimStore:
        opened = SimStore.on(*args)
        opened._log.sync = lambda: None  # type: ignore[method-assign]
        return opened

    return TitanicParts(open_store=open_broken)


def unrecovered() -> TitanicParts:
    """Return a Titanic that recovers every second request only."""

    def open_broken(*args: Any) -> SimStore:
        opened = SimStore.on(*args)
        half = opened.recovered.requests[::2]
        opened.recovered = replace(opened.recovered, requests=half)
        return opened

    return TitanicParts(open_store=open_broken)
