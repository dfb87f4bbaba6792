"""Exceptions out of signal handlers, at each step of a thread that is at work in `Client`.

A handler may raise between any two instructions. Here the exception is raised by the steps
themselves, before or after they have done their work, so that each place is met in each run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from tests.e2e.serving import WAIT_S, Serving, eventually

from requite.client import Client
from requite.engine import Submit
from requite.errors import TransportError
from requite.framing import Zmtp
from requite.shell.feeder import Feeder
from requite.shell.host import Host
from requite.shell.sync import SyncShell
from requite.transport.blocking import BlockingStream

pytestmark = pytest.mark.e2e


class Interruption(BaseException):
    pass


class Striker:
    """Raises once, in the thread that made it, when the step it is put into is reached."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.is_armed = True

    def strike(self) -> None:
        if self.is_armed and threading.get_ident() == self.thread:
            self.is_armed = False
            raise Interruption

    def around(self, step: Callable[..., Any], when: str) -> Callable[..., Any]:
        def struck(*arguments: Any, **options: Any) -> Any:
            if when == "before":
                self.strike()
            result = step(*arguments, **options)
            if when == "after":
                self.strike()
            return result

        return struck


class StruckLock:
    """A lock that may be interrupted while it is waited for."""

    def __init__(self, lock: Any, striker: Striker, at: int) -> None:
        self._lock = lock
        self._striker = striker
        self._left = at  # how often it is taken before

    def __enter__(self) -> None:
        self._left -= threading.get_ident() == self._striker.thread
        if self._left < 0:
            self._striker.strike()
        self._lock.__enter__()

    def __exit__(self, *what: Any) -> None:
        self._lock.__exit__(*what)

    def locked(self) -> bool:
        return bool(self._lock.locked())


class StruckPoll:
    """A poll that is interrupted, as by Ctrl-C."""

    def __init__(self, poll: Any, striker: Striker, when: str) -> None:
        self.poll = striker.around(poll.poll, when)
        self.register = poll.register
        self.unregister = poll.unregister


@pytest.fixture
def served() -> Iterator[Serving]:
    serving = Serving()
    serving.start_worker()
    yield serving
    serving.close()


@pytest.fixture
def client(served: Serving) -> Iterator[Client]:
    with Client(served.url("echo"), timeout=20) as client:
        client.call(b"connected")
        yield client


def outcome(call: Future[Any]) -> bytes:
    """Return what a call of another thread has come to: its reply, or that it was lost."""
    error = call.exception(WAIT_S)
    if error is None:
        return bytes(call.result().body)
    assert isinstance(error, TransportError)
    assert error.may_have_executed
    return b"lost"


def call_until_struck(client: Client, striker: Striker) -> None:
    """Make calls; among threads, it may be another one that does the reading for us."""
    for _ in range(200):
        client.call(b"interrupted")
    striker.strike()  # the step was never this thread's


def assert_usable(client: Client, served: Serving) -> None:
    """Check that this thread and others can go on, and that nobody holds the lock."""
    assert not client._shell._lock.locked()
    assert client.call(b"next").body == b"next"
    with ThreadPoolExecutor(3) as threads:
        calls = [threads.submit(client.call, b"%d" % number) for number in range(9)]
        assert [call.result(WAIT_S).body for call in calls] == [b"%d" % n for n in range(9)]
    eventually(lambda: served.snapshot.clients == 1, "the lost connection is closed")


STEPS = [
    (BlockingStream, "_read"),
    (BlockingStream, "write"),
    (Zmtp, "receive"),
    (Host, "submit"),
    (Host, "received"),
    (Host, "flush"),
    (Host, "_feed"),
    (Feeder, "_turn"),
    (Host, "_settle"),
    (SyncShell, "set"),
    (SyncShell, "_change"),
    (SyncShell, "_submit"),
    (SyncShell, "_step"),
    (SyncShell, "_handle"),
    (SyncShell, "_settle"),
    (SyncShell, "_quit"),
    (SyncShell, "_leave"),
]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("kind", "name"), STEPS, ids=lambda part: getattr(part, "__name__", part))
@pytest.mark.parametrize("busy", [False, True], ids=["alone", "among-threads"])
def test_an_interrupted_step(
    client: Client,
    served: Serving,
    monkeypatch: pytest.MonkeyPatch,
    kind: type,
    name: str,
    when: str,
    busy: bool,
) -> None:
    with ThreadPoolExecutor(3) as threads:
        others = [threads.submit(client.call, b"x", service="hold") for _ in range(3 * busy)]
        eventually(lambda: len(served.handlers.seen) > 3 * busy, "all are at the worker")
        striker = Striker()
        monkeypatch.setattr(kind, name, striker.around(getattr(kind, name), when))
        with pytest.raises(Interruption):
            call_until_struck(client, striker)
        monkeypatch.undo()
        served.handlers.gate.set()
        assert {outcome(call) for call in others} <= {b"x", b"lost"}
    assert_usable(client, served)


