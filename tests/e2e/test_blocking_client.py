"""Tests of `Client` only: threads, forks, interruptions, file descriptors."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import sleep
from typing import Any

import pytest
from tests.e2e.serving import WAIT_S, Serving, eventually

from requite.client import Client
from requite.errors import CallTimeout, Cancelled, ConfigurationError, TransportError

pytestmark = pytest.mark.e2e


@pytest.fixture
def served() -> Iterator[Serving]:
    serving = Serving()
    serving.start_worker()
    yield serving
    serving.close()


@pytest.fixture
def client(served: Serving) -> Iterator[Client]:
    with Client(served.url("echo"), timeout=20) as client:
        yield client


def test_asyncio_is_not_loaded() -> None:
    script = "import sys, requite; requite.Client('mdp://localhost/x').close(); print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=WAIT_S
    )
    assert "requite.client.sync" in run.stdout.split()
    assert "asyncio" not in run.stdout.split()


def test_a_url_that_needs_an_event_loop_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="AsyncClient"):
        Client("mdp+inproc://name/echo")


# --- threads --------------------------------------------------------------------------------------
def test_eight_threads_share_a_client(client: Client, served: Serving) -> None:
    def run(thread: int) -> int:
        for number in range(500):
            body = b"%d-%d" % (thread, number)
            assert client.call(body).body == body
        return thread

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(run, range(8))) == list(range(8))
    assert served.snapshot.clients == 1  # one connection for all


def test_threads_with_different_methods(client: Client) -> None:
    def mapped() -> None:
        bodies = [b"%d" % number for number in range(500)]
        assert [reply.body for reply in client.map(bodies, concurrency=10)] == bodies

    def streamed() -> None:
        for _ in range(50):
            assert len(list(client.stream(b"9", service="count"))) == 10

    def called() -> None:
        for number in range(200):
            assert client.call(b"%d" % number).body == b"%d" % number

    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(act) for act in (mapped, streamed, called)]:
            done.result(WAIT_S)


def test_a_quick_call_does_not_wait_for_slow_ones(client: Client, served: Serving) -> None:
    """The thread of a slow call also reads replies for the quick calls, and vice versa."""
    with ThreadPoolExecutor(4) as threads:
        slow = [threads.submit(client.call, b"slow", service="hold") for _ in range(3)]
        eventually(lambda: len(served.handlers.seen) == 3, "the slow ones are at the worker")
        for number in range(20):
            assert client.call(b"%d" % number).body == b"%d" % number
        served.handlers.gate.set()
        assert [call.result(WAIT_S).body for call in slow] == [b"slow"] * 3


def test_the_lead_passes_on_when_its_holder_times_out(client: Client, served: Serving) -> None:
    with ThreadPoolExecutor(4) as threads:
        hurried = threads.submit(client.call, b"hurried", service="hold", timeout=1.0)
        eventually(lambda: served.handlers.seen, "it is at the worker, and its thread leads")
        patient = [threads.submit(client.call, b"patient", service="hold") for _ in range(3)]
        with pytest.raises(CallTimeout):
            hurried.result(WAIT_S)
        served.handlers.gate.set()
        assert [call.result(WAIT_S).body for call in patient] == [b"patient"] * 3


def test_several_threads_wait_for_one_call(client: Client, served: Serving) -> None:
    call = client.start(b"x", service="hold")
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(call.result) for _ in range(4)]
        eventually(lambda: served.handlers.seen, "it is at the worker")
        served.handlers.gate.set()
        assert [each.result(WAIT_S).body for each in waiting] == [b"x"] * 4


def test_a_wait_may_end_before_the_call(client: Client, served: Serving) -> None:
    call = client.start(b"x", service="hold")
    with pytest.raises(TimeoutError, match="the call continues"):
        call.result(timeout=0.05)
    with pytest.raises(ConfigurationError):
        call.result(timeout=0)
    served.handlers.gate.set()
    assert call.result().body == b"x"
    assert call.result(timeout=0.001).body == b"x"  # the call has ended: no wait
    assert call.done()


def test_close_from_another_thread_ends_a_waiting_call(client: Client, served: Serving) -> None:
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(client.call, b"x", service="hold") for _ in range(2)]
        eventually(lambda: len(served.handlers.seen) == 2, "both are at the worker")
        client.close()
        for call in waiting:
            with pytest.raises(Cancelled, match="closed"):
                call.result(WAIT_S)
    eventually(lambda: served.snapshot.clients == 0, "the broker has seen it leave")
    client.close()  # no effect on a closed client


def test_cancel_from_another_thread_wakes_the_leader(client: Client, served: Serving) -> None:
    call = client.start(b"x", service="hold")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(call.result)
        eventually(lambda: served.handlers.seen, "it is at the worker, and its thread leads")
        assert call.cancel()
        with pytest.raises(Cancelled):
            waiting.result(WAIT_S)
    eventually(lambda: served.handlers.interrupted, "the handler is interrupted")


def test_a_new_call_wakes_the_leader_without_a_connection(served: Serving) -> None:
    """A call of a second thread is not blocked by the first thread's poll without a connection."""
    served.stop_broker()
    with Client(served.url("echo"), timeout=20) as client, ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(client.call, b"%d" % number) for number in range(4)]
        served.start_broker()
        assert [call.result(WAIT_S).body for call in calls] == [b"0", b"1", b"2", b"3"]


