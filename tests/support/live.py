"""Real brokers on loopback for tests that block: in a thread, or in a process that can be killed.

Both kinds answer questions about their state through `mmi.*`, asked over a connection of its own by
a client written by hand (`Observer`). Nothing waits longer than it has to: tests poll for what they
wait for, and fail when it does not come.
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
_PAUSE_S: Final = 0.005  # between two looks at what is awaited

T = TypeVar("T")


def eventually(look: Callable[[], T], what: str, within_s: float = WAIT_S) -> T:
    """Return what `look` returns as soon as that is true; fail with `what` and the last look."""
    end = monotonic() + within_s
    while True:
        seen = look()
        if seen:
            return seen
        if monotonic() > end:
            raise AssertionError(f"{what}: not within {within_s:g} s; the last look gave {seen!r}")
        sleep(_PAUSE_S)


class InBackground:
    """Runs a function on a thread beside what is done inside `with`; raises what it raised."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._outcome = self._pool.submit(act)

    def __enter__(self) -> None:
        """Go on."""

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        self._outcome.result(WAIT_S)


class Observer:
    """Asks a broker how it is, through `mmi.*`."""

    def __init__(self, endpoint: str) -> None:
        self._sockets = Sockets()
        self._client = HandClient(self._sockets, endpoint, RFC18)

    def ask(self, name: bytes, body: bytes = b"") -> Any:
        """Return the JSON that a management service answers with."""
        return json.loads(self._client.call(name, body)[0])

    def close(self) -> None:
        """Leave."""
        self._sockets.close()


class Observed:
    """A broker at `endpoint` whose tables can be asked for and waited for."""

    endpoint: str
    _observer: Observer | None = None

    @property
    def url(self) -> str:
        """Where clients and workers of requite find it."""
        return self.endpoint.replace("tcp://", "mdp://")

    @property
    def observer(self) -> Observer:
        """The connection over which the broker is asked; made when it is first used."""
        if self._observer is None:
            self._observer = Observer(self.endpoint)
        return self._observer

    def forget_observer(self) -> None:
        """Close the connection of the observer."""
        if self._observer is not None:
            self._observer.close()
            self._observer = None

    def stats(self) -> dict[str, Any]:
        """Return all tables (`mmi.stats`)."""
        stats: dict[str, Any] = self.observer.ask(b"mmi.stats")
        return stats

    def service(self, name: str) -> dict[str, Any] | None:
        """Return the tables and counters of one service, None if the broker does not know it."""
        rows = self.observer.ask(b"mmi.stats", name.encode())["services"]
        return rows[0] if rows else None

    def workers(self, name: str = "") -> list[dict[str, Any]]:
        """Return the workers of a service."""
        rows: list[dict[str, Any]] = self.observer.ask(b"mmi.workers", name.encode())
        return rows

    def await_service(self, name: str, within_s: float = WAIT_S, **wanted: int) -> dict[str, Any]:
        """Wait until these members of a service's tables have these values."""

        def look() -> dict[str, Any] | None:
            row = self.service(name)
            return row if row and wanted.items() <= row.items() else None

        return eventually(look, f"{name}: {wanted}", within_s) or {}

    def await_workers(self, name: str, count: int, within_s: float = WAIT_S) -> None:
        """Wait until a service has so many workers."""
        self.await_service(name, within_s, workers=count)

    def await_log(self, caplog: pytest.LogCaptureFixture, text: str) -> None:
        """Wait until a log line has this text."""
        eventually(lambda: text in caplog.text, f"a log line with {text!r}")


class Served(Protocol):
    """What `Broker` and `Worker` have in common."""

    async def start(self) -> Any: ...
    async def drain(self) -> None: ...
    async def close(self) -> None: ...


class Live:
    """A broker or worker of requite on an event loop in a thread: asyncio's, or uvloop's."""

    def __init__(self, served: Served, *, uvloop: bool = False) -> None:
        self.served = served
        self._ended_by: Future[Callable[[], Awaitable[None]]] = Future()
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(uvloop,), name="live")
        self._thread.start()
        self._started.result(WAIT_S)

    def drain(self) -> None:
        """Let it finish what it has, and end."""
        self._end(self.served.drain)

    def close(self) -> None:
        """End it at once."""
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
    """A `Broker` in a thread."""

    def __init__(self, bind: str = ANY_PORT, *, uvloop: bool = False, **settings: Any) -> None:
        broker = Broker(bind, **settings)
        super().__init__(broker, uvloop=uvloop)
        self.endpoint = broker.endpoints[0]

    def _end(self, how: Callable[[], Awaitable[None]]) -> None:
        self.forget_observer()
        super()._end(how)


class Process(Child):
    """A child process of this Python, with the root of the tree as its working directory."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        command = arguments if arguments[0] == "-m" else [sys.executable, *arguments]
        super().__init__(
            "the process",
            command,
            environment={"PYTHONUNBUFFERED": "1"} | environment,
            folder=ROOT,
        )

    def line(self) -> str:
        """Return the next line of its output; fail if it ends instead."""
        return self.read_line(None)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.send_signal(number)

    def ended(self, within_s: float = WAIT_S) -> tuple[int, str]:
        """Wait for its end; return its exit code and its stderr."""
        return self.wait(within_s), self.errors()

    def dispose(self) -> None:
        """End it, if it has not ended yet."""
        self.kill()


class BrokerProcess(Process, Observed):
    """`requite broker` as a process. The port that it chooses is its own until it is disposed of:
    while it is dead, the system gives it to nobody else."""

    def __init__(self, *options: str, bind: str = ANY_PORT) -> None:
        self._holder = socket.socket()
        if bind == ANY_PORT:
            bind = f"tcp://127.0.0.1:{_hold_port(self._holder)}"
        super().__init__("-m", "requite.cli", "broker", "--bind", bind, *options)
        self.endpoint = self.line().removeprefix("listening on ")

    def dispose(self) -> None:
        """End it, and let its port go."""
        super().dispose()
        self._holder.close()


def _hold_port(holder: socket.socket) -> int:
    """Bind a socket that does not listen, beside which one that does may be bound; return where."""
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    port: int = holder.getsockname()[1]
    return port


MakeBroker = Callable[..., LiveBroker]
"""Makes brokers that are closed after the test; takes what `LiveBroker` takes."""


# --- fixtures: to be imported by a conftest.py ----------------------------------------------------
@pytest.fixture
def sockets(make_broker: MakeBroker) -> Iterator[Sockets]:
    """Sockets of pyzmq, closed before the brokers are stopped, which then wait for nobody."""
    sockets = Sockets()
    yield sockets
    sockets.close()


@pytest.fixture
def make_broker() -> Iterator[MakeBroker]:
    """A function that makes brokers in threads."""
    brokers: list[LiveBroker] = []

    def make(*arguments: Any, **settings: Any) -> LiveBroker:
        brokers.append(LiveBroker(*arguments, **settings))
        return brokers[-1]

    yield make
    for broker in brokers:
        broker.close()


@pytest.fixture
def broker(make_broker: MakeBroker) -> LiveBroker:
    """A broker with its default settings."""
    return make_broker()


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    """Processes put into this list are ended after the test."""
    started: list[Process] = []
    yield started
    for process in started:
        process.dispose()
        if isinstance(process, Observed):
            process.forget_observer()


@pytest.fixture
def workers() -> Iterator[list[Live]]:
    """Workers of requite put into this list are closed after the test."""
    workers: list[Live] = []
    yield workers
    for worker in workers:
        worker.close()
