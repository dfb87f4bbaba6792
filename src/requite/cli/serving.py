"""Serve until a signal: the first SIGTERM or SIGINT drains, a second one stops at once.

SIGHUP drains if the server was started from a terminal, which was closed; otherwise it reloads.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from requite.cli.exit_codes import ExitCode
from requite.cli.output import complain, say
from requite.errors import RequiteError, TransportError
from requite.shell.signals import has_terminal, say_nothing_to_reload

_COLLECT: Final = (200_000, 20, 20)  # Python's default: 700, 10, 10
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_STOPPED_BY: Final = {
    signal.SIGTERM: ExitCode.STOPPED,
    signal.SIGINT: ExitCode.INTERRUPTED,
}

_log = logging.getLogger("requite.cli")


class Server(Protocol):
    """A broker, a worker or a device."""

    async def start(self) -> object:
        """Start serving."""

    async def drain(self) -> None:
        """Accept no new requests, finish pending ones, and close."""

    async def close(self) -> None:
        """Stop at once."""


class Watch(Protocol):
    """A monitor of a server (`requite.metrics.monitor`)."""

    @property
    def url(self) -> str: ...
    @property
    def page_url(self) -> str: ...
    async def start(self) -> None: ...
    async def started(self) -> None: ...
    def draining(self) -> None: ...
    async def close(self) -> None: ...


class CannotListenError(Exception):
    """Cannot bind an address."""


UntilFailed: TypeAlias = Callable[[], Coroutine[Any, Any, RequiteError]]
"""Waits until the server cannot serve any longer, and returns the reason."""

UntilOver: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Waits until the server has finished its task."""

Reload: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Reads the server's settings again; logs what is wrong with them, and raises nothing."""


def collect_rarely() -> None:
    """Run the garbage collector less often.

    For servers that create no reference cycles and hold many objects for a while. With 256 requests
    in flight of a dozen objects each, collections at the default threshold (700) scanned the same
    objects repeatedly, which took half of the time of a submission. Under overload, tens of
    thousands of messages wait: at a threshold of 50,000, goodput is 3 % less than at 200,000.
    """
    gc.freeze()
    gc.set_threshold(*_COLLECT)


def run_until_stopped(
    server: Server,
    on_started: Callable[[], None],
    until_failed: UntilFailed | None = None,
    until_over: UntilOver | None = None,
    reload: Reload | None = None,
    monitor: Watch | None = None,
) -> ExitCode:
    """Run `serve` on a new event loop; report an address that cannot be bound. `monitor` shows the
    server from before its start until after its end."""
    from requite.shell.aio import run

    try:
        return run(serve(server, on_started, until_failed, until_over, reload, monitor))
    except CannotListenError as error:
        complain(str(error))
        return ExitCode.CANNOT_LISTEN


async def serve(
    server: Server,
    on_started: Callable[[], None],
    until_failed: UntilFailed | None = None,
    until_over: UntilOver | None = None,
    reload: Reload | None = None,
    monitor: Watch | None = None,
) -> ExitCode:
    """Serve until a signal arrives or `until_over` returns, then drain; return OK, or the exit code
    of a second signal. Raises the error of `until_failed`, and `CannotListenError`."""
    with (
        _reloading(reload or _reload_nothing) as reload_soon,
        _caught_signals(reload_soon) as arrived,
    ):
        try:
            if monitor is not None:
                await _start(monitor)
                say(f"metrics at {monitor.url}/metrics")
            await _start(server)
            if monitor is not None:
                await monitor.started()
            on_started()
            if monitor is not None and monitor.page_url:
                say(f"page at {monitor.page_url}")
            first = await _first(arrived, until_failed, until_over)
            name = "none" if first is None else first.name
            if monitor is not None:
                monitor.draining()
            _log.info("draining; a second signal stops at once", extra={"signal": name})
            return await _drain(server, arrived)
        finally:
            await server.close()
            if monitor is not None:
                await monitor.close()


async def _start(server: Server | Watch) -> None:
    try:
        await server.start()
    except TransportError as error:
        raise CannotListenError(str(error)) from error


async def _first(
    arrived: asyncio.Queue[signal.Signals],
    until_failed: UntilFailed | None,
    until_over: UntilOver | None,
) -> signal.Signals | None:
    """Return the first signal, or None when `until_over` returns; raise the error of `until_failed`
    if it is first."""
    signalled = asyncio.ensure_future(arrived.get())
    others: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(wait()) for wait in (until_failed, until_over) if wait is not None
    ]
    await asyncio.wait((signalled, *others), return_when=asyncio.FIRST_COMPLETED)
    for each in (signalled, *others):
        each.cancel()
    if signalled.done() and not signalled.cancelled():
        return signalled.result()
    if until_failed is not None and others[0].done() and not others[0].cancelled():
        raise others[0].result()
    return None


async def _drain(server: Server, arrived: asyncio.Queue[signal.Signals]) -> ExitCode:
    draining = asyncio.ensure_future(server.drain())
    second = asyncio.ensure_future(_second(arrived))
    await asyncio.wait((draining, second), return_when=asyncio.FIRST_COMPLETED)
    if draining.done():
        second.cancel()
        draining.result()
        _log.info("drained")
        return ExitCode.OK
    draining.cancel()
    await asyncio.wait((draining,))
    _log.warning("stopped before draining finished", extra={"signal": second.result().name})
    return _STOPPED_BY[second.result()]


async def _second(arrived: asyncio.Queue[signal.Signals]) -> signal.Signals:
    """Return the second signal. It is not SIGHUP, which the shell and the kernel both send when a
    terminal is closed."""
    while (number := await arrived.get()) is signal.SIGHUP:
        pass
    return number


@contextmanager
def _caught_signals(reload_soon: Callable[[], None]) -> Iterator[asyncio.Queue[signal.Signals]]:
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[signal.Signals] = asyncio.Queue()
    handlers: dict[signal.Signals, Callable[[], None]] = {
        number: partial(arrived.put_nowait, number) for number in (*_SIGNALS, signal.SIGHUP)
    }
    if not has_terminal():
        handlers[signal.SIGHUP] = reload_soon
    elif signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # to outlive the terminal
        del handlers[signal.SIGHUP]
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield arrived
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


@contextmanager
def _reloading(reload: Reload) -> Iterator[Callable[[], None]]:
    """Yield a function that requests a call of `reload`; one call runs at a time."""
    requested = asyncio.Event()

    async def work() -> None:
        while True:
            await requested.wait()
            requested.clear()
            try:
                await reload()
            except Exception:  # a failed reload must not end later ones
                _log.exception("the reload failed")

    task = asyncio.ensure_future(work())
    try:
        yield requested.set
    finally:
        task.cancel()


async def _reload_nothing() -> None:
    say_nothing_to_reload()
