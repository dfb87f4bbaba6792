"""Serve until a signal: the first SIGTERM or SIGINT drains, a second one stops at once."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeAlias

from requite.cli.exit_codes import ExitCode
from requite.cli.output import complain
from requite.errors import RequiteError, TransportError

_COLLECT: Final = (50_000, 20, 20)  # Python has 700, 10, 10
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_STOPPED_BY: Final = {
    signal.SIGTERM: ExitCode.STOPPED,
    signal.SIGINT: ExitCode.INTERRUPTED,
}

_log = logging.getLogger("requite.cli")


class Server(Protocol):
    """A broker, a worker or a device."""

    async def start(self) -> object:
        """Begin to serve."""

    async def drain(self) -> None:
        """Take nothing new, finish what is there, and close."""

    async def close(self) -> None:
        """Stop at once."""


class CannotListenError(Exception):
    """An address to listen at cannot be had."""


UntilFailed: TypeAlias = Callable[[], Coroutine[Any, Any, RequiteError]]
"""Waits until there is nothing left to serve for, and returns the error that says why."""

UntilOver: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Waits until the server has done what it was there for."""


def collect_rarely() -> None:
    """Have the garbage collector look less often at what is there.

    For servers that make no cycles of their own, and hold many objects for a while: with 256
    requests under way, each in a dozen objects, the usual 700 between two looks made these old, and
    every one of them was looked at again and again; that took half of the time of a submission.
    """
    gc.freeze()
    gc.set_threshold(*_COLLECT)


def run_until_stopped(
    server: Server,
    on_started: Callable[[], None],
    until_failed: UntilFailed | None = None,
    until_over: UntilOver | None = None,
) -> ExitCode:
    """Do what `serve` does on an event loop of its own; tell of an address that cannot be had."""
    from requite.shell.aio import run

    try:
        return run(serve(server, on_started, until_failed, until_over))
    except CannotListenError as error:
        complain(str(error))
        return ExitCode.CANNOT_LISTEN


async def serve(
    server: Server,
    on_started: Callable[[], None],
    until_failed: UntilFailed | None = None,
    until_over: UntilOver | None = None,
) -> ExitCode:
    """Serve until a signal ends it, or `until_over` does; return OK if it has drained, else what
    stopped it. Raises what `until_failed` returns, and `CannotListenError`."""
    with _caught_signals() as arrived:
        try:
            await _start(server)
            on_started()
            first = await _first(arrived, until_failed, until_over)
            name = "none" if first is None else first.name
            _log.info("draining; a second signal stops at once", extra={"signal": name})
            return await _drain(server, arrived)
        finally:
            await server.close()


async def _start(server: Server) -> None:
    try:
        await server.start()
    except TransportError as error:
        raise CannotListenError(str(error)) from error


async def _first(
    arrived: asyncio.Queue[signal.Signals],
    until_failed: UntilFailed | None,
    until_over: UntilOver | None,
) -> signal.Signals | None:
    """Wait for a signal, or for the end (None), and raise what fails before either comes."""
    told = asyncio.ensure_future(arrived.get())
    others: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(wait()) for wait in (until_failed, until_over) if wait is not None
    ]
    await asyncio.wait((told, *others), return_when=asyncio.FIRST_COMPLETED)
    for each in (told, *others):
        each.cancel()
    if told.done() and not told.cancelled():
        return told.result()
    if until_failed is not None and others[0].done() and not others[0].cancelled():
        raise others[0].result()
    return None


async def _drain(server: Server, arrived: asyncio.Queue[signal.Signals]) -> ExitCode:
    draining = asyncio.ensure_future(server.drain())
    second = asyncio.ensure_future(arrived.get())
    await asyncio.wait((draining, second), return_when=asyncio.FIRST_COMPLETED)
    if draining.done():
        second.cancel()
        draining.result()
        _log.info("drained")
        return ExitCode.OK
    draining.cancel()
    await asyncio.wait((draining,))
    _log.warning("stopped before it had drained", extra={"signal": second.result().name})
    return _STOPPED_BY[second.result()]


@contextmanager
def _caught_signals() -> Iterator[asyncio.Queue[signal.Signals]]:
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for number in _SIGNALS:
        loop.add_signal_handler(number, arrived.put_nowait, number)
    try:
        yield arrived
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
