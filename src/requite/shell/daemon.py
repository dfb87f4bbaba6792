"""`Daemon`: the base of brokers, workers and other servers that run until a signal stops them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from requite.errors import LocalViolation
from requite.shell.aio import run, running_loop
from requite.shell.signals import StopSignals


class Daemon(ABC):
    """A server that can be started, drained and closed; `async with` starts and closes it."""

    _started = False

    def _start_once(self) -> None:
        """Raise `LocalViolation` on a second start, or without a running event loop of asyncio."""
        running_loop()
        if self._started:
            kind = type(self).__name__
            raise LocalViolation(
                f"a {kind} can be started only once; create another one to serve again"
            )
        self._started = True

    @abstractmethod
    async def start(self) -> Any:
        """Start serving on the running event loop."""

    @abstractmethod
    async def drain(self) -> None:
        """Accept no new requests, finish the running ones, then close."""

    @abstractmethod
    async def close(self) -> None:
        """Stop at once; a second call does nothing."""

    async def until_over(self) -> None:
        """Wait until the server has nothing left to do; by default, forever."""
        await asyncio.get_running_loop().create_future()

    async def serve(self, on_started: Callable[[], object] | None = None) -> None:
        """Serve until SIGTERM or SIGINT, or until `until_over` returns; then drain. A second signal
        stops at once. If standard input is a terminal, SIGHUP drains, too. Main thread only."""
        try:
            with StopSignals() as signals:
                await self.start()
                if on_started is not None:
                    on_started()
                await signals.first_or(self.until_over())
                await signals.unless_second(self.drain())
        finally:
            await self.close()

    def run(
        self, on_started: Callable[[], object] | None = None, *, use_uvloop: bool | None = None
    ) -> None:
        """Run `serve` on a new event loop (uvloop's if it is installed)."""
        run(self.serve(on_started), use_uvloop)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.close()
