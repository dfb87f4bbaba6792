"""A typed service as one worker serves it: handlers of bytes around its methods."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final

from requite.errors import ConfigurationError, RemoteFailure
from requite.request import Request
from requite.speaks.plans import Carries
from requite.typed.codec import FLAWS, NO_BODY, Codec, flaw_of
from requite.typed.context import Context, Middleware, chained
from requite.typed.depends import Resolver
from requite.typed.envelope import unwrap_request, wrap_refusal, wrap_reply
from requite.typed.handlers import PLAIN, Refusing, calling_with_message
from requite.typed.messages import checked_writer, reader
from requite.typed.method import Method
from requite.typed.names import DESCRIBE
from requite.typed.refusals import KEY_REUSED, bad_request, no_method
from requite.worker.handler import Kind
from requite.worker.handler import Service as Handled
from requite.worker.runner import is_refusal, reason_of

_YIELDING: Final = (Kind.GENERATOR, Kind.ASYNC_GENERATOR)
_OVER: Final = object()

_log = logging.getLogger("requite.worker")


class Serving:
    """The handlers of a service for one worker, and what lives as long as it: the `lifespan` and
    the dependencies made once."""

    def __init__(
        self,
        name: str,
        version: str,
        prefix: str,
        codec: Codec,
        methods: tuple[Method, ...],
        middleware: tuple[Middleware, ...],
        lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None,
        describe: Callable[[Request], Awaitable[bytes]],
        carries: Carries,
    ) -> None:
        self._name = name
        self._version = version
        self._codec = codec
        self._middleware = middleware
        self._make_lifespan = lifespan
        self._lifespan: AbstractAsyncContextManager[Any] | None = None
        self._resolver = Resolver()
        self._state: Any = None
        if not (carries.partials and carries.refusals):
            _check_has_no_partials(methods)
        served = [self._handled(method) for method in methods]
        served.append(Handled(f"{prefix}.{DESCRIBE}", describe, Kind.COROUTINE))
        if carries.names:
            if not carries.refusals:
                raise ConfigurationError(
                    "MDP before 0.3 has no negative replies, which typed services need; use MDP 0.3"
                )
            self.services = tuple(served)
        else:
            self.services = (self._in_the_body(prefix, served, methods, carries),)

    async def open(self) -> None:
        """Enter the service's `lifespan`; raises what it raises."""
        if self._make_lifespan is not None:
            lifespan = self._make_lifespan()
            self._state = await lifespan.__aenter__()
            self._lifespan = lifespan

    async def close(self) -> None:
        """Leave the `lifespan`, once."""
        lifespan, self._lifespan = self._lifespan, None
        if lifespan is not None:
            await lifespan.__aexit__(None, None, None)

    # --- handlers of bytes ------------------------------------------------------------------------
    def _handled(self, method: Method) -> Handled:
        needs = method.signature.needs
        kind = method.kind
        make: Any
        run: Any
        if self._middleware or needs.dependencies:
            kind = Kind.ASYNC_GENERATOR if kind in _YIELDING else Kind.COROUTINE
            make, run = PLAIN[kind], self._whole_run(method)
        else:
            make, run = PLAIN[kind], self._plain_run(method)
            if kind is Kind.COROUTINE and method.signature.parameter and not needs.context:
                make, run = calling_with_message, method.function
        handler = make(self._reading(method), run, self._writing(method), Refusing(method))
        return Handled(method.address, handler, kind, method.idempotent, KEY_REUSED)

    def _reading(self, method: Method) -> Callable[[Request], Any]:
        """Return the function that decodes a request; it raises the refusal of a bad one.

        What encodes to the very bytes that it was decoded from has no duplicate keys, since an
        encoder writes none. So a request of a bound client costs one encoding more (0.4 us for 120
        bytes); only others are parsed a second time, which takes ten times as long.
        """
        kind = method.signature.input
        if kind is Request:
            return _the_request
        decode, codec = reader(self._codec, kind), self._codec
        if kind in (bytes, None):
            return _reading_plain(decode)
        encode, check_keys = codec.encode, codec.check_keys

        def read(request: Request) -> Any:
            body = request.body
            try:
                message = decode(body)
                if encode(message) != body:
                    check_keys(body)
                return message
            except FLAWS as error:
                raise bad_request(flaw_of(error) if body else NO_BODY) from error

        return read

    def _writing(self, method: Method) -> Callable[[Any], bytes]:
        """Return the function that encodes a reply; it raises the failure of a wrong one, which is
        also logged. To find it, the reply is decoded as the caller will (0.5 us for 60 bytes)."""
        encode, decode = checked_writer(self._codec, method.signature.output)

        def write(value: Any) -> bytes:
            try:
                body = encode(value)
                decode(body)
                return body
            except (*FLAWS, NotImplementedError) as error:
                path, reason = flaw_of(error)
                _log.error("%s returned a wrong reply: %s: %s", method.address, path, reason)
                text = f"the handler returned a wrong reply: {path}: {reason}"
                raise RemoteFailure(text) from error

        return write

    def _context(self, method: Method, request: Request) -> Context:
        return Context(self._name, self._version, method.name, request, self._state)

    def _plain_run(self, method: Method) -> Callable[[Any, Request], Any]:
        """Return the function that calls a method without middleware and dependencies."""
        function, signature = method.function, method.signature
        name = signature.needs.context
        if not name:
            if signature.parameter:
                return lambda message, _request: function(message)
            return lambda _message, _request: function()
        arguments = _arguments(method)
        return lambda message, request: function(
            *arguments(message), **{name: self._context(method, request)}
        )

    def _whole_run(self, method: Method) -> Callable[[Any, Request], Any]:
        """Return the function that runs a method within its middleware, with its dependencies: a
        coroutine function, or for a method with partial replies an async generator.

        A `def` method runs in the event loop's pool of threads, since middleware is asynchronous.
        """
        function, needs = method.function, method.signature.needs
        arguments = _arguments(method)

        async def last(message: Any, context: Context) -> Any:
            keywords = await self._resolver.keywords(needs, context)
            call = partial(function, *arguments(message), **keywords)
            match method.kind:
                case Kind.COROUTINE:
                    return await call()
                case Kind.FUNCTION:
                    return await asyncio.to_thread(call)
                case Kind.ASYNC_GENERATOR:
                    return call()
                case Kind.GENERATOR:
                    return _from_thread(call())

        run = chained(self._middleware, last)
        if method.kind in _YIELDING:
            return lambda message, request: _parts(run, message, self._context(method, request))
        return lambda message, request: run(message, self._context(method, request))

    # --- where messages carry only bodies ---------------------------------------------------------
    def _in_the_body(
        self, prefix: str, served: list[Handled], methods: tuple[Method, ...], carries: Carries
    ) -> Handled:
        """Return the one handler that finds the method in the body of the request."""
        for method in methods:
            if method.idempotent is not None:
                raise ConfigurationError(
                    f"{method.address} has Dedup, which needs a service name for each method; use"
                    " MDP 0.3 without a pool"
                )
        handlers = {each.name: _asynchronous(each) for each in served}

        async def dispatch(request: Request) -> bytes | AsyncIterator[bytes]:
            try:
                name, payload = unwrap_request(request.body)
            except ValueError as error:
                raise bad_request(flaw_of(error)) from error
            handler = handlers.get(name)
            if handler is None:
                raise no_method(name)
            request.service, request.frames = name, (payload,)
            result = handler(request)
            return await result if isinstance(result, Awaitable) else result

        async def dispatch_without_refusals(request: Request) -> bytes:
            try:
                result = await dispatch(request)
                assert isinstance(result, bytes)  # methods with partial replies were refused
                return wrap_reply(result)
            except Exception as error:
                if not is_refusal(error):
                    _log.warning("a handler of %s failed", request.service, exc_info=error)
                return wrap_refusal(reason_of(error))

        handler = dispatch if carries.refusals else dispatch_without_refusals
        return Handled(prefix, handler, Kind.COROUTINE)


