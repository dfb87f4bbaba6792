"""The spans of requests at their handlers, if the program uses OpenTelemetry.

The span is current while the handler runs, so spans of the handler and of its calls are below it.
Its parent is the call at the client. A request of a trace that is not sampled gets no span, but its
trace goes on in the calls of the handler.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from requite.request import Request
from requite.shell import clock
from requite.tracing.api import Tracing, tracing
from requite.worker.handler import Kind, Service, closing_parts, text_of

if TYPE_CHECKING:
    from opentelemetry.trace import Span

_DURATION: Final = "rpc.server.call.duration"


def in_spans(service: Service) -> Service:
    """Return a service whose handler runs within a span of each request; the same one if the
    program does not use OpenTelemetry."""
    found = tracing(_DURATION)
    if found is None:
        return service
    wrap = _WRAPPERS[service.kind]
    return replace(service, handler=wrap(service.handler, _Serving(service.name, found)))


class _Serving(NamedTuple):
    """The service that a handler serves."""

    name: str
    tracing: Tracing


class _InSpan:
    """A context manager: its body is a request at its handler, in the span of that."""

    __slots__ = ("_attached", "_began", "_goes_on", "_request", "_serving", "_span")

    def __init__(self, serving: _Serving, request: Request) -> None:
        self._serving: Final = serving
        self._request: Final = request
        self._span: Span | None = None
        self._goes_on = False

    def go_on(self) -> ExitStack:
        """Return a context manager whose end is that of the span, in place of this one's."""
        self._goes_on = True
        stack = ExitStack()
        stack.push(self._end)
        return stack

    def __enter__(self) -> None:
        name, tracing = self._serving
        request = self._request
        if tracing.records:
            self._began = clock.now()
        left_out = tracing.left_out(request.trace)
        context = tracing.context_of(left_out or request.trace)
        if tracing.tracer is not None and not left_out:
            self._span = tracing.tracer.start_span(
                name or "request",
                context=context,
                kind=tracing.kinds.SERVER,
                attributes={
                    "rpc.system.name": "requite",
                    "rpc.method": name,
                    "requite.attempt": request.attempt,
                },
            )
            context = tracing.within(self._span, context)
        self._attached = tracing.attach(context)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._goes_on:
            self._end(kind, error, traceback)

    def _end(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        name, tracing = self._serving
        tracing.detach(self._attached)
        if self._span is not None:
            if error is not None:
                tracing.fail(self._span, type(error).__name__, text_of(error))
            self._span.end()
        if tracing.records:
            attributes = {"rpc.system.name": "requite", "rpc.method": name}
            if error is not None:
                attributes["error.type"] = type(error).__name__
            tracing.record(clock.now() - self._began, attributes)


def _coroutine(handler: Callable[[Request], Any], serving: _Serving) -> Callable[[Request], Any]:
    async def run(request: Request) -> Any:
        span = _InSpan(serving, request)
        with span:
            result = await handler(request)
            if isinstance(result, AsyncIterator):  # of partial replies
                return _within(span.go_on(), result)
            return result

    return run


async def _within(span: ExitStack, parts: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """Yield partial replies within a span, which has begun."""
    with span:
        async with closing_parts(parts):
            async for part in parts:
                yield part


def _function(handler: Callable[[Request], Any], serving: _Serving) -> Callable[[Request], Any]:
    def run(request: Request) -> Any:
        with _InSpan(serving, request):
            return handler(request)

    return run


def _async_generator(
    handler: Callable[[Request], Any], serving: _Serving
) -> Callable[[Request], Any]:
    async def run(request: Request) -> AsyncIterator[Any]:
        with _InSpan(serving, request):
            async with closing_parts(handler(request)) as parts:
                async for part in parts:
                    yield part

    return run


def _generator(handler: Callable[[Request], Any], serving: _Serving) -> Callable[[Request], Any]:
    def run(request: Request) -> Any:
        with _InSpan(serving, request):
            return (yield from handler(request))

    return run


_WRAPPERS: Final = {
    Kind.COROUTINE: _coroutine,
    Kind.FUNCTION: _function,
    Kind.ASYNC_GENERATOR: _async_generator,
    Kind.GENERATOR: _generator,
}
