"""Real brokers on loopback for blocking tests: on a thread, or in a process that a test can kill.

Tests query a broker's state through `mmi.*`, over a separate connection with a hand-written client
(`Observer`). Tests do not sleep for a fixed time: they poll for a condition, with a time limit.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final, Protocol, TypeVar

import pytest
from tests.support.zmq_peers import RFC18, WAIT_S, HandClient, Sockets

from requite.broker import Broker
from requite.shell.aio import run
from requite.testing.processes import Child

ROOT: Final = Path(__file__).parents[2]
ANY_PORT: Final = "tcp://127.0.0.1:0"
_PAUSE_S: Final = 0.005  # between two polls of a condition

T = TypeVar("T")


def eventually(look: Callable[[], T], what: str, within_s: float = WAIT_S) -> T:
    """Poll `look` until its result is true, and return the result.

    Raises `AssertionError` with `what` and the last result after `within_s` seconds.
    """
    end = monotonic() + within_s
    while True:
        seen = look()
        if seen:
            return seen
        if monotonic() > end:
            raise AssertionError(f"{what}: not within {within_s:g} s; the last look gave {seen!r}")
        sleep(_PAUSE_S)


class InBackground:
    """Runs a function on a thread during a `with` block, whose end waits for the function and
    raises its exception, if any."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._outcome = self._pool.submit(act)

    def __enter__(self) -> None:
        """Return at once; the function is already running."""

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        self._outcome.result(WAIT_S)


class Observer:
    """Queries the state of a broker through `mmi.*`."""

    def __init__(self, endpoint: str) -> None:
        self._sockets = Sockets()
        self._client = HandClient(self._sockets, endpoint, RFC18)

    def ask(self, name: bytes, body: bytes = b"") -> Any:
        """Return the decoded JSON reply of a management service."""
        return json.loads(self._client.call(name, body)[0])

    def close(self) -> None:
        """Close the connection."""
        self._sockets.close()


class Observed:
    """A broker at `endpoint` whose state tests can query and wait for."""

    endpoint: str
    _observer: Observer | None = None

    @property
    def url(self) -> str:
        """The URL for clients and workers of requite."""
        return self.endpoint.replace("tcp://", "mdp://")

    @property
    def observer(self) -> Observer:
        """The client that queries the broker; created on first use."""
        if self._observer is None:
            self._observer = Observer(self.endpoint)
        return self._observer

    def forget_observer(self) -> None:
        """Close the observer's connection; the next use opens a new one."""
        if self._observer is not None:
            self._observer.close()
            self._observer = None

    def stats(self) -> dict[str, Any]:
        """Return all tables (`mmi.stats`)."""
        stats: dict[str, Any] = self.observer.ask(b"mmi.stats")
        return stats

    def service(self, name: str) -> dict[str, Any] | None:
        """Return the tables and counters of one service; None if the broker does not know it."""
        rows = self.observer.ask(b"mmi.stats", name.encode())["services"]
        return rows[0] if rows else None

    def workers(self, name: str = "") -> list[dict[str, Any]]:
        """Return the workers of a service (`mmi.workers`); "" for all."""
        rows: list[dict[str, Any]] = self.observer.ask(b"mmi.workers", name.encode())
        return rows

    def await_service(self, name: str, within_s: float = WAIT_S, **wanted: int) -> dict[str, Any]:
        """Wait until a service's row in `mmi.stats` has these values; return the row."""

        def look() -> dict[str, Any] | None:
            row = self.service(name)
            return row if row and wanted.items() <= row.items() else None

        return eventually(look, f"{name}: {wanted}", within_s) or {}

    def await_workers(self, name: str, count: int, within_s: float = WAIT_S) -> None:
        """Wait until a service has exactly `count` workers."""
        self.await_service(name, within_s, workers=count)

    def await_log(self, caplog: pytest.LogCaptureFixture, text: str) -> None:
        """Wait until the captured log contains this text."""
        eventually(lambda: text in caplog.text, f"a log line with {text!r}")


class Served(Protocol):
    """The common interface of `Broker` and `Worker`."""

    async def start(self) -> Any: ...
    async def drain(self) -> None: ...
    async def close(self) -> None: ...