def _reading_plain(decode: Callable[[bytes], Any]) -> Callable[[Request], Any]:
    """Return the function that reads a message that has no keys."""

    def read(request: Request) -> Any:
        try:
            return decode(request.body)
        except FLAWS as error:
            raise bad_request(flaw_of(error)) from error

    return read


def _the_request(request: Request) -> Request:
    return request


def _arguments(method: Method) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function that makes a method's positional arguments from its message."""
    if method.signature.parameter:
        return lambda message: (message,)
    return lambda _message: ()


async def _parts(
    run: Callable[[Any, Context], Awaitable[Any]], message: Any, context: Context
) -> AsyncIterator[Any]:
    """Yield the partial replies that a method, or its middleware, returns as an async iterator."""
    parts = await run(message, context)
    try:
        async for part in parts:
            yield part
    finally:
        if hasattr(parts, "aclose"):
            await parts.aclose()


async def _from_thread(parts: Iterator[Any]) -> AsyncIterator[Any]:
    """Iterate in threads over what a `def` method yields."""
    while (part := await asyncio.to_thread(next, parts, _OVER)) is not _OVER:
        yield part


def _asynchronous(handled: Handled) -> Callable[[Request], Awaitable[bytes] | AsyncIterator[bytes]]:
    """Return a handler as a coroutine function or, with partial replies, an async generator."""
    handler = handled.handler
    if handled.kind is Kind.FUNCTION:
        return lambda request: asyncio.to_thread(handler, request)
    if handled.kind is Kind.GENERATOR:
        return lambda request: _from_thread(handler(request))
    return handler


def _check_has_no_partials(methods: tuple[Method, ...]) -> None:
    for method in methods:
        if method.signature.streams:
            raise ConfigurationError(
                f"{method.address} has partial replies, which the protocol of the URL does not"
                " carry; use MDP 0.3 or RabbitMQ"
            )