def test_large_bodies_in_both_directions_at_once(client: Client) -> None:
    """The leading thread sends what does not fit into the kernel's buffers."""
    body = bytes(range(256)) * (8 << 12)  # 8 MiB

    def run(_thread: int) -> bool:
        return client.call(body).body == body

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(run, range(4)))


def test_start_connects_without_waiting() -> None:
    """`start` connects and sends the greeting although no thread waits for the result."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WAIT_S)
        with Client(f"mdp://127.0.0.1:{listener.getsockname()[1]}/echo", timeout=20) as client:
            client.start(b"x")
            peer, _ = listener.accept()
            with peer:
                peer.settimeout(WAIT_S)
                client.start(b"y")  # in case the connection was not established during the first
                assert peer.recv(1) == b"\xff"  # its greeting
                client.close()


# --- large bodies, abandoned iterators, signals, forks --------------------------------------------
def test_many_large_bodies_from_many_threads_are_sent_once_each(client: Client) -> None:
    body = b"x" * (10 << 20)  # together twice the limit of the output buffer

    def call(_number: int) -> tuple[int, int]:
        reply = client.call(body, service="size", idempotent=False)
        return int(reply.body), reply.attempts

    with ThreadPoolExecutor(12) as threads:
        assert list(threads.map(call, range(12))) == [(len(body), 1)] * 12


def test_replies_do_not_wait_for_a_slow_input(client: Client) -> None:
    def bodies() -> Iterator[bytes]:
        for number in range(30):
            yield b"%d" % number
            sleep(0.05)

    replies = client.map(bodies(), concurrency=64, timeout=1.0)
    assert [int(reply.body) for reply in replies] == list(range(30))


def test_an_abandoned_iterator_cancels_its_calls(client: Client, served: Serving) -> None:
    replies = client.map([b"quick", *[b"x"] * 5], service="hold", as_completed=True)
    served.handlers.gate.set()
    next(replies)
    served.handlers.gate.clear()
    stream = client.stream(b"1?", service="count")
    next(stream)
    del replies, stream
    eventually(lambda: b"1?" in served.handlers.interrupted, "the stream's handler is interrupted")
    eventually(lambda: served.snapshot.pending == 0, "nothing is left at the broker")


class Interruption(Exception):
    pass


def test_an_exception_from_a_signal_cancels_the_call(client: Client, served: Serving) -> None:
    def interrupt(*_arguments: Any) -> None:
        raise Interruption

    main = threading.main_thread().ident
    assert main is not None
    before = signal.signal(signal.SIGUSR1, interrupt)

    def send_signal() -> None:
        eventually(lambda: served.handlers.seen, "the request is at the worker")
        signal.pthread_kill(main, signal.SIGUSR1)

    sender = threading.Thread(target=send_signal)
    sender.start()
    try:
        with pytest.raises(Interruption):
            client.call(b"x", service="hold")
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    eventually(lambda: served.handlers.interrupted == [b"x"], "the handler is interrupted")
    assert client.call(b"next").body == b"next"


def in_a_fork(act: Any) -> int:
    """Run `act` in a forked child; return its exit code: the result of `act`, or 99 on an error."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            signal.alarm(40)
            code = int(act())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_a_connection_of_its_own(client: Client, served: Serving) -> None:
    assert client.call(b"parent").body == b"parent"
    outstanding = client.start(b"held", service="hold")

    def child() -> int:
        try:
            outstanding.result(timeout=5)
        except TransportError as error:
            if "fork" not in str(error):
                return 1
        else:
            return 2
        for number in range(100):
            if client.call(b"child %d" % number).body != b"child %d" % number:
                return 3
        client.close()
        return 0

    assert in_a_fork(child) == 0
    for number in range(100):
        assert client.call(b"parent %d" % number).body == b"parent %d" % number
    served.handlers.gate.set()
    assert outstanding.result().body == b"held"
    assert served.snapshot.clients == 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_another_thread_is_in_a_call(client: Client, served: Serving) -> None:
    """The child inherits a locked lock, which no thread of the child releases."""
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.call, b"x", service="hold")
        eventually(lambda: served.handlers.seen, "the other thread leads")
        client._shell._lock.acquire()
        try:
            code = in_a_fork(lambda: client.call(b"child").body != b"child")
        finally:
            client._shell._lock.release()
        assert code == 0
        served.handlers.gate.set()
        assert waiting.result(WAIT_S).body == b"x"


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
def test_a_closed_client_leaves_no_descriptor_behind(client: Client, served: Serving) -> None:
    client.call(b"connected")
    eventually(lambda: len(served.snapshot.workers) == 6, "each service has its connection")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        with Client(served.url("echo"), timeout=20) as another:
            another.call(b"x")
    Client(served.url("echo"))  # never used, and never closed
    gc.collect()
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= before, "all descriptors are closed")
