"""Handlers of bytes around the functions of methods.

Each decodes the request, runs the method, encodes what it returns or yields, and sends what it
raises as declared. There is one handler for methods that await, that yield, that do both or
neither: in Python these are four kinds of functions.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

from requite.errors import RemoteFailure
from requite.request import Request
from requite.typed.codec import FLAWS
from requite.typed.method import Method
from requite.typed.refusals import final, unambiguous
from requite.worker.handler import Kind

_log = logging.getLogger("requite.worker")

Reading = Callable[[Request], Any]
Running = Callable[[Any, Request], Any]
Writing = Callable[[Any], bytes]


class Refusing:
    """The errors that a method declares, with `RemoteFailure`, and how each is sent."""

    def __init__(self, method: Method) -> None:
        self._address = method.address
        self._declared = [(error.kind, error) for error in method.errors.values()]
        self.kinds: tuple[type[Exception], ...] = (
            RemoteFailure,
            *(kind for kind, _ in self._declared),
        )

    def refusal(self, error: Exception) -> Exception:
        """Return the exception whose text is sent."""
        for kind, declared in self._declared:
            if isinstance(error, kind):
                try:
                    return final(declared.text_of(error))
                except (*FLAWS, AttributeError, NotImplementedError) as flaw:
                    _log.error("%s raised a wrong %s: %s", self._address, kind.__name__, flaw)
                    return RemoteFailure(f"{kind.__name__}, which cannot be sent: {flaw}")
        return unambiguous(error) if isinstance(error, RemoteFailure) else error


def _calling_coroutine(read: Reading, run: Running, write: Writing, refusing: Refusing) -> Any:
    kinds: tuple[type[Exception], ...] = refusing.kinds
    refusal = refusing.refusal

    async def handle(request: Request) -> bytes:
        message = read(request)
        try:
            result = await run(message, request)
        except kinds as error:
            raise refusal(error) from error
        return write(result)

    return handle


def calling_with_message(
    read: Reading, run: Callable[[Any], Any], write: Writing, refusing: Refusing
) -> Any:
    """Return the handler of the usual method, which takes a message and nothing else: one call
    less than `_calling_coroutine` (0.1 us)."""
    kinds: tuple[type[Exception], ...] = refusing.kinds
    refusal = refusing.refusal

    async def handle(request: Request) -> bytes:
        message = read(request)
        try:
            result = await run(message)
        except kinds as error:
            raise refusal(error) from error
        return write(result)

    return handle


def _calling_function(read: Reading, run: Running, write: Writing, refusing: Refusing) -> Any:
    kinds: tuple[type[Exception], ...] = refusing.kinds
    refusal = refusing.refusal

    def handle(request: Request) -> bytes:
        message = read(request)
        try:
            result = run(message, request)
        except kinds as error:
            raise refusal(error) from error
        return write(result)

    return handle


def _yielding_async(read: Reading, run: Running, write: Writing, refusing: Refusing) -> Any:
    kinds: tuple[type[Exception], ...] = refusing.kinds
    refusal = refusing.refusal

    async def handle(request: Request) -> AsyncIterator[bytes]:
        parts = run(read(request), request)
        try:
            async for part in parts:
                yield write(part)
        except kinds as error:
            raise refusal(error) from error
        finally:
            await parts.aclose()

    return handle


def _yielding(read: Reading, run: Running, write: Writing, refusing: Refusing) -> Any:
    kinds: tuple[type[Exception], ...] = refusing.kinds
    refusal = refusing.refusal

    def handle(request: Request) -> Iterator[bytes]:
        parts = run(read(request), request)
        try:
            for part in parts:
                yield write(part)
        except kinds as error:
            raise refusal(error) from error
        finally:
            parts.close()

    return handle


PLAIN: Final = {
    Kind.COROUTINE: _calling_coroutine,
    Kind.FUNCTION: _calling_function,
    Kind.ASYNC_GENERATOR: _yielding_async,
    Kind.GENERATOR: _yielding,
}
