"""Typed durable requests: a method of a bound object, submitted now and answered later."""

from __future__ import annotations

from collections.abc import Callable
from types import EllipsisType
from typing import Any, Final, Generic, NamedTuple, ParamSpec, TypeVar

from requite.errors import ConfigurationError, RemoteFailure
from requite.request import Deadline

P = ParamSpec("P")
R = TypeVar("R")

STEPS: Final = "__requite_steps__"
"""The attribute of a bound method that has its `Steps`."""


class Steps(NamedTuple):
    """What a bound method of `caller` does around a call.

    `take` splits its arguments into the message and the options; `write` encodes the message,
    `read` decodes a reply, and `told` returns the error of a negative one. `refusal` says why its
    requests cannot be durable; "" if they can.
    """

    caller: Any
    service: str
    take: Callable[..., tuple[Any, dict[str, Any]]]
    write: Callable[[Any], bytes]
    read: Callable[[bytes, int], Any]
    told: Callable[[RemoteFailure], Exception]
    refusal: str


class _Method:
    """A method whose requests are durable."""

    def __init__(self, caller: Any, method: Callable[..., Any]) -> None:
        steps: Steps | None = getattr(method, STEPS, None)
        if steps is None or steps.caller is not caller:
            raise ConfigurationError(
                f"durable takes a method of an object that this client has bound, not {method!r}"
            )
        if steps.refusal:
            raise ConfigurationError(f"{steps.service} {steps.refusal}")
        self._steps = steps

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._steps.service}>"

    def _submission(self, args: Any, kwargs: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
        """Return the body of a request, and the options for `submit` of a client."""
        steps = self._steps
        message, options = steps.take(*args, **kwargs)
        if not options.pop("idempotent", True):
            raise ConfigurationError(
                "a durable request may run more than once; submit it without idempotent=False"
            )
        return steps.write(message), {"service": steps.service, **options}


class DurableMethod(_Method, Generic[P, R]):
    """A bound method of a `Client` whose requests are durable; made by `Client.durable`."""

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Submit a durable request and return its ticket.

        The arguments are those of the method. Raises the errors of `Client.submit`.
        """
        body, options = self._submission(args, kwargs)
        ticket: str = self._steps.caller.submit(body, **options)
        return ticket

    def result(self, ticket: str, *, timeout: float | Deadline | EllipsisType | None = ...) -> R:
        """Wait for the reply to a durable request; see `AsyncDurableMethod.result`."""
        try:
            reply = self._steps.caller.result(ticket, timeout=timeout)
        except RemoteFailure as failure:
            raise self._steps.told(failure) from failure.__cause__
        result: R = self._steps.read(reply.body, reply.attempts)
        return result


class AsyncDurableMethod(_Method, Generic[P, R]):
    """A bound method of an `AsyncClient` whose requests are durable; made by
    `AsyncClient.durable`."""

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Submit a durable request and return its ticket.

        The arguments are those of the method. Raises the errors of `AsyncClient.submit`.
        """
        body, options = self._submission(args, kwargs)
        ticket: str = await self._steps.caller.submit(body, **options)
        return ticket

    async def result(
        self,
        ticket: str,
        *,
        timeout: float | Deadline | EllipsisType | None = ...,  # noqa: ASYNC109
    ) -> R:
        """Wait for the reply to a durable request and return it; it stays stored until `forget`.

        Raises the declared errors of the method and `BadRequest`, as a call does, `BadReply` for a
        reply that does not fit the method, and the errors of `AsyncClient.result`.
        """
        try:
            reply = await self._steps.caller.result(ticket, timeout=timeout)
        except RemoteFailure as failure:
            raise self._steps.told(failure) from failure.__cause__
        result: R = self._steps.read(reply.body, reply.attempts)
        return result
