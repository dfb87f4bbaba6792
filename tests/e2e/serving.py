"""A broker and a worker on an event loop in a thread, and both clients with the same methods."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from time import monotonic, sleep
from typing import Any, Protocol, TypeVar

from requite.broker import Broker
from requite.client import AsyncClient, Client
from requite.errors import RemoteFailure
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.request import Partial, Reply, Request
from requite.shell.aio import new_event_loop
from requite.worker import Service, Worker, service

T = TypeVar("T")
WAIT_S = 20.0


def eventually(condition: Callable[[], T], what: str) -> T:
    """Return the first true result of `condition`; fail after `WAIT_S`."""
    end = monotonic() + WAIT_S
    while not (seen := condition()):
        assert monotonic() < end, f"{what}: not within {WAIT_S:g} s"
        sleep(0.002)
    return seen


class Handlers:
    """The handlers of the services, and a record of their requests."""

    def __init__(self) -> None:
        self.seen: list[Request] = []
        self.interrupted: list[bytes] = []
        self.running = 0
        self.running_max = 0
        self.gate = threading.Event()  # `hold` waits for it

    def services(self) -> list[Service]:
        return [
            service("echo")(self.echo),
            service("size")(self.size),
            service("fail")(self.fail),
            service("hold")(self.hold),
            service("count")(self.count),
            service("nap")(self.nap),
        ]

    async def echo(self, request: Request) -> Any:
        self.seen.append(request)
        return request.frames

    async def size(self, request: Request) -> bytes:
        return b"%d" % len(request.body)

    async def fail(self, request: Request) -> bytes:
        raise RemoteFailure("it cannot be " + request.body.decode())

    async def hold(self, request: Request) -> bytes:
        """Return the body once the gate is open; record a cancellation."""
        self.seen.append(request)
        try:
            while not self.gate.is_set():  # noqa: ASYNC110 - set by another thread
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            self.interrupted.append(request.body)
            raise
        return request.body

    async def count(self, request: Request) -> AsyncIterator[bytes]:
        """Yield N partial replies; then raise an error for `N!`, or block for `N?`."""
        self.seen.append(request)
        try:
            for number in range(int(request.body.rstrip(b"!?"))):
                yield b"%d" % number
            if request.body.endswith(b"!"):
                raise RemoteFailure("no more")
            if request.body.endswith(b"?"):
                await asyncio.Event().wait()
        except (asyncio.CancelledError, GeneratorExit):
            self.interrupted.append(request.body)
            raise

    async def nap(self, request: Request) -> bytes:
        """Sleep for the given number of milliseconds; record the maximum of concurrent runs."""
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        await asyncio.sleep(int(request.body) / 1000)
        self.running -= 1
        return request.body


class Serving:
    """A broker and a worker on an event loop in a thread; each can be stopped and restarted."""

    def __init__(self, bind: str = "tcp://127.0.0.1:0", **settings: Any) -> None:
        self.handlers = Handlers()
        self._settings = {"policy": BrokerPolicy(service_grace_s=0.3), **settings}
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="serving")
        self._thread.start()
        self._broker: Broker | None = None
        self._worker: Worker | None = None
        self.start_broker(bind)

    @property
    def trouble(self) -> str:
        """Why the broker is not ready."""
        assert self._broker is not None
        return self._broker.trouble

    def start_broker(self, bind: str | None = None) -> None:
        """Start a broker at `bind`, or at the endpoint of the previous one."""
        self._broker = Broker(bind or self.endpoint, **self._settings)
        [self.endpoint] = self._do(self._broker.start())

    def stop_broker(self) -> None:
        """Stop the broker at once without a drain, like a crash: its state is lost."""
        broker, self._broker = self._broker, None
        if broker is not None:
            self._do(broker.close())

    def begin_draining(self) -> Future[None]:
        """Start a drain of the broker; return a future that ends with the drain."""
        broker, self._broker = self._broker, None
        assert broker is not None
        return asyncio.run_coroutine_threadsafe(broker.drain(), self._loop)

    def start_worker(self, dialect: str | None = None, credentials: str = "", **more: Any) -> None:
        """Start a worker for all services."""
        url = self.url(credentials=credentials)
        settings = {"heartbeat": 0.2, "capacity": 64, **more}
        self._worker = Worker(url, *self.handlers.services(), dialect=dialect, **settings)
        self._do(self._worker.start())

    def stop_worker(self) -> None:
        """Stop the worker at once, without a drain."""
        worker, self._worker = self._worker, None
        if worker is not None:
            self._do(worker.close())

    def url(self, name: str = "", options: str = "", credentials: str = "") -> str:
        """Return the URL of a service."""
        if self.endpoint.startswith("ipc://"):
            path = self.endpoint.removeprefix("ipc://")
            return f"mdp+ipc://{path}" + (f"?service={name}" if name else "")
        place = self.endpoint.removeprefix("tcp://")
        return f"mdp://{credentials}{place}/{name}{options}"

    @property
    def snapshot(self) -> Any:
        """A snapshot of the broker's state."""
        assert self._broker is not None
        return self._broker.snapshot()

    def close(self) -> None:
        """Stop everything."""
        self.handlers.gate.set()
        with suppress(Exception):
            self.stop_worker()
        self.stop_broker()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()

    def _do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(WAIT_S)


