"""Run the handler of one service for one engine, and feed its results back as inputs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeGuard

from requite.chronicle import NO_CALL
from requite.engine import Finished, Input, Produced, Progressed, Started
from requite.errors import RemoteFailure
from requite.metrics.handled import Handled
from requite.request import FINAL, Request, Status
from requite.trace_context import trace_id
from requite.worker.handler import Kind, Service, closing_parts, frames_of, text_of
from requite.worker.lanes import Lanes

# After so many partials, a generator that never suspends lets the event loop send them.
_PARTIALS_PER_TURN: Final = 64

# Exceptions that end a task or the program; they do not answer a request.
_NOT_THE_HANDLERS: Final = (
    asyncio.CancelledError,
    GeneratorExit,
    KeyboardInterrupt,
    SystemExit,
)

_OK: Final = Status.OK

_log = logging.getLogger("requite.worker")


class Runner:
    """Connects an engine with a handler. `submit` feeds the engine at once, on the event loop;
    `submit_soon` together with other inputs of the iteration. Set both once the shell exists.

    `told`: services for which a None reply was logged; one set for all runners of a worker.
    `to_the_end`: only `close` interrupts a handler that has started.
    """

    submit: Callable[[Input], None]
    submit_soon: Callable[[Input], None]

    def __init__(
        self,
        service: Service,
        capacity: int,
        threads: int,
        reply_size_max: int,
        frames_max: int,
        *,
        told: set[str],
        tell_starts: bool = False,
        to_the_end: bool = False,
    ) -> None:
        self._told = told
        self._tell_starts = tell_starts
        self._to_the_end = to_the_end
        self._on_progress = self._progressed  # bound once, not per request
        self._service = service
        self._reply_size_max = reply_size_max
        self._frames_max = frames_max
        self._handler = service.handler
        # Threads start on first use: an `async` handler has none.
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"requite-{service.name}")
        self._free: asyncio.Event | None = None  # None unless the broker pushes back
        self._unheard: set[Any] = set()  # cancelled tokens whose handlers run in threads
        self._closed = False
        run = {
            Kind.COROUTINE: self._run_coroutine,
            Kind.FUNCTION: self._run_function,
            Kind.ASYNC_GENERATOR: self._run_async_generator,
            Kind.GENERATOR: self._run_generator,
        }[service.kind]
        self._failures = 0
        self._drops = 0
        self._in_thread = service.in_thread
        self._lanes: Lanes[Any, Request] = Lanes(
            capacity, run, self._dropped, interruptible=not (self._in_thread or to_the_end)
        )
        self.deliver = self._lanes.put  # (token, request): run the handler
        self.deliver_all = self._lanes.put_all

    def handled(self) -> Handled:
        """Return counts of the requests."""
        lanes = self._lanes
        took, cancelled = lanes.took, self._drops + lanes.interrupted
        return Handled(
            self._service.name,
            lanes.waiting,
            lanes.running,
            took.count - self._failures - (cancelled - lanes.withdrawn),
            self._failures,
            cancelled,
            tuple(took.counts),
            took.total_s,
        )

    # --- callbacks of the host --------------------------------------------------------------------
    def abandon(self, token: Any, _reason: str) -> None:
        """Cancel a handler. In a thread, a generator runs to its next `yield` and a function to its
        end; the result is dropped."""
        if self._in_thread:
            self._unheard.add(token)
            self._let_go()
        self._lanes.cancel(token)

    def flow(self, is_free: bool) -> None:
        """Pause partial replies while the broker pushes back; resume when `is_free`."""
        if not is_free and self._free is None:
            self._free = asyncio.Event()
        elif is_free:
            self._let_go()
            self._free = None

    def _let_go(self) -> None:
        """Wake the handlers that wait for the broker, so that they check again."""
        if self._free is not None:
            self._free.set()
            self._free = asyncio.Event()

    async def close(self) -> None:
        """Interrupt all handlers and shut the threads down."""
        self._closed = True
        self._let_go()
        await self._lanes.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # --- the four kinds ---------------------------------------------------------------------------
    async def _run_coroutine(self, token: Any, request: Request) -> None:
        if self._tell_starts:
            self.submit(Started(token))
        request._token = token
        request._on_progress = self._on_progress
        try:
            result = await self._handler(request)
            if result.__class__ is bytes and len(result) <= self._reply_size_max:  # the usual case
                frames: Sequence[bytes] = (result,)
            elif isinstance(result, AsyncIterator):
                await self._produce_all(token, request, result)
                return
            else:
                frames = self._frames_of(result)
        except _NOT_THE_HANDLERS:
            raise
        except BaseException as error:
            self._failed(token, request, error)
        else:
            self.submit_soon(Finished(token, frames, _OK))

    async def _run_async_generator(self, token: Any, request: Request) -> None:
        if self._tell_starts:
            self.submit(Started(token))
        request._token = token
        request._on_progress = self._on_progress
        await self._produce_all(token, request, self._handler(request))

    async def _produce_all(self, token: Any, request: Request, parts: AsyncIterator[Any]) -> None:
        count = 0
        try:
            async with closing_parts(parts):
                async for part in parts:
                    self.submit(Produced(token, self._frames_of(part)))
                    count += 1
                    if self._free is not None:
                        await self._free.wait()
                    elif count % _PARTIALS_PER_TURN == 0:
                        await asyncio.sleep(0)
        except _NOT_THE_HANDLERS:
            raise
        except BaseException as error:
            self._failed(token, request, error)
        else:
            self._finished(token, (b"",))

    async def _run_function(self, token: Any, request: Request) -> None:
        await self._run_in_thread(token, request, self._handler)

    async def _run_generator(self, token: Any, request: Request) -> None:
        loop = asyncio.get_running_loop()

        def iterate(request: Request) -> Any:
            with closing(self._handler(request)) as iterator:
                while True:
                    try:
                        part = next(iterator)
                    except StopIteration as end:
                        return b"" if end.value is None else end.value
                    produced = Produced(token, self._frames_of(part))
                    asyncio.run_coroutine_threadsafe(self._produce(produced), loop).result()

        await self._run_in_thread(token, request, iterate)

    async def _run_in_thread(
        self, token: Any, request: Request, work: Callable[[Request], Any]
    ) -> None:
        loop = asyncio.get_running_loop()
        request._token = token
        request._on_progress = partial(self._progressed_in_thread, loop)
        try:
            run = copy_context().run  # so that the next request of the thread begins with its own
            result = await loop.run_in_executor(
                self._threads, run, self._begin, loop, token, work, request
            )
            frames = self._frames_of(result)
        except _Unheard:
            self._dropped(token)
        except Exception as error:
            self._failed(token, request, error)
        else:
            self._finished(token, frames)
        finally:
            self._unheard.discard(token)

    def _begin(
        self,
        loop: asyncio.AbstractEventLoop,
        token: Any,
        work: Callable[[Request], Any],
        request: Request,
    ) -> Any:
        """Run `work` in a thread, unless it was cancelled while it waited for one (I15)."""
        self._check_heard(token)
        if self._tell_starts:
            loop.call_soon_threadsafe(self.submit, Started(token))
        return _run(work, request)

    async def _produce(self, produced: Produced) -> None:
        self._check_wanted(produced.token)
        self.submit(produced)
        while self._free is not None:
            await self._free.wait()
            self._check_wanted(produced.token)

    def _check_wanted(self, token: Any) -> None:
        if self._closed or not self._to_the_end:
            self._check_heard(token)

    def _check_heard(self, token: Any) -> None:
        if self._closed or token in self._unheard:
            raise _Unheard

    def _progressed(self, token: Any, extend_s: float) -> None:
        self.submit(Progressed(token, extend_s))

    def _progressed_in_thread(
        self, loop: asyncio.AbstractEventLoop, token: Any, extend_s: float
    ) -> None:
        loop.call_soon_threadsafe(self.submit, Progressed(token, extend_s))

    # --- ends -------------------------------------------------------------------------------------
    def _frames_of(self, result: Any) -> Sequence[bytes]:
        """Return a result as frames; raise `ValueError` for a reply larger than the broker accepts.

        The broker would drop the connection, and with it all other requests of this worker.
        """
        if result is None:
            self._warn_of_none()
        frames = frames_of(result)
        if len(frames) > self._frames_max:
            limit = f"the maximum is {self._frames_max}"
            raise ValueError(f"the reply has {len(frames)} frames; {limit}")
        size = sum(map(len, frames))
        if size > self._reply_size_max:
            raise ValueError(f"the reply has {size} bytes; the maximum is {self._reply_size_max}")
        return frames

    def _warn_of_none(self) -> None:
        name = self._service.name
        if name not in self._told:
            self._told.add(name)
            _log.warning(
                "a handler of %r returned None, and its caller got an empty reply; return (or"
                ' yield) the reply as bytes, or b"" for an empty one (logged once per service)',
                name,
            )

    def _finished(self, token: Any, frames: Sequence[bytes]) -> None:
        self.submit(Finished(token, frames))

    def _failed(self, token: Any, request: Request, error: BaseException) -> None:
        self._failures += 1
        if not is_refusal(error):
            call_id = getattr(token, "call_id", NO_CALL)  # of the job; some have none
            extra = {} if call_id == NO_CALL else {"request_id": call_id.hex()}
            if request.trace:
                extra["trace_id"] = trace_id(request.trace)
            _log.warning("a handler of %s failed", self._service.name, exc_info=error, extra=extra)
        self.submit(Finished(token, _refusal(error), Status.FAILED))

    def _dropped(self, token: Any) -> None:
        self._drops += 1
        self._unheard.discard(token)
        self.submit(Finished(token, (b"it was given up",), Status.CANCELLED))


class _Unheard(Exception):
    """Ends a cancelled handler that runs in a thread."""


def _run(work: Callable[[Request], Any], request: Request) -> Any:
    """Run `work`, and raise `RuntimeError` in place of exceptions that a future must not hold.

    With `StopIteration` the future would never be done; `SystemExit` and its like would end the
    event loop that awaits the future.
    """
    try:
        return work(request)
    except Exception as error:
        if not isinstance(error, StopIteration):
            raise
        raise RuntimeError(f"the handler raised StopIteration: {error}") from error
    except BaseException as error:
        raise RuntimeError(f"the handler raised {type(error).__name__}: {error}") from error


def is_refusal(error: BaseException) -> TypeGuard[RemoteFailure]:
    """Whether a handler raised an error to refuse its request. The error of a call that the handler
    has made, which has attempts, is a failure: the request of its own caller has run."""
    return isinstance(error, RemoteFailure) and not error.attempts


def _refusal(error: BaseException) -> Sequence[bytes]:
    """Return the frames of a negative reply; engines send the second one where it is known."""
    reason = reason_of(error)
    return (reason, FINAL) if is_refusal(error) and error.is_final else (reason,)


def reason_of(error: BaseException) -> bytes:
    """Return the reason for the caller, even if the exception's `__str__` fails."""
    text = text_of(error)
    if not is_refusal(error):
        text = f"{type(error).__name__}: {text}"
    return text.encode(errors="backslashreplace")
