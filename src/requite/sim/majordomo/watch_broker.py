"""Stand between the broker's engine and its host, and record the broker's history.

The broker's notes become the `Trace`s of `history.py`. The messages of clients and workers are
decoded here again, so that a broker that ignores a CANCEL, a deadline or progress cannot hide it by
omitting a note.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Final

from requite.engine import (
    Cause,
    Disconnect,
    Effect,
    Engine,
    Input,
    Note,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    Send,
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
from requite.sim.kernel.history import History, Trace
from requite.sim.majordomo.watch import Pulse, name_of

if TYPE_CHECKING:
    from requite.sim.kernel.process import Process
    from requite.sim.kernel.transcript import Transcript

_CANCEL: Final = b"MDPW03\x09"
_SIGNS_OF_PROGRESS: Final = (b"MDPW03\x03", b"MDPW03\x07")


class WatchedBroker:
    """A broker's engine under observation; a new one after each start of the broker."""

    def __init__(
        self,
        engine: Engine,
        process: Process,
        history: History,
        calls_by_body: Callable[[list[bytes]], Any],
        transcript: Transcript | None = None,
    ) -> None:
        self.engine = engine
        self.process = process
        self.transcript = transcript
        self.deadline = engine.deadline
        self.snapshot = engine.snapshot
        self.names: dict[bytes, str] = {}  # the process of an identity, also after its connection
        self.heard_at: dict[bytes, float] = {}  # the time of a peer's last messages
        self.traces: dict[tuple[bytes, int], Trace] = {}
        self._by_dispatch: dict[int, Trace] = {}
        self._unchecked: set[tuple[bytes, int]] = set()  # requests of intruders
        self._history = history
        self._call_of = calls_by_body
        self._links: dict[bytes, Any] = {}  # the connection that has an identity now
        self._dialects: dict[Any, Dialect] = {}  # of client connections
        self._workers: dict[Any, Dialect] = {}  # of worker connections
        self._pulse = Pulse(process, history)
        self._to_be_told: list[Trace] = []  # withdrawn while a worker has them
        # Requests that the broker has read and not yet handled, by client: some wait in a backlog.
        self._asked: defaultdict[bytes, deque[tuple[ClientRequest, Any]]] = defaultdict(deque)
        self._heed: dict[str, Callable[[Any], None]] = {
            "accepted": self._accepted,
            "refused": self._refused,
            "queued": self._queued,
            "dispatched": self._dispatched,
            "partial": self._passed_on,
            "answered": self._answered,
            "cancelled": self._withdrawn,
            "redelivered": self._redelivered,
            "worker_joined": lambda facts: self._worker("worker_joined", facts),
            "worker_lost": lambda facts: self._worker("worker_lost", facts),
            "worker_drained": lambda facts: self._worker("worker_drained", facts),
        }

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`; the engine gets one input at a time."""
        return [effect for event in events for effect in self._handle(event, now)]

    def _handle(self, event: Input, now: float) -> Iterable[Effect]:
        kind = event.__class__
        if kind is Received:
            self._look(event.peer, event.messages)
        elif kind is PeerJoined:
            self.names[event.identity] = name_of(event.peer)
            self._links[event.identity] = event.peer
        elif kind is PeerLost:
            self._leave(event.peer)
        elif kind in (PeerBlocked, PeerWritable):
            what = "worker_blocked" if kind is PeerBlocked else "worker_writable"
            self._history.tell(what, event.peer.identity)
        effects = list(self.engine.handle((event,), now))
        if kind is Received:
            self._excuse(event.peer)
        self.watch(event, effects)
        return effects

    def watch(self, event: Input, effects: list[Effect]) -> None:
        """Record an input and its effects."""
        if self.transcript is not None:
            self.transcript.effects(self.process, effects)
        for effect in effects:
            self.observe(effect)
            if effect.__class__ is Send:
                self._pulse.spoke(effect.peer)
            elif effect.__class__ is Note:
                self._heed[effect.kind](effect.facts)
            elif effect.__class__ is Disconnect:
                self._judge(effect)
        if self._to_be_told:
            self._check_cancels(event, effects)
        self._history.tell("broker_rested", self.process, event)

    def observe(self, effect: Effect) -> None:
        """Observe an effect; see the subclasses."""

    def _check_cancels(self, event: Input, effects: list[Effect]) -> None:
        """[client-timeout], [client-cancel]: check that a worker gets a CANCEL when no client waits
        for its request, unless the current input is from that worker."""
        told = {_cancelled(effect.message) for effect in effects if effect.__class__ is Send}
        speaker = event.peer if event.__class__ is Received else None
        for trace in self._to_be_told:
            has_spoken = speaker is not None and speaker is self._links.get(trace.owner or b"")
            if trace.dispatch_id not in told and not has_spoken:
                self._history.tell("not_told", trace)
        self._to_be_told.clear()

    # --- inputs -----------------------------------------------------------------------------------
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
                self._look_at(peer, dialect.decode_from_client(message))
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
                    trace.vouched_at = self._history.world.now
                    trace.vouched_s = int.from_bytes(message[0][15:19], "big") / 1000

    def _look_at(self, peer: Any, command: object) -> None:
        if isinstance(command, ClientRequest):
            if not command.service.startswith(MMI_PREFIX):
                self._asked[peer.identity].append((command, self._call_of(command.body)))
        elif isinstance(command, ClientCancel):
            trace = self.traces.get((peer.identity, command.request_id))
            if trace is not None:
                trace.withdrawn = "cancelled"

    def _leave(self, peer: Any) -> None:
        self._workers.pop(peer, None)
        identity: bytes = peer.identity
        if self._links.get(identity) is peer:
            self._asked.pop(identity, None)
        if self._dialects.pop(peer, None) is None:
            return
        for (client, _), trace in self.traces.items():
            if client == peer.identity:
                trace.withdrawn = "left"

    def _judge(self, effect: Disconnect) -> None:
        link: Any = effect.peer
        self._leave(link)
        process = link.stream.other.process
        if process.is_honest and effect.cause is Cause.FAULTY:
            self._history.tell("expelled", process, effect.reason)

    # --- notes of the broker ----------------------------------------------------------------------
    def _accepted(self, facts: Any) -> None:
        command, call = self._asked[facts["client"]].popleft()
        if call is None:
            self._unchecked.add((facts["client"], facts["request_id"]))
            return
        now = self._history.world.now
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
        self._history.tell("accepted", trace)

    def _refused(self, facts: Any) -> None:
        if not facts["service"].startswith(MMI_PREFIX):
            self._asked[facts["client"]].popleft()

    def _find(self, facts: Any) -> Trace | None:
        """Return the trace of a request; None for an intruder's request."""
        key = facts["client"], facts["request_id"]
        if key not in self.traces and key not in self._unchecked:
            self._history.tell("unknown_request", f"request {key[1]} of client {key[0].hex()}")
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
        self._history.tell("queued", trace, facts)

    def _dispatched(self, facts: Any) -> None:
        trace = self._find(facts)
        self._history.tell("dispatched", trace, facts)
        if trace is not None:
            trace.state = "dispatched"
            trace.owner = facts["worker"]
            trace.owner_name = self.names[facts["worker"]]
            trace.dispatch_id = facts["dispatch_id"]
            trace.dispatched_at = trace.vouched_at = self._history.world.now
            trace.vouched_s = 0.0
            self._by_dispatch[trace.dispatch_id] = trace
            trace.attempts += 1

    def _passed_on(self, facts: Any) -> None:
        trace = self._find(facts)
        if trace is not None:
            self._history.tell("passed_on", trace, facts)
            trace.partials += 1

    def _redelivered(self, facts: Any) -> None:
        trace = self._find(facts)
        self._history.tell("redelivered", trace, facts)
        self._by_dispatch.pop(facts["dispatch_id"], None)
        if trace is not None:
            trace.state = "queued"
            trace.owner = None
        self._history.tell("queued", trace, facts)

    def _answered(self, facts: Any) -> None:
        trace = self._find(facts)
        self._history.tell("answered", trace, facts)
        if trace is not None and facts["status"] == "OK" and facts["worker"] is not None:
            trace.call.answered_by.append(self.names[facts["worker"]])
        if facts["status"] == "EXPIRED":
            self._withdraw(trace)
        self._forget(facts)

    def _withdrawn(self, facts: Any) -> None:
        trace = self._find(facts)
        self._history.tell("withdrawn", trace, facts)
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
        self._history.tell(event, facts, self.names[facts["worker"]])


def _cancelled(message: Sequence[bytes]) -> int | None:
    """Return the dispatch id of a CANCEL for a worker; None for any other message."""
    if not message[0].startswith(_CANCEL):
        return None
    return int.from_bytes(message[0][len(_CANCEL) :], "big")
