"""Exceptions from signal handlers, at each step of a thread within `Client`.

A handler may raise between any two instructions. Here each step itself raises the exception,
before or after its work, so that each run covers all steps.
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


class Interrupter:
    """Wraps a step, which then raises `Interruption` once in the thread that made this object."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.is_armed = True

    def raise_once(self) -> None:
        if self.is_armed and threading.get_ident() == self.thread:
            self.is_armed = False
            raise Interruption

    def around(self, step: Callable[..., Any], when: str) -> Callable[..., Any]:
        def interruptible(*arguments: Any, **options: Any) -> Any:
            if when == "before":
                self.raise_once()
            result = step(*arguments, **options)
            if when == "after":
                self.raise_once()
            return result

        return interruptible


class InterruptibleLock:
    """A lock whose acquisition is interrupted."""

    def __init__(self, lock: Any, interrupter: Interrupter, at: int) -> None:
        self._lock = lock
        self._interrupter = interrupter
        self._left = at  # acquisitions before the interruption

    def __enter__(self) -> None:
        self._left -= threading.get_ident() == self._interrupter.thread
        if self._left < 0:
            self._interrupter.raise_once()
        self._lock.__enter__()

    def __exit__(self, *what: Any) -> None:
        self._lock.__exit__(*what)

    def locked(self) -> bool:
        return bool(self._lock.locked())


class InterruptiblePoll:
    """A poll that is interrupted, as with Ctrl-C."""

    def __init__(self, poll: Any, interrupter: Interrupter, when: str) -> None:
        self.poll = interrupter.around(poll.poll, when)
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
    """Return the reply of a call of another thread, or `lost` if it raised `TransportError`."""
    error = call.exception(WAIT_S)
    if error is None:
        return bytes(call.result().body)
    assert isinstance(error, TransportError)
    assert error.may_have_executed
    return b"lost"


def call_until_interrupted(client: Client, interrupter: Interrupter) -> None:
    """Make calls until the step is interrupted; another thread may do the step for this one."""
    for _ in range(200):
        client.call(b"interrupted")
    interrupter.raise_once()  # this thread never did the step


def assert_usable(client: Client, served: Serving) -> None:
    """Check that this thread and others can make calls, and that the lock is free."""
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
        interrupter = Interrupter()
        monkeypatch.setattr(kind, name, interrupter.around(getattr(kind, name), when))
        with pytest.raises(Interruption):
            call_until_interrupted(client, interrupter)
        monkeypatch.undo()
        served.handlers.gate.set()
        assert {outcome(call) for call in others} <= {b"x", b"lost"}
    assert_usable(client, served)


@pytest.mark.parametrize("at", range(4))
def test_an_interrupted_wait_for_the_lock(client: Client, served: Serving, at: int) -> None:
    """No state was changed: the other thread's call and the connection continue."""
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(client.call, b"x", service="hold")
        eventually(lambda: len(served.handlers.seen) == 2, "it is at the worker")
        shell = client._shell
        interrupter = Interrupter()
        shell._lock = InterruptibleLock(shell._lock, interrupter, at)  # type: ignore[assignment]
        with pytest.raises(Interruption):
            call_until_interrupted(client, interrupter)
        served.handlers.gate.set()
        assert other.result(WAIT_S).body == b"x"
    assert client._shell is shell
    assert_usable(client, served)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupted_poll_does_no_harm(client: Client, served: Serving, when: str) -> None:
    shell = client._shell
    shell._poll = InterruptiblePoll(shell._poll, Interrupter(), when)  # type: ignore[assignment]
    with ThreadPoolExecutor(1) as threads:
        with pytest.raises(Interruption):
            client.call(b"interrupted")
        other = threads.submit(client.call, b"y")
        assert other.result(WAIT_S).body == b"y"
    assert client._shell is shell
    assert_usable(client, served)


def interrupt(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt a call in a step that loses the shared connection."""
    interrupter = Interrupter()
    feeder = client._shell.host._feeder
    monkeypatch.setattr(feeder, "_perform", interrupter.around(feeder._perform, "before"))
    with pytest.raises(Interruption):
        client.call(b"interrupted")
    monkeypatch.undo()


def test_a_thread_interrupted_twice(
    client: Client, served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second exception interrupts the handling of the first; the next call completes it."""
    interrupter = Interrupter()
    monkeypatch.setattr(SyncShell, "_lose", interrupter.around(SyncShell._lose, "before"))
    second = Interrupter()
    feeder = client._shell.host._feeder
    monkeypatch.setattr(feeder, "_perform", second.around(feeder._perform, "before"))
    with pytest.raises(Interruption):
        client.call(b"interrupted")
    monkeypatch.undo()
    assert not interrupter.is_armed
    assert not second.is_armed
    assert_usable(client, served)


def test_calls_begun_before_an_interruption_are_lost(
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


def test_a_map_continues_with_bodies_not_sent_yet(
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


def test_a_step_of_another_thread_is_not_interrupted(client: Client) -> None:
    """A test of `Interrupter`: other threads are not interrupted."""
    interrupter = Interrupter()
    step = interrupter.around(lambda: Submit, "before")
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(step).result(WAIT_S) is Submit
    with pytest.raises(Interruption):
        step()