@pytest.mark.parametrize("at", range(4))
def test_an_interrupted_wait_for_the_lock(client: Client, served: Serving, at: int) -> None:
    """Nothing was touched: the other thread's call goes on, and so does the connection."""
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(client.call, b"x", service="hold")
        eventually(lambda: len(served.handlers.seen) == 2, "it is at the worker")
        shell = client._shell
        striker = Striker()
        shell._lock = StruckLock(shell._lock, striker, at)  # type: ignore[assignment]
        with pytest.raises(Interruption):
            call_until_struck(client, striker)
        served.handlers.gate.set()
        assert other.result(WAIT_S).body == b"x"
    assert client._shell is shell
    assert_usable(client, served)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupted_poll_does_no_harm(client: Client, served: Serving, when: str) -> None:
    shell = client._shell
    shell._poll = StruckPoll(shell._poll, Striker(), when)  # type: ignore[assignment]
    with ThreadPoolExecutor(1) as threads:
        with pytest.raises(Interruption):
            client.call(b"interrupted")
        other = threads.submit(client.call, b"y")
        assert other.result(WAIT_S).body == b"y"
    assert client._shell is shell
    assert_usable(client, served)


def interrupt(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lose the connection that all share."""
    striker = Striker()
    feeder = client._shell.host._feeder
    monkeypatch.setattr(feeder, "_perform", striker.around(feeder._perform, "before"))
    with pytest.raises(Interruption):
        client.call(b"interrupted")
    monkeypatch.undo()


def test_a_thread_interrupted_twice(
    client: Client, served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second exception comes while the first is dealt with; whoever comes next does so."""
    striker = Striker()
    monkeypatch.setattr(SyncShell, "_lose", striker.around(SyncShell._lose, "before"))
    second = Striker()
    feeder = client._shell.host._feeder
    monkeypatch.setattr(feeder, "_perform", second.around(feeder._perform, "before"))
    with pytest.raises(Interruption):
        client.call(b"interrupted")
    monkeypatch.undo()
    assert not striker.is_armed
    assert not second.is_armed
    assert_usable(client, served)


def test_calls_begun_before_are_lost(
    client: Client, served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = client.start(b"begun", service="hold")
    stream = client.stream(b"1?", service="count")
    next(stream)
    interrupt(client, monkeypatch)
    assert begun.done()
    assert begun.cancel() is False
    with pytest.raises(TransportError) as caught:
        begun.result()
    assert caught.value.may_have_executed
    with pytest.raises(TransportError):
        list(stream)
    assert_usable(client, served)


def test_a_map_goes_on_with_what_was_not_out(
    client: Client, served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [b"%d" % number for number in range(10)]
    replies = client.map(bodies, service="hold", concurrency=2, return_errors=True)
    served.handlers.gate.set()
    first = next(replies)
    interrupt(client, monkeypatch)
    rest = list(replies)
    lost = [each for each in rest if isinstance(each, TransportError)]
    assert len(lost) <= 2
    assert len(rest) == 9
    for body, each in zip(bodies, [first, *rest], strict=True):
        assert each in lost or each.body == body


def test_a_closed_client_stays_closed(
    client: Client, served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(client, monkeypatch)
    client.close()
    with pytest.raises(Exception, match="closed") as caught:
        client.call(b"x")
    assert caught.value.may_have_executed is False  # type: ignore[attr-defined]


def test_a_step_that_only_another_thread_takes_is_not_struck(client: Client) -> None:
    """The striker itself: other threads pass."""
    striker = Striker()
    step = striker.around(lambda: Submit, "before")
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(step).result(WAIT_S) is Submit
    with pytest.raises(Interruption):
        step()
