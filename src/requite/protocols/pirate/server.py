"""The server of Lazy Pirates: a REP endpoint for many clients.

    waiting ──► running ──► answered
       │           └──► failed: its client is disconnected
       └──► lost with its connection: never started

A REP socket of ZeroMQ handles one request at a time; this server handles one per connection, up to
`capacity`, and connections take turns. There are no negative replies: when a handler fails, the
server closes the client's connection, as if it had crashed, and the client may retry. When a client
disconnects, its handler is abandoned.

The framing handles the envelopes (`framing/zmtp_socket.py`, REP).

Source: Guide, "Client-side Reliability (Lazy Pirate Pattern)".
"""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import ClassVar

from requite.chronicle import NO_INSTANCE, Chronicle
from requite.core.jobs import ClientJob, Jobs, reason_of
from requite.core.machine import Handlers, Machine, ignore_input
from requite.core.recording import job_observer
from requite.core.turns import Turns
from requite.engine import (
    Cause,
    Disconnect,
    Drain,
    Finished,
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
from requite.protocols.pirate.clients import AddressedClient
from requite.protocols.pirate.policy import ServerPolicy
from requite.request import Request, Status


class PirateServer(Machine):
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
        self._turns: Turns[AddressedClient[ClientJob]] = Turns(
            policy.queue_max, policy.queue_size_max, stops_at_max=True, one_at_a_time=True
        )

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
            PeerBlocked: self._blocked,
            PeerWritable: self._writable,
            Drain: self._drained,
        }

    @property
    def is_answered(self) -> bool:
        """Whether the peer has accepted this server; always True, REP has no registration."""
        return True

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        at = self.jobs.observer.flush_at
        return None if at == inf else at

    def snapshot(self) -> SimpleNamespace:
        """Return the counts of all tables. No client waits for the `abandoned` requests."""
        abandoned = self.jobs.abandoned
        return SimpleNamespace(
            clients=len(self._turns),
            waiting=self._turns.waiting,
            running=len(self.jobs) - abandoned,
            abandoned=abandoned,
            draining=self._draining,
            stopped=self._stopped,
        )

    # --- requests ---------------------------------------------------------------------------------
    def _received(self, event: Received, now: float) -> None:
        client = self._turns.by_peer.get(event.peer)
        if client is None or self._draining:
            return
        for message in event.messages:
            if self._turns.push(client, message, sum(map(len, message))):
                self._out.append(StopReading(client.peer))
        self._deliver_waiting(now)

    def _deliver_waiting(self, now: float) -> None:
        """Deliver queued requests, clients in turn, up to `capacity`."""
        while len(self.jobs) < self._policy.capacity and not self._draining:
            due = self._turns.pop()
            if due is None:
                return
            client, message = due
            job = ClientJob(client.peer)
            client.in_flight[job] = None
            request = Request(self.jobs.service, message)
            request.principal = client.principal
            self.jobs.deliver(job, client, request, self._out, now)
            if self._turns.resumes(client):
                self._out.append(ResumeReading(client.peer))

    # --- from handlers ----------------------------------------------------------------------------
    def _produced(self, event: Produced, now: float) -> None:
        if reason := self.jobs.join(event, self._out, now):
            self._drop_connection(self.jobs[event.token], reason, now)

    def _finished(self, event: Finished, now: float) -> None:
        ended = self.jobs.finish(event, self._out, now)
        if ended is None:
            return
        client, status = ended
        job: ClientJob = event.token
        client.in_flight.pop(job, None)
        if not job.abandoned:
            self._answer(client, job, event, status, now)
        self._deliver_waiting(now)

    def _answer(
        self,
        client: AddressedClient[ClientJob],
        job: ClientJob,
        event: Finished,
        status: Status,
        now: float,
    ) -> None:
        if status is Status.OK:
            self._out.append(Send(client.peer, job.reply(event.frames)))
            self._turns.offer(client)
            if self._draining:
                self._maybe_disconnect(client)
            return
        text = f"a request failed, and REP has no error replies: {reason_of(event.frames)}"
        self._out.append(Warn("failed request", text))
        self._drop_connection(client, text, now)

    def _drop_connection(self, client: AddressedClient[ClientJob], reason: str, now: float) -> None:
        self._out.append(Disconnect(client.peer, reason, Cause.DONE))
        self._forget(client, reason, now)

    def _forget(self, client: AddressedClient[ClientJob], reason: str, now: float) -> None:
        """Forget a client, and abandon its requests."""
        self._turns.leave(client.peer)
        for job in client.in_flight:
            self.jobs.abandon(job, reason, self._out, now)

    # --- connections ------------------------------------------------------------------------------
    def _joined(self, event: PeerJoined, _now: float) -> None:
        if self._draining:
            self._out.append(Disconnect(event.peer, "the server is shutting down", Cause.DONE))
        else:
            self._turns.join(AddressedClient(event.peer, principal=event.principal.name))

    def _lost(self, event: PeerLost, now: float) -> None:
        client = self._turns.by_peer.get(event.peer)
        if client is not None:
            self._forget(client, event.reason or "its connection was closed", now)

    def _blocked(self, event: PeerBlocked, _now: float) -> None:
        self._turns.block(event.peer)

    def _writable(self, event: PeerWritable, now: float) -> None:
        if self._turns.unblock(event.peer):
            self._deliver_waiting(now)

    # --- drain ------------------------------------------------------------------------------------
    def _drained(self, _event: Drain, _now: float) -> None:
        if self._draining:
            return
        self._draining = True
        self._turns.clear()
        for client in list(self._turns):
            self._maybe_disconnect(client)
            if client.in_flight and client.is_read:
                client.is_read = False
                self._out.append(StopReading(client.peer))

    def _maybe_disconnect(self, client: AddressedClient[ClientJob]) -> None:
        """Disconnect a client without running requests, so that it uses another server at once."""
        if not client.in_flight:
            self._turns.leave(client.peer)
            self._out.append(Disconnect(client.peer, "the server is shutting down", Cause.DONE))

    def _maybe_stop(self, _now: float) -> None:
        if not (self._stopped or self.jobs):
            self._stopped = True
            self._out.append(Stopped())