class Live:
    """A broker or worker of requite on a thread with an event loop: asyncio's, or uvloop's."""

    def __init__(self, served: Served, *, uvloop: bool = False) -> None:
        self.served = served
        self._ended_by: Future[Callable[[], Awaitable[None]]] = Future()
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(uvloop,), name="live")
        self._thread.start()
        self._started.result(WAIT_S)

    def drain(self) -> None:
        """Drain the broker or worker, and end its thread."""
        self._end(self.served.drain)

    def close(self) -> None:
        """Close the broker or worker at once, and end its thread."""
        self._end(self.served.close)

    def _end(self, how: Callable[[], Awaitable[None]]) -> None:
        if not self._ended_by.done():
            self._ended_by.set_result(how)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def _run(self, uvloop: bool) -> None:
        try:
            run(self._serve(), use_uvloop=uvloop)
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        await self.served.start()
        self._started.set_result(None)
        await (await asyncio.wrap_future(self._ended_by))()


class LiveBroker(Live, Observed):
    """A `Broker` on a thread."""

    def __init__(self, bind: str = ANY_PORT, *, uvloop: bool = False, **settings: Any) -> None:
        broker = Broker(bind, **settings)
        super().__init__(broker, uvloop=uvloop)
        self.endpoint = broker.endpoints[0]

    def _end(self, how: Callable[[], Awaitable[None]]) -> None:
        self.forget_observer()
        super()._end(how)


class Process(Child):
    """A child process that runs this Python, with the repository's root as working directory."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        command = arguments if arguments[0] == "-m" else [sys.executable, *arguments]
        super().__init__(
            "the process",
            command,
            environment={"PYTHONUNBUFFERED": "1"} | environment,
            folder=ROOT,
        )

    def line(self) -> str:
        """Return the next line of the process's stdout; fail if the process ends instead."""
        return self.read_line(None)

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        self.send_signal(number)

    def ended(self, within_s: float = WAIT_S) -> tuple[int, str]:
        """Wait until the process ends; return its exit code and its stderr."""
        return self.wait(within_s), self.errors()

    def dispose(self) -> None:
        """Kill the process if it is still running."""
        self.kill()


class BrokerProcess(Process, Observed):
    """`requite broker` as a process.

    With `ANY_PORT`, its port stays reserved until `dispose`: while the broker is down, no other
    process can get the port.
    """

    def __init__(self, *options: str, bind: str = ANY_PORT) -> None:
        self._holder = socket.socket()
        if bind == ANY_PORT:
            bind = f"tcp://127.0.0.1:{hold_port(self._holder)}"
        super().__init__("-m", "requite.cli", "broker", "--bind", bind, *options)
        self.endpoint = self.line().removeprefix("listening on ")

    def dispose(self) -> None:
        """Kill the broker if it is still running, and release its port."""
        super().dispose()
        self._holder.close()


def hold_port(holder: socket.socket) -> int:
    """Reserve a free port, and return it.

    `holder` is bound with SO_REUSEADDR and never listens, so a broker can still listen there.
    """
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    port: int = holder.getsockname()[1]
    return port


MakeBroker = Callable[..., LiveBroker]
"""Starts a broker that is closed after the test; the arguments are those of `LiveBroker`."""


# --- fixtures, for import by a conftest.py --------------------------------------------------------
@pytest.fixture
def sockets(make_broker: MakeBroker) -> Iterator[Sockets]:
    """pyzmq sockets that are closed before the brokers, so that brokers do not wait for them."""
    sockets = Sockets()
    yield sockets
    sockets.close()


@pytest.fixture
def make_broker() -> Iterator[MakeBroker]:
    """A function that starts brokers on threads; they are closed after the test."""
    brokers: list[LiveBroker] = []

    def make(*arguments: Any, **settings: Any) -> LiveBroker:
        brokers.append(LiveBroker(*arguments, **settings))
        return brokers[-1]

    yield make
    for broker in brokers:
        broker.close()


@pytest.fixture
def broker(make_broker: MakeBroker) -> LiveBroker:
    """A running broker with default settings."""
    return make_broker()


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    """A list of processes that are killed after the test."""
    started: list[Process] = []
    yield started
    for process in started:
        process.dispose()
        if isinstance(process, Observed):
            process.forget_observer()


@pytest.fixture
def workers() -> Iterator[list[Live]]:
    """A list of workers of requite that are closed after the test."""
    workers: list[Live] = []
    yield workers
    for worker in workers:
        worker.close()
