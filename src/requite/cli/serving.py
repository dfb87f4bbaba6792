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

_COLLECT: Final = (50_000, 20, 20)  # Python's default: 700, 10, 10
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


class CannotListenError(Exception):
    """Cannot bind an address."""


UntilFailed: TypeAlias = Callable[[], Coroutine[Any, Any, RequiteError]]
"""Waits until the server cannot serve any longer, and returns the reason."""

UntilOver: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Waits until the server has finished its task."""


def collect_rarely() -> None:
    """Run the garbage collector less often.

    For servers that create no reference cycles and hold many objects for a while. With 256 requests
    in flight of a dozen objects each, collections at the default threshold (700) scanned the same
    objects repeatedly, which took half of the time of a submission.
    """
    gc.freeze()
    gc.set_threshold(*_COLLECT)


def run_until_stopped(
    server: Server,
    on_started: Callable[[], None],
    until_failed: UntilFailed | None = None,
    until_over: UntilOver | None = None,
) -> ExitCode:
    """Run `serve` on a new event loop; report an address that cannot be bound."""
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
    """Serve until a signal arrives or `until_over` returns, then drain; return OK, or the exit code
    of a second signal. Raises the error of `until_failed`, and `CannotListenError`."""
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
    second = asyncio.ensure_future(arrived.get())
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
