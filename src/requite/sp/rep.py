"""`Rep`: the replying socket. It takes one request from each peer in turn."""

from __future__ import annotations

import asyncio
from typing import Any

from requite import request as nouns
from requite.client.call_arguments import CallBody
from requite.engine import Finished
from requite.errors import Cancelled, LocalViolation
from requite.protocols.scalability.jobs import RepSnapshot
from requite.protocols.scalability.policy import RepPolicy
from requite.protocols.scalability.rep import ScalabilityWorker
from requite.protocols.scalability.wire import HOPS_DEFAULT, IDS
from requite.request import Status
from requite.shell import entropy
from requite.sp.socket import CLOSED, MESSAGE_SIZE_MAX, Socket
from requite.speaks.sp import SpRole, check_whole


class Request:
    """A received request; answer it with `reply` or drop it with `cancel`, once.

    `is_lost`: its connection has ended, so a reply cannot be delivered. `principal` is the owner of
    that connection (`requite.Request.principal`); behind a device it is the device.
    """

    __slots__ = ("_is_open", "_job", "_rep", "body", "is_lost", "principal")

    def __init__(self, rep: Rep, job: Any, body: bytes, principal: str) -> None:
        self._rep = rep
        self._job = job
        self._is_open = True
        self.body = body
        self.principal = principal
        self.is_lost = False

    def reply(self, body: CallBody) -> None:
        """Send the reply; drop it if the connection has ended or pushes back, as SP demands.

        Raises `ConfigurationError` for a body that is too large or has several frames, `TypeError`
        for one that is not bytes, and `LocalViolation` on a second call.
        """
        self._end(Status.OK, self._rep._body(body))

    def cancel(self) -> None:
        """Drop the request without a reply; the client resends it or times out."""
        self._end(Status.CANCELLED, b"it was cancelled")

    def _end(self, status: Status, frame: bytes) -> None:
        if not self._is_open:
            raise LocalViolation("the request was already answered or cancelled")
        self._is_open = False
        self._rep._finished(self._job, status, frame)


class Rep(Socket):
    """A socket that receives requests from all connected peers and replies to them.

        async with Rep() as rep:
            await rep.listen("sp+tcp://127.0.0.1:7000")
            while True:
                request = await rep.receive()
                request.reply(request.body.upper())

    - `capacity`: how many unanswered requests it holds; beyond that it pushes back on the senders.
    - `hops`: how many tags a request may have, its own and one for each device it has passed.
    - `message_size_max`: maximum bytes of one body, sent or received. Incoming messages may have
      1 KiB more, for headers; a larger one ends the connection.
    - `insecure`: `listen` takes addresses that other machines reach although the socket does not
      know who connects.
    """

    _role = SpRole.REP

    def __init__(
        self,
        *,
        capacity: int = 64,
        hops: int = HOPS_DEFAULT,
        message_size_max: int = MESSAGE_SIZE_MAX,
        insecure: bool = False,
    ) -> None:
        check_whole(capacity=capacity, hops=hops)
        self._arrived: asyncio.Queue[Request | None] = asyncio.Queue()
        self._open: dict[Any, Request] = {}
        first_id = entropy.source.randrange(IDS)
        self._engine = ScalabilityWorker(RepPolicy(capacity, hops), first_id=first_id)
        super().__init__(
            self._engine,
            message_size_max,
            insecure,
            deliver=self._deliver,
            abandon=self._abandon,
            logger="requite.sp",
        )

    async def receive(self) -> Request:
        """Wait for the next request and return it. Raises `Cancelled` when the socket is closed,
        and `LocalViolation` on another event loop than the first."""
        self._check_usable()
        while (request := await self._arrived.get()) is not None:
            if not request.is_lost:
                return request
            request.cancel()
        self._arrived.put_nowait(None)  # wake the next waiting `receive`
        raise Cancelled(CLOSED, may_have_executed=False)

    def snapshot(self) -> RepSnapshot:
        """Return the sizes of the socket's tables."""
        return self._engine.snapshot()

    async def close(self) -> None:
        """Close all connections; replies already given are still sent."""
        await super().close()
        self._arrived.put_nowait(None)

    def _deliver(self, job: Any, what: nouns.Request) -> None:
        self._open[job] = request = Request(self, job, what.body, what.principal)
        self._arrived.put_nowait(request)

    def _abandon(self, job: Any, _reason: str) -> None:
        self._open[job].is_lost = True

    def _finished(self, job: Any, status: Status, frame: bytes) -> None:
        del self._open[job]
        self._shell.submit(Finished(job, (frame,), status))
