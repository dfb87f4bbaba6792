"""What every program that serves until it is told to stop does in the same way."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from requite.shell.aio import run
from requite.shell.signals import StopSignals


class Daemon(ABC):
    """Something that is started, drained and closed; `async with` starts and closes it."""

    @abstractmethod
    async def start(self) -> Any:
        """Begin, on the running event loop."""

    @abstractmethod
    async def drain(self) -> None:
        """Take nothing new, finish what is there, then close."""

    @abstractmethod
    async def close(self) -> None:
        """Stop at once; to do so again does nothing."""

    async def until_over(self) -> None:
        """Wait until nothing is left to serve for; here it never is."""
        await asyncio.get_running_loop().create_future()

    async def serve(self, on_started: Callable[[], object] | None = None) -> None:
        """Serve until SIGTERM or SIGINT, or until nothing is left to serve for; then drain. A
        second signal stops. Main thread only."""
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
        """Do what `serve` does, on an event loop of its own (uvloop's where it is installed)."""
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
