"""The Pirate patterns as processes that are killed, frozen and restarted while clients make calls.

Clients call in a loop, and check that each reply belongs to its request. In each round, a process
is killed (SIGKILL) or frozen (SIGSTOP) and returns; then every client must make progress.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest
from tests.cli.command import Running, running
from tests.support.live import eventually

from requite import Client, RetryPolicy

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROUNDS: Final = int(os.environ.get("REQUITE_SIM_SEEDS", "1"))
CLIENTS: Final = 3
STEP: Final = 20  # calls that each client makes after a fault
BEATS: Final = ("--heartbeat-interval", "0.2", "--liveness", "4")
RETRY: Final = RetryPolicy(attempts=100, attempt_timeout=0.4, budget=10.0, budget_burst=10_000)
WITHIN_S: Final = 25.0


class Fleet:
    """Named processes, each of which can be restarted with the same arguments."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._arguments: dict[str, tuple[str, ...]] = {}
        self._running: dict[str, Running] = {}

    def start(self, name: str, *arguments: str) -> list[str]:
        """Start the command; return the URLs that it prints."""
        self.begin(name, *arguments)
        return self.urls_of(name)

    def begin(self, name: str, *arguments: str) -> None:
        """Start the command without waiting for its output."""
        self._arguments[name] = arguments
        self._running[name] = self._stack.enter_context(running(*arguments))

    def urls_of(self, name: str) -> list[str]:
        """Wait until a process has started; return the URLs that it prints."""
        process = self._running[name]
        lines = 2 if self._arguments[name][0] == "queue" else 1
        printed = [process.line() for _ in range(lines)]
        assert all("pirate://" in line for line in printed), process.end()
        return [next(word for word in line.split() if "pirate://" in word) for line in printed]

    def restart(self, name: str) -> None:
        """Restart a killed process."""
        self.begin(name, *self._arguments[name])

    def send_signal(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal; after SIGKILL, wait until the process has exited."""
        self._running[name].send(number)
        if number == signal.SIGKILL:
            self._running[name].process.wait()


class Clients:
    """Clients that make calls and check the replies until the block ends."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._end = threading.Event()
        self.done = [0] * CLIENTS
        self.wrong: list[str] = []
        self._threads = [threading.Thread(target=self._call, args=(n,)) for n in range(CLIENTS)]

    def _call(self, n: int) -> None:
        with Client(self._url, retry=RETRY) as client:
            while not self._end.is_set():
                body = b"%d of client %d" % (self.done[n], n)
                try:
                    reply = client.call(body, timeout=WITHIN_S)
                except Exception as error:
                    self.wrong.append(f"{body!r}: {error!r}")
                    return
                if reply.body != body:
                    self.wrong.append(f"{body!r} was answered with {reply.body!r}")
                self.done[n] += 1

    def assert_progress(self) -> None:
        """Wait until each client has made `STEP` more calls, all with the right replies."""
        wanted = [done + STEP for done in self.done]

        def have() -> bool:
            assert not self.wrong
            return all(done >= want for done, want in zip(self.done, wanted, strict=True))

        eventually(have, f"{STEP} more calls of each client", WITHIN_S)

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(WITHIN_S)
        assert not self.wrong


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """A fleet without processes yet."""
    with ExitStack() as stack:
        yield Fleet(stack)


@pytest.mark.timeout(120 * ROUNDS)
def test_lazy_pirates_survive_a_kill_of_their_server(fleet: Fleet) -> None:
    [url] = fleet.start(
        "server", "worker", "requite.examples:echo", "--bind", "pirate://127.0.0.1:0"
    )
    arguments = ("worker", "requite.examples:echo", "--bind", url)
    with Clients(url) as clients:
        clients.assert_progress()
        for _ in range(ROUNDS):
            fleet.send_signal("server")
            fleet.start("server", *arguments)
            clients.assert_progress()
            fleet.send_signal("server", signal.SIGSTOP)
            fleet.send_signal("server", signal.SIGCONT)
            clients.assert_progress()


@pytest.mark.timeout(120 * ROUNDS)
@pytest.mark.parametrize("protocol", ["simple", "paranoid"])
def test_pirates_survive_kills_of_workers_and_the_queue(protocol: str, fleet: Fleet) -> None:
    beats = BEATS if protocol == "paranoid" else ()
    places = ("--front", "tcp://127.0.0.1:0", "--back", "tcp://127.0.0.1:0")
    front, back = fleet.start("queue", "queue", "--protocol", protocol, *places, *beats)
    same = ("--front", as_address(front), "--back", as_address(back))
    for name in "ab":
        fleet.begin(name, "worker", "requite.examples:echo", "--connect", back, *beats)
    with Clients(front) as clients:
        clients.assert_progress()
        for n in range(ROUNDS):
            fleet.send_signal("ab"[n % 2])
            clients.assert_progress()
            fleet.restart("ab"[n % 2])
            fleet.send_signal("queue")
            fleet.start("queue", "queue", "--protocol", protocol, *same, *beats)
            clients.assert_progress()


@pytest.mark.timeout(120 * ROUNDS)
def test_paranoid_pirates_survive_frozen_workers_and_queues(fleet: Fleet) -> None:
    places = ("--front", "tcp://127.0.0.1:0", "--back", "tcp://127.0.0.1:0")
    front, back = fleet.start("queue", "queue", *places, *BEATS)
    for name in "ab":
        fleet.begin(name, "worker", "requite.examples:echo", "--connect", back, *BEATS)
    with Clients(front) as clients:
        for _ in range(ROUNDS):
            fleet.send_signal("a", signal.SIGSTOP)
            clients.assert_progress()  # with worker b only
            fleet.send_signal("b", signal.SIGSTOP)
            fleet.send_signal("a", signal.SIGCONT)
            clients.assert_progress()  # with worker a only
            fleet.send_signal("b", signal.SIGCONT)
            fleet.send_signal("queue", signal.SIGSTOP)
            fleet.send_signal("queue", signal.SIGCONT)
            clients.assert_progress()


def test_a_killed_client_does_not_affect_others(fleet: Fleet) -> None:
    places = ("--front", "tcp://127.0.0.1:0", "--back", "tcp://127.0.0.1:0")
    front, back = fleet.start("queue", "queue", *places)
    fleet.begin("a", "worker", "requite.examples:slow", "--connect", back)
    with running("call", front, "0.5", "--timeout", "30") as call, Client(front) as client:
        assert client.call(b"0.01", timeout=WITHIN_S).body == b"0.01"
        call.send(signal.SIGKILL)
        assert client.call(b"0.02", timeout=WITHIN_S).body == b"0.02"


def as_address(url: str) -> str:
    """Return the listening address of a URL."""
    return url.partition("?")[0].replace("pirate://", "tcp://")
