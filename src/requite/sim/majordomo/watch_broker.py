"""Stand between the broker's engine and its host, and record the broker's history.

The broker's notes become the `Trace`s of `history.py`. The messages of clients and workers are
decoded here again, so that a broker that ignores a CANCEL, a deadline or progress cannot hide it by
omitting a note.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Final

from requite.engine import (
    Cause,
    Disconnect,
    Effect,
    Engine,
    Input,
    Note,
    PeerJoined,
    Received,
    Send,
    Wake,
)
from requite.errors import RemoteViolation
from requite.protocols.majordomo.dialects import PeerRole, detect
from requite.protocols.majordomo.parties import Client
from requite.protocols.majordomo.wire import (
    MMI_PREFIX,
    NOT_IDEMPOTENT,
    ClientCancel,
    ClientRequest,
    Dialect,
)
from requite.sim.kernel.history import Trace
from requite.sim.kernel.hub import Hub
from requite.sim.kernel.transcript import name_of
from requite.sim.majordomo.watch import Pulse

_CANCEL: Final = b"MDPW03\x09"
_SIGNS_OF_PROGRESS: Final = (b"MDPW03\x03", b"MDPW03\x07")


class WatchedBroker(Hub):
    """A broker's engine under observation.

    By identity, also after the end of its connection: `names` of processes, and `heard_at`, the
    time of a peer's last messages.
    """

    def __init__(self, engine: Engine, process: Any) -> None:
        super().__init__(engine, process)
        self.traces: dict[tuple[bytes, int], Trace] = {}
        self._by_dispatch: dict[int, Trace] = {}
        self._unchecked: set[tuple[bytes, int]] = set()  # requests of intruders
        self._links: dict[bytes, Any] = {}  # the connection that has an identity now
        self._dialects: dict[Any, Dialect] = {}  # of client connections
        self._workers: dict[Any, Dialect] = {}  # of worker connections
        self._pulse = Pulse(process, self._history)
        self._to_be_told: list[Trace] = []  # withdrawn while a worker has them
        self._current: Input = Wake()
        # Requests that the broker has read and not yet handled, by client: some wait in a backlog.
        self._asked: defaultdict[bytes, deque[tuple[ClientRequest, Any]]] = defaultdict(deque)
        self._effects[Note] = lambda note: self._heed[note.kind](note.facts)
        self._heed: dict[str, Callable[[Any], None]] = {
            "accepted": self._accepted,
            "refused": self._refused,
            "queued": self._queued,
            "put_off": self._put_off,
            "dispatched": self._dispatched,
            "partial": self._passed_on,
            "answered": self._answered,
            "cancelled": self._withdrawn,
            "redelivered": self._redelivered,
            "worker_joined": lambda facts: self._worker("worker_joined", facts),
            "worker_lost": lambda facts: self._worker("worker_lost", facts),
            "worker_drained": lambda facts: self._worker("worker_drained", facts),
        }

    def _look_at(self, event: Input) -> None:
        self._current = event
        super()._look_at(event)

    def _watch(self, effects: list[Effect]) -> None:
        if self._current.__class__ is Received:
            self._excuse(self._current.peer)
        super()._watch(effects)
        if self._to_be_told:
            self._check_cancels(effects)
        self._tell("broker_rested", self.process, self._current)

    def _check_cancels(self, effects: list[Effect]) -> None:
        """[client-timeout], [client-cancel]: check that a worker gets a CANCEL when no client waits
        for its request, unless the current input is from that worker."""
        told = {_cancelled(effect.message) for effect in effects if effect.__class__ is Send}
        event = self._current
        speaker = event.peer if isinstance(event, Received) else None
        for trace in self._to_be_told:
            has_spoken = speaker is not None and speaker is self._links.get(trace.owner or b"")
            if trace.dispatch_id not in told and not has_spoken:
                self._tell("not_told", trace)
        self._to_be_told.clear()

    # --- inputs -----------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined) -> None:
        self.names[event.identity] = name_of(event.peer)
        self._links[event.identity] = event.peer

    def _blocked(self, peer: Any) -> None:
        self._tell("worker_blocked", peer.identity)

    def _writable(self, peer: Any) -> None:
        self._tell("worker_writable", peer.identity)

    def _received(self, event: Received) -> None:
        self._look(event.peer, event.messages)

    def _look(self, peer: Any, messages: Iterable[list[bytes]]) -> None:
        identity = peer.identity
        if self._links.get(identity) is not peer:
            return  # refused, because another connection has its identity
        self.heard_at[identity] = self.process.world.now
        dialect = self._dialects.get(peer)
        for message in messages:
            if dialect is None:
                found = detect(message)
                if found is None:
                    return
                if found[0] is PeerRole.WORKER:
                    self._workers.setdefault(peer, found[1])
                    self._look_for_progress(identity, messages)
                    return
                dialect = self._dialects[peer] = found[1]
            try:
                self._read(peer, dialect.decode_from_client(message))
            except RemoteViolation:
                return

    def _excuse(self, peer: Any) -> None:
        """Excuse CANCELs that wait in the client's backlog, after requests that were refused."""
        engine: Any = self.engine
        party = engine.parties.get(peer)
        if isinstance(party, Client) and party.backlog:
            for (client, _), trace in self.traces.items():
                if client == peer.identity and trace.withdrawn == "cancelled":
                    trace.withdrawn = ""

    def _look_for_progress(self, worker: bytes, messages: Iterable[list[bytes]]) -> None:
        """Record when PARTIAL or PROGRESS extended a lease ([worker-lease])."""
        for message in messages:
            if message[0].startswith(_SIGNS_OF_PROGRESS):
                trace = self._by_dispatch.get(int.from_bytes(message[0][7:15], "big"))
                if trace is not None and trace.owner == worker:
                    trace.vouched_at = self._world.now
                    trace.vouched_s = int.from_bytes(message[0][15:19], "big") / 1000

    def _read(self, peer: Any, command: object) -> None:
        if isinstance(command, ClientRequest):
            if not command.service.startswith(MMI_PREFIX):
                self._asked[peer.identity].append((command, self.call_of(command.body)))
        elif isinstance(command, ClientCancel):
            trace = self.traces.get((peer.identity, command.request_id))
            if trace is not None:
                trace.withdrawn = "cancelled"

    def _lost(self, peer: Any) -> None:
        self._workers.pop(peer, None)
        identity: bytes = peer.identity
        if self._links.get(identity) is peer:
            self._asked.pop(identity, None)
        if self._dialects.pop(peer, None) is None:
            return
        for (client, _), trace in self.traces.items():
            if client == peer.identity:
                trace.withdrawn = "left"

    # --- effects ----------------------------------------------------------------------------------
    def _sent(self, effect: Send) -> None:
        self._pulse.spoke(effect.peer)

    def _disconnected(self, effect: Disconnect) -> None:
        link: Any = effect.peer
        self._lost(link)
        process = link.stream.other.process
        if process.is_honest and effect.cause is Cause.FAULTY:
            self._tell("expelled", process, effect.reason)

    # --- notes of the broker ----------------------------------------------------------------------
    def _accepted(self, facts: Any) -> None:
        command, call = self._asked[facts["client"]].popleft()
        if call is None:
            self._unchecked.add((facts["client"], facts["request_id"]))
            return
        now = self._world.now
        call.sent += 1
        expires_at = now + command.timeout_ms / 1000 if command.timeout_ms else inf
        trace = Trace(
            call,
            facts["client"].hex(),
            facts["request_id"],
            facts["service"].decode(),
            now,
            expires_at,
            self.process.frozen_s,
        )
        if command.flags & NOT_IDEMPOTENT and call.idempotent:
            self._history.violate("I11", f"{call} is idempotent, but its request says it is not")
        self.traces[facts["client"], facts["request_id"]] = trace
        self._tell("accepted", trace)

    def _refused(self, facts: Any) -> None:
        if not facts["service"].startswith(MMI_PREFIX):
            self._asked[facts["client"]].popleft()

    def _find(self, facts: Any) -> Trace | None:
        """Return the trace of a request; None for an intruder's request."""
        key = facts["client"], facts["request_id"]
        if key not in self.traces and key not in self._unchecked:
            self._tell("unknown_request", f"request {key[1]} of client {key[0].hex()}")
        return self.traces.get(key)

    def _forget(self, facts: Any) -> None:
        key = facts["client"], facts["request_id"]
        self.traces.pop(key, None)
        self._by_dispatch.pop(facts["dispatch_id"], None)
        self._unchecked.discard(key)

    def _queued(self, facts: Any) -> None:
        trace = self._find(facts)
        if trace is not None:
            trace.state = "queued"
        self._tell("queued", trace, facts)

    def _put_off(self, facts: Any) -> None:
        self._history.tell("put_off", self._find(facts), facts)

    def _dispatched(self, facts: Any) -> None:
        trace = self._find(facts)
        self._tell("dispatched", trace, facts)
        if trace is not None:
            trace.state = "dispatched"
            trace.owner = facts["worker"]
            trace.owner_name = self.names[facts["worker"]]
            trace.dispatch_id = facts["dispatch_id"]
            trace.dispatched_at = trace.vouched_at = self._world.now
            trace.vouched_s = 0.0
            self._by_dispatch[trace.dispatch_id] = trace
            trace.attempts += 1

    def _passed_on(self, facts: Any) -> None:
        trace = self._find(facts)
        if trace is not None:
            self._tell("passed_on", trace, facts)
            trace.partials += 1

    def _redelivered(self, facts: Any) -> None:
        trace = self._find(facts)
        self._tell("redelivered", trace, facts)
        self._by_dispatch.pop(facts["dispatch_id"], None)
        if trace is not None:
            trace.state = "queued"
            trace.owner = None
        self._tell("queued", trace, facts)

    def _answered(self, facts: Any) -> None:
        trace = self._find(facts)
        self._tell("answered", trace, facts)
        if trace is not None and facts["status"] == "OK" and facts["worker"] is not None:
            trace.call.answered_by.append(self.names[facts["worker"]])
        if facts["status"] == "EXPIRED":
            self._withdraw(trace)
        self._forget(facts)

    def _withdrawn(self, facts: Any) -> None:
        trace = self._find(facts)
        self._tell("withdrawn", trace, facts)
        self._withdraw(trace)
        self._forget(facts)

    def _withdraw(self, trace: Trace | None) -> None:
        link = None if trace is None else self._links.get(trace.owner or b"")
        if trace is not None and link in self._workers and self._workers[link].has_ids:
            self._to_be_told.append(trace)

    def _worker(self, event: str, facts: Any) -> None:
        link = self._links[facts["worker"]]
        if event == "worker_joined":
            self._pulse.begin(link)
        elif event == "worker_lost":
            self._pulse.end(link)
        self._tell(event, facts, self.names[facts["worker"]])


def _cancelled(message: Sequence[bytes]) -> int | None:
    """Return the dispatch id of a CANCEL for a worker; None for any other message."""
    if not message[0].startswith(_CANCEL):
        return None
    return int.from_bytes(message[0][len(_CANCEL) :], "big")
