"""Handlers: the functions that serve requests, of four kinds.

    @requite.service("echo")
    async def echo(request: requite.Request) -> bytes:
        return request.body

| kind | runs | partial replies | final reply |
|---|---|---|---|
| `async def` | on the event loop | – | the value returned |
| `def` | in a thread | – | the value returned |
| `async def` with `yield` | on the event loop | each value yielded | empty |
| `def` with `yield` | in a thread | each value yielded | the value returned |

An `async def` handler may also return an async iterator, whose values are partial replies.

A reply is bytes, or a sequence of bytes (its frames). None is an empty reply; since it usually is a
forgotten `return`, the worker logs a warning once per service.

If a handler raises, the caller gets a negative reply with the exception's type and text. Raise
`RemoteFailure` to refuse a request: its text is sent unchanged. The error of a call that the
handler has made is an exception like any other.

An `async def` handler costs no thread and no task, so it is the fastest kind. Use `def` for
CPU-bound work: on the event loop it would block the worker's heartbeats.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from requite.errors import ConfigurationError
from requite.request import Request
from requite.speaks.plans import Carries

if TYPE_CHECKING:
    from requite.dedup import Dedup

Result = bytes | bytearray | memoryview | Sequence[bytes] | None
Parts = Iterator[Result] | AsyncIterator[Result]
Handler = Callable[[Request], Result | Awaitable[Result | AsyncIterator[Result]] | Parts]


class Kind(Enum):
    """The kind of function that a handler is, which decides how it runs."""

    COROUTINE = "coroutine"
    FUNCTION = "function"
    ASYNC_GENERATOR = "async generator"
    GENERATOR = "generator"


@dataclass(frozen=True, slots=True)
class Service:
    """A handler and its service name; calling a `Service` calls the handler.

    `idempotent`: stores replies, so that a duplicate of a request does not run again. `key_reused`:
    the reason of its negative reply to a request with the key of another one, instead of its own.
    """

    name: str
    handler: Callable[[Request], Any]
    kind: Kind
    idempotent: Dedup | None = None
    key_reused: bytes | None = None

    @property
    def in_thread(self) -> bool:
        """Whether the handler runs in a thread."""
        return self.kind in (Kind.FUNCTION, Kind.GENERATOR)

    def __call__(self, request: Request) -> Any:
        return self.handler(request)


class Serving(Protocol):
    """The services that one worker serves for a group."""

    @property
    def services(self) -> Sequence[Service]:
        """The services."""

    async def open(self) -> None:
        """Prepare, before the worker serves."""

    async def close(self) -> None:
        """Clean up, after the worker has closed."""


@runtime_checkable
class Group(Protocol):
    """Several services in one object, as a typed `requite.Service` is."""

    def serve(self, carries: Carries) -> Serving:
        """Return what one worker serves. Raises `ConfigurationError`."""


def service(name: str, *, idempotent: Dedup | None = None) -> Callable[[Handler], Service]:
    """Make a handler a service of this name, for a `Worker` to serve.

    With `idempotent=requite.Dedup(...)` each request runs once: duplicates get the first reply, and
    a handler that has started runs to its end, even if its caller cancels.

    Raises `ConfigurationError` for an empty name or a handler that is not callable.
    """
    if callable(name) or not name:  # `@service` without parentheses
        raise ConfigurationError("a service needs a name: @service('echo')")

    def decorate(handler: Handler) -> Service:
        return Service(name, handler, kind_of(handler), idempotent)

    return decorate


def kind_of(handler: Handler) -> Kind:
    """Return the kind of a handler. Raises `ConfigurationError` unless it is callable."""
    if not callable(handler):
        raise ConfigurationError(f"a handler must be a function of one request, not {handler!r}")
    function: Any = handler
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    if inspect.isasyncgenfunction(function):
        return Kind.ASYNC_GENERATOR
    if inspect.iscoroutinefunction(function):
        return Kind.COROUTINE
    if inspect.isgeneratorfunction(function):
        return Kind.GENERATOR
    return Kind.FUNCTION


def text_of(error: BaseException) -> str:
    """Return the text of an exception, even if its `__str__` fails."""
    try:
        return str(error)
    except Exception:
        return "(no text: its __str__ failed)"


@asynccontextmanager
async def closing_parts(parts: AsyncIterator[Any]) -> AsyncIterator[AsyncIterator[Any]]:
    """Close a handler's iterator of partial replies at the end, if it is a generator, in the task
    that has read it: not by the garbage collector, in another context."""
    try:
        yield parts
    finally:
        if isinstance(parts, AsyncGenerator):
            await parts.aclose()


def frames_of(result: Any) -> Sequence[bytes]:
    """Return a handler's result as frames. Raises `TypeError` unless it is bytes, None or a
    sequence of bytes."""
    if isinstance(result, bytes):
        return (result,)
    if result is None:
        return (b"",)
    if isinstance(result, bytearray | memoryview):
        return (bytes(result),)
    if isinstance(result, list | tuple) and all(isinstance(frame, bytes) for frame in result):
        return result or (b"",)
    kind = type(result).__name__
    if isinstance(result, list | tuple):
        odd = next(frame for frame in result if not isinstance(frame, bytes))
        kind = f"a {kind} with {type(odd).__name__} in it"
    hint = "; encode it first: .encode()" if isinstance(result, str) else ""
    raise TypeError(f"a handler must return bytes or a sequence of bytes, not {kind}{hint}")
