"""What a method and its middleware know about a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Protocol

from requite.request import Deadline, Request
from requite.shell import clock


class Context:
    """One call of a method of a typed service, at either end.

    `service`, `version` and `method` name what is called. `state` is what the service's `lifespan`
    yielded. At the client, `attempt` is 1, `principal` is "", and `progress` does nothing.
    """

    __slots__ = ("_arrived_at", "_request", "method", "service", "state", "version")

    def __init__(self, service: str, version: str, method: str, request: Request, state: Any):
        self.service = service
        self.version = version
        self.method = method
        self.state = state
        self._request = request
        self._arrived_at = clock.now()

    def __repr__(self) -> str:
        return f"<Context {self.service} {self.version} {self.method} attempt={self.attempt}>"

    @property
    def deadline(self) -> Deadline:
        """When the caller gives up, on this process's clock; pass it to further calls as their
        `timeout`. Without a limit, or over a protocol without deadlines, it never comes."""
        remaining_s = self._request.remaining_s
        return Deadline(inf if remaining_s is None else self._arrived_at + remaining_s)

    @property
    def remaining_s(self) -> float | None:
        """Seconds left until the deadline, negative once it has passed; None: no deadline."""
        remaining_s = self._request.remaining_s
        return None if remaining_s is None else self._arrived_at + remaining_s - clock.now()

    @property
    def attempt(self) -> int:
        """1 for the first worker that gets the request."""
        return self._request.attempt

    @property
    def idempotency_key(self) -> bytes:
        """The caller's key; empty without one."""
        return self._request.idempotency_key

    @property
    def principal(self) -> str:
        """The caller's name, as `Request.principal`."""
        return self._request.principal

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the request: `traceparent` over protocols that carry it, else none."""
        parent = self._request.traceparent
        return {"traceparent": parent} if parent else {}

    def progress(self, extend: float = 0.0) -> None:
        """Renew the handler's lease by `extend` seconds, as `Request.progress`."""
        self._request.progress(extend)


Proceed = Callable[[Any], Awaitable[Any]]


class Middleware(Protocol):
    """A function around each call of a service or of a bound client.

        async def timed(message: Any, context: requite.Context, proceed: requite.Proceed) -> Any:
            began = time.monotonic()
            try:
                return await proceed(message)
            finally:
                print(context.method, time.monotonic() - began)

    `message` is the decoded input, and `proceed` continues with the next middleware, the last one
    with the method. The result is the reply; of a method with partial replies, it is their async
    iterator. An exception is treated as one of the method.
    """

    async def __call__(self, message: Any, context: Context, proceed: Proceed, /) -> Any: ...


def chained(
    middleware: tuple[Middleware, ...], last: Callable[[Any, Context], Awaitable[Any]]
) -> Callable[[Any, Context], Awaitable[Any]]:
    """Return the function that runs `last` within all the middleware, the first one outermost."""
    run = last
    for each in reversed(middleware):
        run = _around(each, run)
    return run


def _around(
    middleware: Middleware, inner: Callable[[Any, Context], Awaitable[Any]]
) -> Callable[[Any, Context], Awaitable[Any]]:
    async def run(message: Any, context: Context) -> Any:
        return await middleware(message, context, lambda passed: inner(passed, context))

    return run
