"""Handlers: what a user writes to serve requests, in four kinds of function.

    @requite.service("echo")
    async def echo(request: requite.Request) -> bytes:
        return request.body

| kind | runs | partial replies | final reply |
|---|---|---|---|
| `async def` | on the event loop | – | what it returns |
| `def` | in a thread | – | what it returns |
| `async def` with `yield` | on the event loop | what it yields | empty |
| `def` with `yield` | in a thread | what it yields | what it returns |

A reply is bytes, or a sequence of bytes (its frames). None stands for an empty one; since it mostly
is a forgotten `return`, the worker's log says so, once per service.

A handler that raises answers with a negative reply that carries the exception's type and text;
`RemoteFailure` is for refusing on purpose: its text goes out as it is.

An `async` handler costs no thread and no task, so it is the fast kind; one that computes for long
blocks the heartbeats of its worker and belongs into a plain function.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from requite.errors import ConfigurationError
from requite.request import Request

if TYPE_CHECKING:
    from requite.dedup import Dedup

Result = bytes | bytearray | memoryview | Sequence[bytes] | None
Handler = Callable[[Request], Result | Awaitable[Result] | Iterator[Result] | AsyncIterator[Result]]


class Kind(Enum):
    """How a handler has to be run."""

    COROUTINE = "coroutine"
    FUNCTION = "function"
    ASYNC_GENERATOR = "async generator"
    GENERATOR = "generator"


@dataclass(frozen=True, slots=True)
class Service:
    """A handler and the name under which it serves; calling it calls the handler.

    `idempotent`: what remembers replies, so that repetitions of a request do not run.
    """

    name: str
    handler: Callable[[Request], Any]
    kind: Kind
    idempotent: Dedup | None = None

    @property
    def in_thread(self) -> bool:
        """Whether the handler runs in a thread."""
        return self.kind in (Kind.FUNCTION, Kind.GENERATOR)

    def __call__(self, request: Request) -> Any:
        return self.handler(request)


def service(name: str, *, idempotent: Dedup | None = None) -> Callable[[Handler], Service]:
    """Make a handler a service of this name, to be given to a `Worker`.

    With `idempotent=requite.Dedup(...)` each request runs once: repetitions get the reply of the
    first, and a handler that has started runs to its end, also when nobody waits any more.

    Raises `ConfigurationError` for an empty name, or for something that cannot be called with a
    request.
    """
    if callable(name) or not name:  # the decorator without its parentheses
        raise ConfigurationError("a service needs a name: @service('echo')")

    def decorate(handler: Handler) -> Service:
        return Service(name, handler, _kind_of(handler), idempotent)

    return decorate


def _kind_of(handler: Handler) -> Kind:
    if not callable(handler):
        raise ConfigurationError(f"a handler is a function of one request, not {handler!r}")
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


def frames_of(result: Any) -> Sequence[bytes]:
    """Return a handler's result as frames. Raises `TypeError` for what cannot be a reply."""
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
