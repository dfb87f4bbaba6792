"""What the tests of SP from end to end share: places to meet, services, and what they have seen."""

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
    """Return a URL at which nobody listens yet."""
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
    """A service that sends bodies back and counts them; `hold` keeps its requests until it is set.

    A body of `fail` ends with an error, `refuse` with a refusal.
    """

    def __init__(self, hold: bool = False) -> None:
        self.seen: list[bytes] = []
        self.gate = asyncio.Event()
        self._changed = asyncio.Event()
        if not hold:
            self.gate.set()

    @property
    def service(self) -> Service:
        """The service, for a worker."""
        return service("echo")(self.serve)

    async def serve(self, request: Request) -> bytes:
        """Answer."""
        self.seen.append(request.body)
        self._changed.set()
        await self.gate.wait()
        if request.body == b"fail":
            raise ValueError("it does not work")
        if request.body == b"refuse":
            raise RemoteFailure("not today")
        return request.body

    async def until(self, look: Callable[[], bool]) -> None:
        """Wait until what it has seen makes `look` true."""
        async with asyncio.timeout(WAIT_S):
            while not look():
                self._changed.clear()
                await self._changed.wait()


class Serving:
    """Workers on an event loop in a thread of its own, for clients that block."""

    def __init__(self) -> None:
        self._loop = new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="serving")
        self._thread.start()
        self._workers: list[Worker] = []

    def start(self, echo: Echo, url: Urls = (), bind: Urls = ()) -> list[str]:
        """Start a worker; return where it listens."""
        worker = Worker(url, echo.service, bind=bind)
        self.do(worker.start())
        self._workers.append(worker)
        return worker.addresses

    def stop(self) -> None:
        """Stop all workers at once."""
        while self._workers:
            self.do(self._workers.pop().close())

    def set(self, echo: Echo) -> None:
        """Let what `echo` holds go."""
        self._loop.call_soon_threadsafe(echo.gate.set)

    def until(self, echo: Echo, look: Callable[[], bool]) -> None:
        """Wait until what `echo` has seen makes `look` true."""
        self.do(echo.until(look))

    def do(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine on the loop."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(WAIT_S)

    def close(self) -> None:
        """Stop everything."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()