class Handle(Protocol):
    """A call in progress."""

    def result(self) -> Reply: ...
    def cancel(self) -> bool: ...


class ClientMethods(Protocol):
    """The methods of both clients, for use in the caller's thread."""

    def call(self, body: Any, **options: Any) -> Reply: ...
    def start(self, body: Any, **options: Any) -> Handle: ...
    def stream(self, body: Any, **options: Any) -> Iterator[Partial | Reply]: ...
    def map(self, bodies: Iterable[Any], **options: Any) -> Iterator[Any]: ...
    def close(self) -> None: ...
    def idle(self, seconds: float) -> None:
        """Make no call for this time."""


class BlockingMethods:
    """The methods of `Client`."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.client = Client(url, **settings)
        self.call = self.client.call
        self.start = self.client.start
        self.stream = self.client.stream
        self.map = self.client.map
        self.close = self.client.close
        self.idle = sleep


class AsyncHandle:
    """A future on an event loop that runs only within `result` and `cancel`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[Reply]) -> None:
        self._loop = loop
        self._future = future

    def result(self) -> Reply:
        return self._loop.run_until_complete(_wait(self._future))

    def cancel(self) -> bool:
        cancelled = self._future.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.01))  # run the callbacks and flush
        return cancelled


async def _wait(future: asyncio.Future[T]) -> T:
    return await future


class AsyncMethods:
    """The methods of `AsyncClient`, on an event loop that runs only within these methods."""

    def __init__(
        self,
        url: str,
        new_loop: Callable[[], asyncio.AbstractEventLoop] = new_event_loop,
        **settings: Any,
    ) -> None:
        self.client = AsyncClient(url, **settings)
        self._loop = new_loop()

    def call(self, body: Any, **options: Any) -> Reply:
        return self._loop.run_until_complete(self.client.call(body, **options))

    def start(self, body: Any, **options: Any) -> Handle:
        async def start() -> asyncio.Future[Reply]:
            future = self.client.start(body, **options)
            await asyncio.sleep(0)  # flush
            return future

        return AsyncHandle(self._loop, self._loop.run_until_complete(start()))

    def stream(self, body: Any, **options: Any) -> Iterator[Partial | Reply]:
        return self._iterate(self.client.stream(body, **options))

    def map(self, bodies: Iterable[Any], **options: Any) -> Iterator[Any]:
        return self._iterate(self.client.map(bodies, **options))

    def idle(self, seconds: float) -> None:
        self._loop.run_until_complete(asyncio.sleep(seconds))

    def _iterate(self, iterator: Any) -> Iterator[Any]:
        return _Stepwise(self._loop, iterator)

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.run_until_complete(self.client.close())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


class _Stepwise:
    """A synchronous iterator over an asynchronous one, with `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, iterator: Any) -> None:
        self._loop = loop
        self._iterator = iterator

    def __iter__(self) -> _Stepwise:
        return self

    def __next__(self) -> Any:
        async def step() -> Any:
            return await anext(self._iterator, _END)

        item = self._loop.run_until_complete(step())
        if item is _END:
            raise StopIteration
        return item

    def close(self) -> None:
        async def close() -> None:
            await self._iterator.aclose()
            await asyncio.sleep(0.01)  # flush

        self._loop.run_until_complete(close())


_END = object()
