"""Helpers of the end-to-end tests of SP: addresses, a service that records requests, workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

from requite.errors import RemoteFailure
from requite.request import Request
from requite.shell.aio import new_event_loop
from requite.speaks.endpoints import Urls
from requite.worker import Service, Worker, service

WAIT_S = 20.0
TRANSPORTS = ("tcp", "ipc", "inproc", "ws")
_names = count()


def place(transport: str, folder: Path) -> str:
    """Return a URL to listen at, with a free address of the transport."""
    match transport:
        case "ipc":
            return f"sp+ipc://{folder}/{next(_names)}.sock"
        case "inproc":
            return f"inproc://place-{next(_names)}"
        case "ws":
            return "sp+ws://127.0.0.1:0/sp"
        case _:
            return f"sp+{transport}://127.0.0.1:0"


class Echo:
    """A service that returns each body and records it; with `hold`, it waits until `gate` is set.

    The body `fail` raises `ValueError`, and `refuse` raises `RemoteFailure`.
    """

    def __init__(self, hold: bool = False) -> None:
        self.seen: list[bytes] = []
        self.gate = asyncio.Event()
        self._changed = asyncio.Event()
        if not hold:
            self.gate.set()

    @property
    def service(self) -> Service:
        """The service to pass to a worker."""
        return service("echo")(self.serve)

    async def serve(self, request: Request) -> bytes:
        """Return the body of the request."""
        self.seen.append(request.body)
        self._changed.set()
        await self.gate.wait()
        if request.body == b"fail":
            raise ValueError("it does not work")
        if request.body == b"refuse":
            raise RemoteFailure("not today")
        return request.body

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` is true; check it after each request."""
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


class Serving:
    """Workers on an event loop in a thread, for tests of the blocking client."""

    def __init__(self) -> None:
        self._loop = new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="serving")
        self._thread.start()
        self._workers: list[Worker] = []

    def start(self, echo: Echo, url: Urls = (), bind: Urls = (), **settings: Any) -> list[str]:
        """Start a worker; return the URLs at which it listens."""
        worker = Worker(url, echo.service, bind=bind, **settings)
        self.do(worker.start())
        self._workers.append(worker)
        return worker.addresses

    def stop(self) -> None:
        """Stop all workers at once, without a drain."""
        while self._workers:
            self.do(self._workers.pop().close())

    def set(self, echo: Echo) -> None:
        """Set the gate of `echo`, so that its waiting requests continue."""
        self._loop.call_soon_threadsafe(echo.gate.set)

    def until(self, echo: Echo, condition: Callable[[], bool]) -> None:
        """Wait until `condition` is true; check it after each request of `echo`."""
        self.do(echo.until(condition))

    def do(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine on the event loop; return once it has ended."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(WAIT_S)

    def close(self) -> None:
        """Stop the workers and the event loop."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()
