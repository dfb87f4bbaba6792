"""Observe a broker with an access file: what it sends to whom, and what it holds for whom.

Everything is reported by the names of processes, and read from messages: who asked for a request or
a reply stands in its body (`asker_of`), whatever the broker believes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from requite.engine import Cause, Disconnect, Effect, Engine, Input, PeerLost, Send
from requite.errors import RemoteViolation
from requite.protocols.majordomo.wire import (
    ClientFinal,
    ClientPartial,
    Dialect,
    Ready,
    WorkerRequest,
)
from requite.request import Status
from requite.sim.kernel.transcript import name_of
from requite.sim.kernel.workload import parse_task
from requite.sim.majordomo.watch_broker import WatchedBroker

if TYPE_CHECKING:
    from requite.sim.kernel.history import History

ASKED_BY: Final = b"asked by "
_REPLIES: Final = (b"final ", b"part ")
_QUOTA: Final = "has reached its quota: "
_DISPLACED: Final = "which has the same identity"
_NO_USER: Final = ("which no user of", "its credential is not")  # reasons for the end of a link


class Held(NamedTuple):
    """A request that the broker accepts, by the address of its client and its id. `size`: bytes of
    its body; `is_told`: its client gets negative replies."""

    key: tuple[bytes, int]
    process: str
    size: int
    is_told: bool


def asker_of(body: Sequence[bytes], history: History) -> str:
    """Return the process that made a request; "" if its body does not say so."""
    if task := parse_task(body):
        call = history.calls.get(task.number)
        return "" if call is None else call.client
    return body[0].removeprefix(ASKED_BY).decode() if body[0].startswith(ASKED_BY) else ""


def askers_of(reply: Iterable[bytes], history: History) -> Iterator[str]:
    """Yield the processes that asked for the frames of a reply."""
    for frame in reply:
        if frame.startswith(ASKED_BY):
            yield frame.removeprefix(ASKED_BY).decode()
        elif frame.startswith(_REPLIES):
            call = history.calls.get(int(frame.split()[1]))
            if call is not None:
                yield call.client


class WatchedRights(WatchedBroker):
    """The engine of a broker with an access file, under observation."""

    def __init__(self, engine: Engine, process: Any) -> None:
        super().__init__(engine, process)
        self._served: dict[Any, tuple[str, Dialect]] = {}  # by connection of a worker

    # --- inputs -----------------------------------------------------------------------------------
    def _handle(self, event: Input, now: float) -> list[Effect]:
        if event.__class__ is PeerLost:
            link: Any = event.peer
            process = link.stream.other.process
            is_displaced = _DISPLACED in event.reason and process.name not in event.reason
            if is_displaced and process.is_honest:
                self._history.tell("expelled", process, event.reason)
            elif any(each in event.reason for each in _NO_USER):
                self._history.tell("principal_expelled", process.name)
        return super()._handle(event, now)

    def _look(self, peer: Any, messages: Iterable[list[bytes]]) -> None:
        super()._look(peer, messages)
        dialect = self._workers.get(peer)
        if dialect is None or peer in self._served:
            return
        for message in messages:
            try:
                command = dialect.decode_from_worker(message)
            except RemoteViolation:
                return
            if isinstance(command, Ready):
                self._served[peer] = command.service.decode(errors="replace"), dialect
            return

    def _lost(self, peer: Any) -> None:
        super()._lost(peer)
        self._served.pop(peer, None)

    def _disconnected(self, effect: Disconnect) -> None:
        link: Any = effect.peer
        if effect.cause is Cause.DENIED and link.stream.other.process.is_honest:
            service, _ = self._served[link]
            self._history.tell("worker_denied", name_of(link), service)
        super()._disconnected(effect)

    # --- effects ----------------------------------------------------------------------------------
    def _sent(self, effect: Send) -> None:
        super()._sent(effect)
        if effect.peer in self._served:
            self._sent_to_worker(effect.peer, list(effect.message))
        elif effect.peer in self._dialects:
            self._sent_to_client(effect.peer, list(effect.message))

    def _sent_to_worker(self, link: Any, message: list[bytes]) -> None:
        service, dialect = self._served[link]
        command = dialect.decode_to_worker(message)
        if isinstance(command, WorkerRequest):
            asker = asker_of(command.body, self._history)
            self._history.tell("request_given", name_of(link), service, asker, command.call_id)

    def _sent_to_client(self, link: Any, message: list[bytes]) -> None:
        command = self._dialects[link].decode_to_client(message)
        if not isinstance(command, ClientPartial | ClientFinal):
            return
        client = name_of(link)
        for asker in askers_of(command.body, self._history):
            self._history.tell("client_told", client, asker)
        if isinstance(command, ClientFinal) and command.status == Status.OVERLOADED:
            _, said, limit = command.body[0].decode().partition(_QUOTA)
            if said:
                self._history.tell("quota_reached", client, limit.partition(" ")[0])

    # --- notes of the broker ----------------------------------------------------------------------
    def _accepted(self, facts: Any) -> None:
        address: bytes = facts["client"]
        command, _ = self._asked[address][0]
        super()._accepted(facts)
        link = self._links[address]
        is_told = self._dialects[link].has_ids or self._history.knobs.tell_old_clients
        held = Held(
            (address, facts["request_id"]),
            self.names[address],
            sum(map(len, command.body)),
            is_told,
        )
        self._history.tell("request_held", held)

    def _forget(self, facts: Any) -> None:
        super()._forget(facts)
        self._history.tell("request_let_go", (facts["client"], facts["request_id"]))

    def _refused(self, facts: Any) -> None:
        waiting = self._asked[facts["client"]]
        is_for_user = bool(waiting and waiting[0][0].principal)
        super()._refused(facts)
        if facts["status"] == "DENIED":
            self._denied(facts, is_for_user)

    def _answered(self, facts: Any) -> None:
        super()._answered(facts)
        if facts["status"] == "DENIED":
            self._denied(facts)

    def _denied(self, facts: Any, is_for_user: bool = False) -> None:
        name = facts["service"].decode(errors="replace")
        self._history.tell("request_denied", self.names[facts["client"]], name, is_for_user)
