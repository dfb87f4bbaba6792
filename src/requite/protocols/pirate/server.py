"""The server of Lazy Pirates: a REP endpoint that many clients are connected to.

    waiting ──► running ──► answered
       │           └──► failed: its client is hung up on
       └──► lost with its connection: never started

A REP socket of ZeroMQ has one request in hand; this one has one per connection, `capacity` in all,
and connections take turns. There are no negative replies: when a handler fails its client is hung
up on, which is what it sees of a server that crashed; it may ask again, elsewhere perhaps. A client
that hangs up has given its request up, and its handler is abandoned.

The framing keeps the envelopes (`framing/zmtp_socket.py`, REP).

Source: Guide, "Client-side Reliability (Lazy Pirate Pattern)".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.engine import (
    Abandon,
    Deliver,
    Disconnect,
    Drain,
    Effect,
    Finished,
    Input,
    Message,
    Note,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Produced,
    Progressed,
    Received,
    ResumeReading,
    Send,
    Started,
    Stopped,
    StopReading,
    Wake,
    Warn,
)
from requite.errors import LocalViolation
from requite.protocols.pirate.jobs import Job, ServerSnapshot, reason_of
from requite.protocols.pirate.policy import ServerPolicy
from requite.protocols.pirate.recorders import WorkerRecorder
from requite.protocols.pirate.turns import Asker, Turns
from requite.request import Request, Status


class PirateServer:
    """A server for whoever is connected; `service` is what its handlers' requests are called.

    `instance` should be random per start: journals know the server by it. `chronicle` takes down
    what happens to the requests that it is given.
    """

    def __init__(
        self,
        policy: ServerPolicy | None = None,
        *,
        service: str = "",
        instance: bytes = NO_INSTANCE,
        chronicle: Chronicle | None = None,
    ) -> None:
        self._policy = policy = policy or ServerPolicy()
        self._service = service
        self._recorder = None if chronicle is None else WorkerRecorder(chronicle, instance, service)
        self._turns: Turns[Job] = Turns(policy.queue_max, policy.queue_size_max, one_at_a_time=True)
        self._jobs: dict[Job, Asker[Job]] = {}
        self._draining = self._stopped = False
        self._out: list[Effect] = []
        self._inputs: dict[type, Callable[[Any, float], None]] = {
            Received: self._received,
            Finished: self._finished,
            Produced: self._produced,
            Progressed: _go_on,  # nobody keeps a lease
            Started: self._began,
            Wake: self._woken,
            PeerJoined: self._joined,
            PeerLost: self._lost,
            PeerBlocked: self._blocked,
            PeerWritable: self._writable,
            Drain: self._drained,
        }

    # --- the engine's contract --------------------------------------------------------------------
    def handle(self, event: Input, now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`.

        For each `Deliver` of a `Request` there is to be one `Finished`, also after an `Abandon`: it
        gives the place back. A `Finished` has the status OK, FAILED (with the reason) or CANCELLED;
        only OK brings about a reply.
        """
        handler = self._inputs.get(event.__class__)
        if handler is None:
            raise LocalViolation(f"a server has no use for {event!r}")
        handler(event, now)
        self._deliver_waiting(now)
        if self._draining and not (self._stopped or self._jobs):
            self._stopped = True
            self._out.append(Stopped())
        out = self._out
        if out:
            self._out = []
        return out

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        at = inf if self._recorder is None else self._recorder.look_at
        return None if at == inf else at

    def snapshot(self) -> ServerSnapshot:
        """Return the sizes of all tables."""
        abandoned = sum(job.abandoned != "" for job in self._jobs)
        return ServerSnapshot(
            len(self._turns),
            self._turns.waiting,
            len(self._jobs) - abandoned,
            abandoned,
            self._draining,
            self._stopped,
        )

    def tell_beginnings(self, now: float) -> None:
        """Let the journal, if one is kept, have the beginnings of what is under way."""
        if self._recorder is not None:
            self._recorder.look(self._jobs, now)

    # --- requests ---------------------------------------------------------------------------------
    def _received(self, event: Received, _now: float) -> None:
        asker = self._turns.by_peer.get(event.peer)
        if asker is None or self._draining:
            return
        for message in event.messages:
            if self._turns.push(asker, message):
                self._out.append(StopReading(asker.peer))

    def _deliver_waiting(self, now: float) -> None:
        """Have handlers run for what waits, in turn, while there is room."""
        while len(self._jobs) < self._policy.capacity and not self._draining:
            due = self._turns.pop()
            if due is None:
                return
            self._deliver(*due, now)

    def _deliver(self, asker: Asker[Job], message: Message, now: float) -> None:
        job = Job(asker.peer, [], now)
        self._jobs[job] = asker
        asker.in_hand[job] = None
        self._turns.offer(asker)
        self._out.append(Deliver(job, Request(self._service, message)))
        if self._recorder is not None:
            self._recorder.delivered(job, sum(map(len, message)), now)
        self._note("delivered", job)
        if self._turns.resumes(asker):
            self._out.append(ResumeReading(asker.peer))

    # --- from handlers ----------------------------------------------------------------------------
    def _began(self, event: Started, now: float) -> None:
        if self._recorder is not None and event.token in self._jobs:
            self._recorder.started(event.token, now)

    def _produced(self, event: Produced, now: float) -> None:
        job: Job = event.token
        if job not in self._jobs or job.abandoned:
            return
        job.join(event.frames)
        if self._recorder is not None:
            self._recorder.partial(job, event.frames, now)
        if job.joined_size > self._policy.reply_size_max:
            text = f"its partial replies came to more than {self._policy.reply_size_max} bytes"
            self._out.append(Warn("reply too large", f"no reply: {text}"))
            self._hang_up(self._jobs[job], text, now)

    def _finished(self, event: Finished, now: float) -> None:
        job, frames, status = event
        asker = self._jobs.pop(job, None)
        if asker is None:
            return
        if job.abandoned:
            status = Status.CANCELLED
        if self._recorder is not None:
            self._recorder.finished(job, status, frames, now)
        self._note("finished", job, status=Status(status).name)
        asker.in_hand.pop(job, None)
        if job.abandoned:
            return
        if status is Status.OK:
            self._out.append(Send(asker.peer, job.reply(frames)))
            self._turns.offer(asker)
            if self._draining:
                self._maybe_see_off(asker)
            return
        text = f"a request failed, which REP cannot say: {reason_of(frames)}"
        self._out.append(Warn("failed request", text))
        self._hang_up(asker, text, now)

    def _hang_up(self, asker: Asker[Job], reason: str, now: float) -> None:
        self._out.append(Disconnect(asker.peer, reason))
        self._forget(asker, reason, now)

    def _forget(self, asker: Asker[Job], reason: str, now: float) -> None:
        """Abandon what an asker waits for: nobody does any more."""
        self._turns.leave(asker.peer)
        for job in asker.in_hand:
            job.abandoned = reason
            self._out.append(Abandon(job, reason))
            if self._recorder is not None:
                self._recorder.abandoned(job, reason, now)
            self._note("abandoned", job, reason=reason)

    # --- connections ------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined, _now: float) -> None:
        if self._draining:
            self._out.append(Disconnect(event.peer, "the server is shutting down"))
        else:
            self._turns.join(event.peer)

    def _lost(self, event: PeerLost, now: float) -> None:
        asker = self._turns.by_peer.get(event.peer)
        if asker is not None:
            self._forget(asker, event.reason or "its connection was closed", now)

    def _blocked(self, event: PeerBlocked, _now: float) -> None:
        if asker := self._turns.by_peer.get(event.peer):
            asker.is_open = False

    def _writable(self, event: PeerWritable, _now: float) -> None:
        if asker := self._turns.by_peer.get(event.peer):
            asker.is_open = True
            self._turns.offer(asker)

    # --- time, and the end ------------------------------------------------------------------------
    def _woken(self, _event: Wake, now: float) -> None:
        if self._recorder is not None and now >= self._recorder.look_at:
            self._recorder.look(self._jobs, now)

    def _drained(self, _event: Drain, _now: float) -> None:
        if self._draining:
            return
        self._draining = True
        self._turns.clear()
        for asker in list(self._turns):
            self._maybe_see_off(asker)
            if asker.in_hand and asker.is_read:
                asker.is_read = False
                self._out.append(StopReading(asker.peer))

    def _maybe_see_off(self, asker: Asker[Job]) -> None:
        """Hang up on who waits for no handler: that is how it comes to ask elsewhere at once."""
        if not asker.in_hand:
            self._turns.leave(asker.peer)
            self._out.append(Disconnect(asker.peer, "the server is shutting down"))

    def _note(self, kind: str, job: Job, **facts: Any) -> None:
        if self._policy.notes:
            self._out.append(Note(kind, {"service": self._service, "job": job} | facts))


def _go_on(_event: Progressed, _now: float) -> None:
    """Take no notice."""
