"""An asyncio event loop with virtual time, for a simulated process from its start to its end.

It has callbacks, timers, tasks, threads and signals, and runs on the clock of its process. It has
no sockets: `requite.transport` makes the connections, through the simulated network.

It keeps the guarantees of asyncio: callbacks run in the order in which they were scheduled, a
callback scheduled during an iteration runs in a later one, and timers never fire early. What
asyncio leaves open is drawn from the seed: the duration of iterations and threads, the events in
between, the lateness of timers, and the order of timers with the same due time.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random
from typing import Any, Final, NoReturn, Protocol, TypeVar

from requite.errors import ConfigurationError
from requite.sim.kernel.disk import Killed

# The longest delay of a function that runs in a thread.
_THREAD_S_MAX: Final = 0.002
_AWAITS_MAX: Final = 100
# The number of tasks from which on finished ones are removed.
_TASKS_MIN: Final = 64

T = TypeVar("T")
Work = Generator[Any, None, T] | Coroutine[Any, Any, T]


class SimTask(asyncio.Task[T]):
    """A task whose hash is its number, so that sets of tasks have the same order in every run."""

    def __init__(self, number: int, work: Any, **options: Any) -> None:
        self._number = number
        super().__init__(work, **options)

    def __hash__(self) -> int:
        return self._number


class SimFuture(asyncio.Future[T]):
    """A future whose hash is its number."""

    def __init__(self, number: int, *, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class Owner(Protocol):
    """The interface of a program to its event loop."""

    name: str
    rng: Random
    alive: bool

    def clock(self) -> float:
        """Return the time of the process's clock."""

    def want_iteration(self) -> None:
        """Schedule a call of `VirtualLoop.iterate`."""

    def wake_at(self, at: float) -> None:
        """Schedule a call of `VirtualLoop.iterate` at a time of the process's clock."""

    def in_thread(self, delay_s: float, act: Callable[..., object], *args: Any) -> None:
        """Schedule a call outside the loop."""

    def callback_failed(self, context: dict[str, Any]) -> None:
        """Report an exception of a callback."""


