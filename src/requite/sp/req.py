"""`Req`: the requesting socket. Each request has its own timer and can be cancelled."""

from __future__ import annotations

import asyncio
from math import inf
from types import EllipsisType
from typing import Any

from requite.client.call_arguments import CallBody, check_timeout, explain
from requite.engine import Cancel
from requite.errors import CallError, Cancelled, Overloaded
from requite.protocols.scalability.calls import Ask, ReqSnapshot
from requite.protocols.scalability.policy import RESEND_S_DEFAULT, ReqPolicy
from requite.protocols.scalability.req import ScalabilityClient
from requite.protocols.scalability.wire import IDS
from requite.request import Reply
from requite.shell import clock, entropy
from requite.sp.socket import CLOSED, MESSAGE_SIZE_MAX, Socket
from requite.speaks.sp import SpRole, check_whole

Resend = float | EllipsisType | None
"""Seconds until a request is resent (`inf`: resend only when its connection is lost); None: never
resend; `...`: the socket's default."""


class Req(Socket):
    """A socket that sends requests to the connected peers in turn.

        async with Req() as req:
            await req.dial("sp+tcp://localhost:7000")
            body = await req.request(b"hello", timeout=2.5)

    - `resend`: the default for requests, see `Resend`.
    - `slots`: how many requests may be in flight; further ones end with `Overloaded`.
    - `message_size_max`: maximum bytes of one body, sent or received. Incoming messages may have
      1 KiB more, for headers; a larger one ends the connection.
    - `insecure`: `listen` takes addresses that other machines reach although the socket does not
      know who connects.
    """

    _role = SpRole.REQ

    def __init__(
        self,
        *,
        resend: float | None = RESEND_S_DEFAULT,
        slots: int = 1024,
        message_size_max: int = MESSAGE_SIZE_MAX,
        insecure: bool = False,
    ) -> None:
        check_whole(slots=slots)
        self._resend = _check_resend(resend)
        first_id = entropy.source.randrange(IDS)
        self._engine = ScalabilityClient(ReqPolicy(slots=slots), first_id=first_id)
        super().__init__(
            self._engine,
            message_size_max,
            insecure,
            deliver=_deliver,
            fail=self._fail,
            logger="requite.sp",
        )

    async def request(
        self,
        body: CallBody,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the request keeps it
        resend: Resend = ...,
    ) -> bytes:
        """Send a request and return the body of its reply. Cancelling the task cancels the request.

        The request waits while no peer is connected or all push back. `timeout` is in seconds from
        now; None: no limit. Raises a `CallError` that says what happened and whether the request
        may have run.
        """
        return await self.send(body, timeout=timeout, resend=resend)

    def send(
        self,
        body: CallBody,
        *,
        wait: bool = True,
        timeout: float | None = None,
        resend: Resend = ...,
    ) -> asyncio.Future[bytes]:
        """Send a request and return the future of its reply's body; cancelling that cancels it.

        With `wait=False` it raises `Overloaded` if no peer is connected or all push back.

        Raises `LocalViolation` on another event loop than the first.
        """
        self._check_usable()
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        resend_s = self._resend if isinstance(resend, EllipsisType) else _check_resend(resend)
        deadline = inf if timeout is None else clock.now() + check_timeout(timeout)
        ask = Ask(future, self._body(body), deadline, resend_s is not None, resend_s, hold=wait)
        self._shell.submit(ask)
        if not wait and future.done() and isinstance(future.exception(), Overloaded):
            future.result()  # raises it
        future.add_done_callback(self._forget_if_cancelled)
        return future

    def snapshot(self) -> ReqSnapshot:
        """Return the sizes of the socket's tables."""
        return self._engine.snapshot()

    def _forget_if_cancelled(self, future: asyncio.Future[bytes]) -> None:
        if future.cancelled() and not self._closed:
            self._shell.submit(Cancel(future))

    def _fail(self, token: Any, error: CallError) -> None:
        if isinstance(error, Cancelled) and self._closed:  # the engine's text says "client"
            went = error.may_have_executed
            error = Cancelled(CLOSED, may_have_executed=went, attempts=error.attempts)
        if not token.done():  # a cancelled future is done
            token.set_exception(explain(error, self._shell))


def _deliver(token: Any, what: Reply) -> None:
    if not token.done():  # a cancelled future is done
        token.set_result(what.body)


def _check_resend(resend: float | None) -> float | None:
    return resend if resend is None or resend == inf else check_timeout(resend)
