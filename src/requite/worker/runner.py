"""Runs the handler of one service for one engine, and feeds what comes of it back as inputs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, Final

from requite.engine import Finished, Input, Produced, Progressed, Started
from requite.errors import RemoteFailure
from requite.request import Request, Status
from requite.worker.handler import Kind, Service, frames_of
from requite.worker.lanes import Lanes

# A generator that never suspends lets the loop send what it has yielded after so many partials.
_PARTIALS_PER_TURN: Final = 64

# What ends a task or the program, and is no answer to a request.
_NOT_THE_HANDLERS: Final = (
    asyncio.CancelledError,
    GeneratorExit,
    KeyboardInterrupt,
    SystemExit,
)

_OK: Final = Status.OK

_log = logging.getLogger("requite.worker")


class Runner:
    """Between an engine and a handler. `submit` feeds the engine, on the event loop, `submit_soon`
    with others of the turn; its shell sets them, since each of the two needs the other.

    `told` are the services whose log has been told that a handler answered with None: one set for
    all runners of a worker. `to_the_end`: no handler that has started is interrupted, but by
    `close`.
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
        self._on_progress = self._progressed  # made once, not per request
        self._service = service
        self._reply_size_max = reply_size_max
        self._frames_max = frames_max
        self._handler = service.handler
        # Threads begin when they are first needed: an `async` handler has none.
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"requite-{service.name}")
        self._free: asyncio.Event | None = None  # is there while the broker pushes back
        self._unheard: set[Any] = set()  # tokens given up whose handlers run in threads
        self._closed = False
        run = {
            Kind.COROUTINE: self._run_coroutine,
            Kind.FUNCTION: self._run_function,
            Kind.ASYNC_GENERATOR: self._run_async_generator,
            Kind.GENERATOR: self._run_generator,
        }[service.kind]
        self._in_thread = service.in_thread
        self._lanes: Lanes[Any, Request] = Lanes(
            capacity, run, self._dropped, interruptible=not (self._in_thread or to_the_end)
        )
        self.deliver = self._lanes.put  # (token, request): have the handler run
        self.deliver_all = self._lanes.put_all

    # --- what the host wants ----------------------------------------------------------------------
    def abandon(self, token: Any, _reason: str) -> None:
        """Interrupt a handler nobody waits for. One in a thread runs on, unheard: a generator until
        its next `yield`, a function to its end."""
        if self._in_thread:
            self._unheard.add(token)
            self._let_go()
        self._lanes.cancel(token)

    def flow(self, is_free: bool) -> None:
        """Hold partial replies back while the broker pushes back."""
        if not is_free and self._free is None:
            self._free = asyncio.Event()
        elif is_free:
            self._let_go()
            self._free = None

    def _let_go(self) -> None:
        """Let those that wait for the broker see whether they still have to."""
        if self._free is not None:
            self._free.set()
            self._free = asyncio.Event()

    async def close(self) -> None:
        """Interrupt what runs."""
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
            if result.__class__ is bytes and len(result) <= self._reply_size_max:  # nearly always
                frames: Sequence[bytes] = (result,)
            else:
                frames = self._frames_of(result)
        except _NOT_THE_HANDLERS:
            raise
        except BaseException as error:
            self._failed(token, error)
        else:
            self.submit_soon(Finished(token, frames, _OK))

    async def _run_async_generator(self, token: Any, request: Request) -> None:
        if self._tell_starts:
            self.submit(Started(token))
        request._token = token
        request._on_progress = self._on_progress
        count = 0
        try:
            async for part in self._handler(request):
                self.submit(Produced(token, self._frames_of(part)))
                count += 1
                if self._free is not None:
                    await self._free.wait()
                elif count % _PARTIALS_PER_TURN == 0:
                    await asyncio.sleep(0)
        except _NOT_THE_HANDLERS:
            raise
        except BaseException as error:
            self._failed(token, error)
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
            result = await loop.run_in_executor(
                self._threads, self._begin, loop, token, work, request
            )
            frames = self._frames_of(result)
        except _Unheard:
            self._dropped(token)
        except Exception as error:
            self._failed(token, error)
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
        """Do `work` in a thread, unless it was given up while it waited for one (I15)."""
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
        """Return a result as frames; raise `ValueError` for what the broker would not take.

        It would drop the connection, and with it everything else that this worker holds.
        """
        if result is None:
            self._tell_of_none()
        frames = frames_of(result)
        if len(frames) > self._frames_max:
            limit = f"the maximum is {self._frames_max}"
            raise ValueError(f"the reply has {len(frames)} frames; {limit}")
        size = sum(map(len, frames))
        if size > self._reply_size_max:
            raise ValueError(f"the reply has {size} bytes; the maximum is {self._reply_size_max}")
        return frames

    def _tell_of_none(self) -> None:
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

    def _failed(self, token: Any, error: BaseException) -> None:
        if not isinstance(error, RemoteFailure):
            _log.warning("a handler of %s failed", self._service.name, exc_info=error)
        self.submit(Finished(token, (_reason(error),), Status.FAILED))

    def _dropped(self, token: Any) -> None:
        self._unheard.discard(token)
        self.submit(Finished(token, (b"it was given up",), Status.CANCELLED))


class _Unheard(Exception):
    """Ends a generator in a thread whose partial replies nobody waits for."""


def _run(work: Callable[[Request], Any], request: Request) -> Any:
    """Do `work` in a thread.

    A future cannot hold `StopIteration`: it would never be done. `SystemExit` and its like would
    end the event loop that awaits the future, where a thread can only end itself.
    """
    try:
        return work(request)
    except Exception as error:
        if not isinstance(error, StopIteration):
            raise
        raise RuntimeError(f"the handler raised StopIteration: {error}") from error
    except BaseException as error:
        raise RuntimeError(f"the handler raised {type(error).__name__}: {error}") from error


def _reason(error: BaseException) -> bytes:
    """Return what the caller is told, whatever the exception is made of."""
    try:
        text = str(error)
    except Exception:
        text = "(no text: its __str__ failed)"
    if not isinstance(error, RemoteFailure):
        text = f"{type(error).__name__}: {text}"
    return text.encode(errors="backslashreplace")
