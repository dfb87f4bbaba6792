"""A Freelance server: answers requests of many clients; it never sends first.

    waiting ──► running ──► answered
       │           └──► failed, cancelled: no reply is ever sent
       └──► lost with its client: never started

At most `capacity` handlers run at a time; further requests are queued per client, and clients take
turns. Pings are answered at once, however many requests wait: they check liveness, not load. A
failed request gets no reply; its client retries at another server, or times out.

Sources: 10/FLP, "Overall Operation"; Guide, "Model One" to "Model Three".
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from types import SimpleNamespace
from typing import ClassVar

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.core.jobs import ClientJob, Jobs, reason_of
from requite.core.machine import Handlers, Machine, ignore_input
from requite.core.recording import job_observer
from requite.core.turns import ClientPeer, Turns
from requite.engine import (
    Cause,
    Disconnect,
    Drain,
    Finished,
    Message,
    Peer,
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
from requite.errors import RemoteViolation
from requite.protocols.freelance import wire
from requite.protocols.freelance.jobs import Why
from requite.protocols.freelance.policy import ServerPolicy
from requite.request import Request, Status

_PONG = (wire.PONG,)


class FreelanceServer(Machine):
    """A server; `service` is the service name in its handlers' requests.

    `instance` identifies the server in journals and should be random per start. `chronicle`
    journals its requests.
    """

    _kind: ClassVar = "a server"

    def __init__(
        self,
        policy: ServerPolicy | None = None,
        *,
        service: str = "",
        instance: bytes = NO_INSTANCE,
        chronicle: Chronicle | None = None,
    ) -> None:
        self._policy = policy = policy or ServerPolicy()
        self.jobs: Jobs[ClientJob] = Jobs(
            service,
            job_observer(chronicle, instance, service, notes=policy.notes),
            kind=self._kind,
            reply_size_max=policy.reply_size_max,
        )
        super().__init__()
        self._turns: Turns[ClientPeer] = Turns(policy.queue_max, policy.queue_size_max)
        self._pings = 0

    def _handlers(self) -> Handlers:
        return {
            Received: self._received,
            Finished: self._finished,
            Produced: self._produced,
            Progressed: ignore_input,  # there are no leases
            Started: self.jobs.started,
            Wake: self.jobs.woken,
            PeerJoined: self._joined,
            PeerLost: self._lost,
            PeerBlocked: ignore_input,
            PeerWritable: ignore_input,
            Drain: self._drained,
        }

    @property
    def is_answered(self) -> bool:
        """Whether a peer has accepted this server; always True, Freelance has no registration."""
        return True

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        at = self.jobs.observer.flush_at
        return None if at == inf else at

    def snapshot(self) -> SimpleNamespace:
        """Return the counts of all tables.

        `clients`: all; `unread`: those that we do not read from. `waiting` requests are queued; for
        `abandoned` ones no client waits any more. Since the start: `pings` answered, and messages
        `dropped`, by reason (`Why`).
        """
        clients = list(self._turns)
        abandoned = self.jobs.abandoned
        return SimpleNamespace(
            clients=len(clients),
            unread=sum(not client.is_read for client in clients),
            waiting=self._turns.waiting,
            running=len(self.jobs) - abandoned,
            abandoned=abandoned,
            pings=self._pings,
            dropped=dict(self.jobs.dropped),
            draining=self._draining,
            stopped=self._stopped,
        )

    # --- requests ---------------------------------------------------------------------------------
    def _received(self, event: Received, now: float) -> None:
        client = self._turns.by_peer.get(event.peer)
        if client is None or self._stopped:
            return
        for message in event.messages:
            try:
                self._take(client, message, now)
            except RemoteViolation as violation:
                self._refuse(violation, now)

    def _refuse(self, violation: RemoteViolation, now: float) -> None:
        self.jobs.drop(Why.MALFORMED, self._out, now)
        self._out.append(Warn("malformed", f"dropped a message: {violation}"))

    def _take(self, client: ClientPeer, message: Message, now: float) -> None:
        """Answer a ping; deliver or queue a request."""
        command = wire.decode_request(message, self._policy.model)
        if isinstance(command, wire.Ping):
            self._pings += 1
            self._out.append(Send(client.peer, _PONG))
        elif len(self.jobs) < self._policy.capacity and not self._turns.line:
            self._deliver(client, command, now)
        elif self._turns.push(client, command, sum(map(len, message))):
            self._out.append(StopReading(client.peer))

    def _deliver(self, client: ClientPeer, command: wire.Request, now: float) -> None:
        job = ClientJob(client.peer, command.control)
        request = Request(self.jobs.service, command.body)
        request.principal = client.principal
        self.jobs.deliver(job, None, request, self._out, now)

    def _deliver_waiting(self, now: float) -> None:
        """Deliver queued requests, clients in turn, up to `capacity`."""
        while len(self.jobs) < self._policy.capacity:
            due = self._turns.pop()
            if due is None:
                return
            client, request = due
            if not self._draining and self._turns.resumes(client):
                self._out.append(ResumeReading(client.peer))
            self._deliver(client, request, now)

    # --- from handlers ----------------------------------------------------------------------------
    def _produced(self, event: Produced, now: float) -> None:
        if reason := self.jobs.join(event, self._out, now):
            self.jobs.abandon(event.token, reason, self._out, now)

    def _finished(self, event: Finished, now: float) -> None:
        ended = self.jobs.finish(event, self._out, now)
        if ended is None:
            return
        job: ClientJob = event.token
        self._answer(job, event.frames, ended[1])
        self._deliver_waiting(now)
        if self._draining:
            self._maybe_disconnect(job.peer)

    def _answer(self, job: ClientJob, frames: Sequence[bytes], status: Status) -> None:
        """Send the reply, if any, behind the control frames of the request."""
        if status is Status.FAILED:
            text = f"a request failed, so it gets no reply: {reason_of(frames)}"
            self._out.append(Warn("failed request", text))
        elif not status and job.peer in self._turns.by_peer:
            self._out.append(Send(job.peer, job.reply(frames)))

    # --- clients ----------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined, _now: float) -> None:
        if self._draining:
            self._out.append(Disconnect(event.peer, "the server is shutting down", Cause.DONE))
        else:
            self._turns.join(ClientPeer(event.peer, event.principal.name))

    def _lost(self, event: PeerLost, now: float) -> None:
        if (client := self._turns.leave(event.peer)) is None:
            return
        self.jobs.drop(Why.LOST, self._out, now, client.queued)
        for job in self.jobs:
            if job.peer is event.peer and not job.abandoned:
                reason = event.reason or "its connection was closed"
                self.jobs.abandon(job, reason, self._out, now)

    # --- drain ------------------------------------------------------------------------------------
    def _drained(self, _event: Drain, _now: float) -> None:
        """Stop reading, and disconnect clients without pending requests, so that they use another
        server at once. The others are disconnected after their last reply."""
        if self._draining:
            return
        self._draining = True
        for peer in list(self._turns.by_peer):
            self._maybe_disconnect(peer)
        for client in self._turns:
            if client.is_read:
                client.is_read = False
                self._out.append(StopReading(client.peer))

    def _maybe_disconnect(self, peer: Peer) -> None:
        """Disconnect a client without pending requests."""
        client = self._turns.by_peer.get(peer)
        if client is None or client.waiting or any(job.peer is peer for job in self.jobs):
            return
        self._turns.leave(peer)
        self._out.append(Disconnect(peer, "the server is shutting down", Cause.DONE))

    def _maybe_stop(self, _now: float) -> None:
        """Stop once all requests that were read are answered."""
        if not (self._stopped or self.jobs or self._turns.line):
            self._stopped = True
            self._out.append(Stopped())
