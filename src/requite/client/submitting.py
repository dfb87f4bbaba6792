"""The durable requests of `Client`: performs the steps of `client/durable.py` by calls."""

from __future__ import annotations

from collections.abc import Callable
from time import sleep
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from requite.client.call_arguments import CallBody, Timeout
from requite.client.durable import Durable, Pause, Script
from requite.errors import CallError
from requite.request import Deadline, Reply
from requite.shell import clock

if TYPE_CHECKING:
    from requite.typed.durable import DurableMethod

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Submitter:
    """The durable requests of `Client`, which has `call`."""

    _durable: Durable

    def call(
        self,
        body: CallBody,
        *,
        timeout: Timeout = ...,
        service: str | None = None,
        idempotent: bool = True,
        idempotency_key: bytes = b"",
    ) -> Reply:
        """Send a request and return its reply."""
        raise NotImplementedError

    def submit(
        self,
        body: CallBody,
        *,
        timeout: Timeout = ...,
        service: str | None = None,
        idempotency_key: bytes = b"",
    ) -> str:
        """Submit a durable request and return its ticket; see `AsyncClient.submit`."""
        return self._play(self._durable.submit(body, service, idempotency_key, timeout))

    def result(self, ticket: str, *, timeout: Timeout = ...) -> Reply:
        """Wait for the reply to a durable request; see `AsyncClient.result`."""
        return self._play(self._durable.result(ticket, timeout))

    def forget(self, ticket: str, *, timeout: Timeout = ...) -> None:
        """Delete a durable request and its reply; see `AsyncClient.forget`."""
        self._play(self._durable.forget(ticket, timeout))

    def durable(self, method: Callable[P, R]) -> DurableMethod[P, R]:
        """Return a bound method for durable requests; see `AsyncClient.durable`."""
        from requite.typed.durable import DurableMethod

        return DurableMethod(self, method)

    def _play(self, script: Script[T]) -> T:
        try:
            step = next(script)
            while True:
                if isinstance(step, Pause):
                    sleep(max(0.0, step.until - clock.now()))
                    step = script.send(None)
                    continue
                service, frames, until, key = step
                try:
                    reply = self.call(
                        frames, timeout=Deadline(until), service=service, idempotency_key=key
                    )
                except CallError as error:
                    step = script.throw(error)
                else:
                    step = script.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result
