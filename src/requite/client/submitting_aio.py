"""The durable requests of `AsyncClient`: performs the steps of `client/durable.py` by calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from requite.client.call_arguments import CallBody, Timeout
from requite.client.durable import Durable, Pause, Script
from requite.errors import CallError
from requite.request import Deadline, Reply
from requite.shell import clock

if TYPE_CHECKING:
    from requite.typed.durable import AsyncDurableMethod

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class AsyncSubmitter:
    """The durable requests of `AsyncClient`, which has `call`."""

    _durable: Durable

    async def call(
        self,
        body: CallBody,
        *,
        timeout: Timeout = ...,  # noqa: ASYNC109
        service: str | None = None,
        idempotent: bool = True,
        idempotency_key: bytes = b"",
    ) -> Reply:
        """Send a request and return its reply."""
        raise NotImplementedError

    async def submit(
        self,
        body: CallBody,
        *,
        timeout: Timeout = ...,  # noqa: ASYNC109 - the calls themselves keep it
        service: str | None = None,
        idempotency_key: bytes = b"",
    ) -> str:
        """Submit a durable request and return its ticket, 32 hex digits.

        `result` fetches the reply by this ticket, at any time and from any process. `submit`
        returns once the request is on the disk of the Titanic behind the broker
        (`requite broker --titanic DIR`). A request submitted again with the same `idempotency_key`,
        also by another process, is stored once and has the same ticket.

        Raises `NoService` if the broker has no Titanic, `StoreUnavailable` if the Titanic cannot
        write, `ConfigurationError` for a request that can never be stored, and the errors of
        `call`.
        """
        return await self._play(self._durable.submit(body, service, idempotency_key, timeout))

    async def result(
        self,
        ticket: str,
        *,
        timeout: Timeout = ...,  # noqa: ASYNC109
    ) -> Reply:
        """Wait for the reply to a durable request and return it; it stays stored until `forget`.

        Raises `CallTimeout` if there is no reply in time (the request stays stored), `Poisoned` for
        a request that was set aside after its last attempt, `UnknownTicket` if no request is stored
        under the ticket, `StoreUnavailable` if the reply cannot be read, and the errors of `call`.
        """
        return await self._play(self._durable.result(ticket, timeout))

    async def forget(
        self,
        ticket: str,
        *,
        timeout: Timeout = ...,  # noqa: ASYNC109
    ) -> None:
        """Delete a durable request and its reply; do nothing for an unknown ticket."""
        await self._play(self._durable.forget(ticket, timeout))

    def durable(self, method: Callable[P, Awaitable[R]]) -> AsyncDurableMethod[P, R]:
        """Return the method of a bound object (`bind`) for durable requests, with the same types.

            price = client.durable(client.bind(Orders, "orders").price)
            ticket = await price.submit(Order("a", 2))  # a str: any process may fetch the reply
            quote = await price.result(ticket, timeout=60)  # or the method's declared error

        Raises `ConfigurationError` for a method with partial replies, one that was bound with
        middleware, and a protocol without service names.
        """
        from requite.typed.durable import AsyncDurableMethod

        return AsyncDurableMethod(self, method)

    async def _play(self, script: Script[T]) -> T:
        try:
            step = next(script)
            while True:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.until - clock.now())
                    step = script.send(None)
                    continue
                service, frames, until, key = step
                try:
                    reply = await self.call(
                        frames, timeout=Deadline(until), service=service, idempotency_key=key
                    )
                except CallError as error:
                    step = script.throw(error)
                else:
                    step = script.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result
