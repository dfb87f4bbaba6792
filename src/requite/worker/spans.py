"""The spans of requests at their handlers, if the program uses OpenTelemetry.

The span is current while the handler runs, so spans of the handler and of its calls are below it.
Its parent is the call at the client. A request of a trace that is not sampled gets no span, but its
trace goes on in the calls of the handler.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from requite.request import Request
from requite.shell import clock
from requite.trace_context import decode_traceparent
from requite.tracing.api import Tracing, tracing
from requite.worker.handler import Kind, Service, closing_parts, text_of

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

_DURATION: Final = "rpc.server.call.duration"


def in_spans(service: Service) -> Service:
    """Return a service whose handler runs within a span of each request; the same one if the
    program does not use OpenTelemetry."""
    found = tracing(_DURATION)
    if found is None:
        return service
    wrap = _WRAPPERS[service.kind]
    return replace(service, handler=wrap(service.handler, _Serving(service.name, found)))


class _Serving:
    """The spans of one service."""

    def __init__(self, name: str, tracing: Tracing) -> None:
        self._name: Final = name
        self._tracing: Final = tracing

    @contextmanager
    def span(self, request: Request) -> Iterator[None]:
        """Run the body of a `with` statement in the span of a request."""
        tracer = self._tracing.tracer
        if tracer is None:
            yield
            return
        began = clock.now()
        attributes: dict[str, Any] = {"rpc.system.name": "requite", "rpc.method": self._name}
        try:
            with self._current(tracer, request, attributes):
                yield
        except BaseException as error:
            attributes["error.type"] = type(error).__name__
            raise
        finally:
            self._tracing.record(clock.now() - began, attributes)

    @contextmanager
    def _current(
        self, tracer: Tracer, request: Request, attributes: dict[str, Any]
    ) -> Iterator[None]:
        parent = request.traceparent
        more = {"requite.attempt": request.attempt}
        with tracer.start_as_current_span(
            self._name or "request",
            context=self._tracing.context_of(decode_traceparent(parent)),
            kind=self._tracing.kinds.SERVER,
            attributes=attributes | more,
            record_exception=False,  # it would fail with a `__str__` that does
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                self._tracing.fail(span, type(error).__name__, text_of(error))
                raise


def _coroutine(handler: Callable[[Request], Any], serving: _Serving) -> Callable[[Request], Any]:
    async def run(request: Request) -> Any:
        with ExitStack() as stack:
            stack.enter_context(serving.span(request))
            result = await handler(request)
            if isinstance(result, AsyncIterator):  # of partial replies
                return _within(stack.pop_all(), result)
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
        with serving.span(request):
            return handler(request)

    return run


def _async_generator(
    handler: Callable[[Request], Any], serving: _Serving
) -> Callable[[Request], Any]:
    async def run(request: Request) -> AsyncIterator[Any]:
        with serving.span(request):
            async with closing_parts(handler(request)) as parts:
                async for part in parts:
                    yield part

    return run


def _generator(handler: Callable[[Request], Any], serving: _Serving) -> Callable[[Request], Any]:
    def run(request: Request) -> Any:
        with serving.span(request):
            return (yield from handler(request))

    return run


_WRAPPERS: Final = {
    Kind.COROUTINE: _coroutine,
    Kind.FUNCTION: _function,
    Kind.ASYNC_GENERATOR: _async_generator,
    Kind.GENERATOR: _generator,
}