class VirtualLoop(asyncio.AbstractEventLoop):
    """The event loop of a program, from its start to its end; the program calls `iterate` when an
    iteration is due."""

    def __init__(self, program: Owner) -> None:
        self._program = program
        self._random = program.rng.random
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, float, int, asyncio.TimerHandle]] = []
        self._numbers = count(1)
        self._tasks: list[asyncio.Task[Any]] = []  # strong references; asyncio keeps only weak ones
        self._tasks_max = _TASKS_MIN
        self._signals: dict[int, asyncio.Handle] = {}
        self._runs = False
        self._works = False  # whether a thread's function is running
        self._exception_handler: Any = None
        self.is_over = False  # whether the process has ended

    # --- for the program --------------------------------------------------------------------------
    @property
    def next_at(self) -> float:
        """The time of the next timer; `inf` without timers."""
        timers = self._timers
        while timers and timers[0][3].cancelled():
            heappop(timers)
        return timers[0][0] if timers else inf

    @property
    def is_ready(self) -> bool:
        """Whether callbacks are ready."""
        return bool(self._ready)

    def iterate(self, times: int = 1) -> None:
        """Run the ready callbacks and the due timers, and `times - 1` times those that have become
        ready meanwhile."""
        was_running, hooks = asyncio._get_running_loop(), sys.get_asyncgen_hooks()
        asyncio._set_running_loop(self)
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._finalize)
        self._runs = True
        try:
            self._take_due_timers()
            for _ in range(times):
                if not self._ready or self.is_over:
                    break
                self._run_ready()
        finally:
            self._runs = False
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(was_running)

    def _take_due_timers(self) -> None:
        now = self.time()
        timers = self._timers
        while timers and timers[0][0] <= now:
            timer = heappop(timers)[3]
            if not timer.cancelled():
                self._ready.append(timer)

    def _run_ready(self) -> None:
        ready = self._ready
        for _ in range(len(ready)):
            if self.is_over:  # a callback has ended the process
                return
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _finalize(self, generator: Any) -> None:
        """Close an unfinished asynchronous generator, as asyncio does."""
        if not self.is_over:
            self.call_soon(self.create_task, generator.aclose())

    def signal(self, number: int) -> bool:
        """Deliver a signal; return whether a handler is installed."""
        handle = self._signals.get(number)
        if handle is not None:
            self.call_soon(handle._run)
        return handle is not None

    def left(self) -> list[str]:
        """Return the tasks and timers that an exited program left pending. Cancelled tasks do not
        count: `asyncio.run` waits for them."""
        pending = [task for task in self._tasks if not task.done() and not task.cancelling()]
        tasks = [f"the task {task.get_name()} in {task.get_coro()!r}" for task in pending]
        timers = [f"the timer {each[3]!r}" for each in self._timers if not each[3].cancelled()]
        return [*tasks, *timers]

    def discard(self) -> None:
        """Close the coroutines of a process that has ended, once the run is over.

        Their `finally` blocks run now; in a killed process they would not run. The tasks that these
        blocks make are closed, too, before they begin.
        """
        was_running = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            while self._tasks:
                tasks, self._tasks = self._tasks, []
                for task in tasks:
                    if not task.done():
                        task._log_destroy_pending = False  # type: ignore[attr-defined]
                        _close(task.get_coro())
        finally:
            asyncio._set_running_loop(was_running)
        self._ready.clear()
        self._timers.clear()

    # --- callbacks and timers ---------------------------------------------------------------------
    def time(self) -> float:
        """Return the time of the process's clock."""
        return self._program.clock()

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run a callback in the next iteration."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        self._program.want_iteration()
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run a callback in the next iteration. Raises `ConfigurationError` if a thread wants to
        wait for a coroutine: a simulated thread runs without interruption."""
        if self._works and "run_coroutine_threadsafe" in getattr(callback, "__qualname__", ""):
            raise ConfigurationError(
                "a thread cannot wait for a coroutine in a simulation; make the handler an"
                " `async def` function (of partial replies: an async generator)"
            )
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback after `delay` seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback at a time of the loop's clock."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._timers, (when, self._random(), next(self._numbers), handle))
        self._program.wake_at(self.next_at)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: `next_at` removes cancelled timers."""

    # --- futures, tasks, threads ------------------------------------------------------------------
    def create_future(self) -> asyncio.Future[Any]:
        """Return a new future."""
        return SimFuture(next(self._numbers), loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """Return a new task."""
        number = next(self._numbers)
        options.setdefault("name", f"{self._program.name}-{number}")
        task: asyncio.Task[Any] = SimTask(number, coro, loop=self, **options)
        if len(self._tasks) >= self._tasks_max:
            self._tasks = [each for each in self._tasks if not each.done()]
            self._tasks_max = max(_TASKS_MIN, 2 * len(self._tasks))
        self._tasks.append(task)
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Call a function after a random delay, in place of a thread. It runs without interruption,
        in no virtual time."""
        future: asyncio.Future[T] = self.create_future()
        delay_s = _THREAD_S_MAX * self._random()
        self._program.in_thread(delay_s, self._work, future, func, args)
        return future

    def _work(self, future: asyncio.Future[Any], func: Callable[..., Any], args: Any) -> None:
        self._works = True
        was_running = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            result = func(*args)
        except Killed:
            raise
        except BaseException as error:
            self.call_soon(_unless_done, future, future.set_exception, error)
        else:
            self.call_soon(_unless_done, future, future.set_result, result)
        finally:
            asyncio._set_running_loop(was_running)
            self._works = False

    # --- signals ----------------------------------------------------------------------------------
    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., object], *args: Any
    ) -> None:
        """Call a function when the process receives a signal."""
        self._signals[sig] = asyncio.Handle(callback, args, self)

    def remove_signal_handler(self, sig: int) -> bool:
        """Restore the default action of a signal."""
        return self._signals.pop(sig, None) is not None

    # --- errors and state -------------------------------------------------------------------------
    def set_exception_handler(self, handler: Any) -> None:
        """Call `handler(loop, context)` for exceptions of callbacks."""
        self._exception_handler = handler

    def get_exception_handler(self) -> Any:
        """Return the handler that was set."""
        return self._exception_handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an exception of a callback to the handler."""
        if self._exception_handler is not None:
            self._exception_handler(self, context)
        else:
            self.default_exception_handler(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an exception of a callback to the program."""
        self._program.callback_failed(context)

    def get_debug(self) -> bool:
        """Return False: there is no debug mode."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Ignored: there is no debug mode."""

    def is_running(self) -> bool:
        """Return whether a callback of this loop is running."""
        return self._runs

    def is_closed(self) -> bool:
        """Return whether the process has ended."""
        return self.is_over

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: generators are closed with their tasks."""

    # --- not available in a simulation ------------------------------------------------------------
    async def getaddrinfo(self, *_args: Any, **_options: Any) -> Any:
        """Raise `ConfigurationError`: a simulation has no name resolution."""
        _refuse("names of hosts are not looked up")

    async def create_connection(self, *_args: Any, **_options: Any) -> Any:
        """Raise `ConfigurationError`: a simulation has no sockets."""
        _refuse("there are no sockets")

    async def create_server(self, *_args: Any, **_options: Any) -> Any:
        """Raise `ConfigurationError`: a simulation has no sockets."""
        _refuse("there are no sockets")

    async def create_unix_connection(self, *_args: Any, **_options: Any) -> Any:
        """Raise `ConfigurationError`: a simulation has no sockets."""
        _refuse("there are no sockets")

    async def create_unix_server(self, *_args: Any, **_options: Any) -> Any:
        """Raise `ConfigurationError`: a simulation has no sockets."""
        _refuse("there are no sockets")

    async def subprocess_exec(self, *_args: Any, **_options: Any) -> Any:
        """Raise `ConfigurationError`: a simulation has no child processes."""
        _refuse("there are no child processes")

    async def subprocess_shell(self, *_args: Any, **_options: Any) -> Any:
        """Raise `ConfigurationError`: a simulation has no child processes."""
        _refuse("there are no child processes")


def _refuse(what: str) -> NoReturn:
    raise ConfigurationError(
        f"{what} in a simulation: replace what does real I/O by a double, and use tcp:// addresses"
    )


def _unless_done(future: asyncio.Future[Any], set_it: Callable[[Any], object], what: Any) -> None:
    """Set a result or an exception, unless the future is done."""
    if not future.done():
        set_it(what)


def _close(work: Any) -> None:
    """Close a coroutine, after the coroutines that it awaits."""
    chain = []
    while hasattr(work, "cr_await"):
        chain.append(work)
        work = work.cr_await
    for each in reversed(chain):
        _close_one(each)


def _close_one(work: Any) -> None:
    for _ in range(_AWAITS_MAX):  # each `await` in a `finally` block suspends it again
        try:
            work.close()
        except RuntimeError as error:
            if "ignored GeneratorExit" not in str(error):
                return
        except BaseException:  # any exception of its `finally` blocks
            return
        else:
            return
