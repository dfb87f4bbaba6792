"""SP endpoints of requite on an event loop in a thread, for tests with blocking peers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, Final, TypeVar

import pytest
from tests.support.sp_wires import Place

import requite
from requite.shell.aio import run

WAIT_S: Final = 20.0

T = TypeVar("T")


@requite.service("echo")
async def echo(request: requite.Request) -> bytes:
    """Return the body of the request."""
    return request.body


class Loop:
    """An event loop in a thread, asyncio's or uvloop's. `close` also closes the endpoints that were
    started on it."""

    def __init__(self, *, uvloop: bool = False) -> None:
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._end: asyncio.Event | None = None
        self._closers: list[Callable[[], Coroutine[Any, Any, object]]] = []
        self._thread = threading.Thread(
            target=run, args=(self._main(),), kwargs={"use_uvloop": uvloop}, name="requite loop"
        )
        self._thread.start()
        self._loop = self._ready.result(WAIT_S)

    async def _main(self) -> None:
        self._end = asyncio.Event()
        self._ready.set_result(asyncio.get_running_loop())
        await self._end.wait()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Schedule a coroutine on the loop; return the future of its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop until it ends; return its result."""
        return self.begin(work).result(WAIT_S)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the loop; return its result."""

        async def call() -> T:
            return function()

        return self.do(call())

    # --- endpoints --------------------------------------------------------------------------------
    def worker(
        self, *places: Place, service: requite.worker.Service = echo, **settings: Any
    ) -> requite.Worker:
        """Start a worker that dials these places, or listens at the URLs in `bind`."""
        urls = [place.dialling() for place in places]
        return self.start(requite.Worker(urls, service, **settings))

    def listening_worker(
        self, place: Place, *, service: requite.worker.Service = echo, **settings: Any
    ) -> Place:
        """Start a worker that listens at a place; return the place with its actual port."""
        worker = self.worker(bind=place.listening(), service=service, **settings)
        return place.as_told(str(worker.addresses[0]))

    def client(self, *places: Place, **settings: Any) -> requite.AsyncClient:
        """Open a client that dials these places, or listens at the URLs in `bind`."""
        client = requite.AsyncClient([place.dialling() for place in places], **settings)
        self.do(client.__aenter__())
        self._closers.append(client.close)
        return client

    def device(self, **settings: Any) -> requite.sp.Device:
        """Start a device with these settings."""
        return self.start(requite.sp.Device(**settings))

    def start(self, served: Any) -> Any:
        """Start a worker or device, and register it to be closed; return it."""
        self.do(served.start())
        self._closers.append(served.close)
        return served

    def ask(self, client: requite.AsyncClient, body: bytes, **options: Any) -> bytes:
        """Call a service; return the body of the reply."""
        reply: bytes = self.do(client.call(body, **options)).body
        return reply

    def close(self) -> None:
        """Close all endpoints, the newest first, and end the thread."""
        try:
            while self._closers:
                self.do(self._closers.pop()())
        finally:
            assert self._end is not None
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


@pytest.fixture
def loop() -> Iterator[Loop]:
    """An event loop in a thread."""
    loop = Loop()
    yield loop
    loop.close()
