"""`Client` over SP with real workers: threads, several addresses, listening, forks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.e2e.sp import WAIT_S, Echo, Serving, place
from tests.support.builds import pure_only
from tests.support.patience import failure

from requite.client import Client
from requite.errors import (
    CallTimeout,
    Cancelled,
    ConfigurationError,
    TransportError,
)

pytestmark = pytest.mark.e2e

TCP = "sp+tcp://127.0.0.1:0"


@pytest.fixture
def nothing_leaks() -> Iterator[None]:
    Serving().close()  # uvloop keeps descriptors of its first loop
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def serving(nothing_leaks: None) -> Iterator[Serving]:
    serving = Serving()
    yield serving
    serving.close()


def test_asyncio_is_not_loaded() -> None:
    script = "import sys, requite; requite.Client('sp+tcp://localhost:1').close()"
    run = subprocess.run(
        [sys.executable, "-c", f"{script}; print(*sys.modules)"],
        check=True, capture_output=True, text=True, timeout=WAIT_S,
    )  # fmt: skip
    loaded = run.stdout.split()
    assert "requite.protocols.scalability.req" in loaded
    for unneeded in ("asyncio", "wsproto", "requite.protocols.majordomo", "aio_pika"):
        assert unneeded not in loaded


@pytest.mark.parametrize("binds", ["worker", "client"])
@pytest.mark.parametrize("transport", ["tcp", "ipc", "ws"])
def test_either_side_may_listen(
    serving: Serving, transport: str, binds: str, tmp_path: Path
) -> None:
    url = place(transport, tmp_path)
    bodies = [b"", b"x", bytes(64 << 10), os.urandom(1 << 20), *(b"%d" % n for n in range(200))]
    if binds == "worker":
        client = Client(serving.start(Echo(), bind=url), timeout=WAIT_S)
        assert client.addresses == []
    else:
        client = Client(bind=url, timeout=WAIT_S)
        serving.start(Echo(), client.addresses)
    with client:
        for body in bodies[:10]:
            assert client.call(body).body == body
        assert [reply.body for reply in client.map(bodies, concurrency=9)] == bodies


def test_requests_are_distributed_equally_among_addresses(serving: Serving, tmp_path: Path) -> None:
    echoes = [Echo() for _ in range(4)]
    first, second, third, dialling = echoes
    urls = serving.start(first, bind=TCP) + serving.start(second, bind=place("ipc", tmp_path))
    with Client([*urls, *serving.start(third, bind=TCP)], bind=TCP, timeout=WAIT_S) as client:
        serving.start(dialling, client.addresses)
        while not all(echo.seen for echo in echoes):
            client.call(b"warm up")
        for echo in echoes:
            echo.seen.clear()
        assert len(list(client.map([b"x"] * 200, concurrency=20))) == 200
        assert [len(echo.seen) for echo in echoes] == [50, 50, 50, 50]


def test_calls_wait_for_a_service_that_starts_later(serving: Serving) -> None:
    [url] = serving.start(Echo(), bind=TCP)
    serving.stop()
    with Client(url, timeout=WAIT_S) as client, ThreadPoolExecutor(1) as threads:
        error = failure(
            CallTimeout,
            "never sent.*connection refused",
            lambda timeout: client.call(b"x", timeout=timeout),
        )
        assert not error.may_have_executed
        call = threads.submit(client.call, b"early")
        serving.start(Echo(), bind=url)
        reply = call.result(WAIT_S)
        assert (reply.body, reply.attempts) == (b"early", 1)


def test_a_restarted_worker_gets_its_lost_requests_again(serving: Serving) -> None:
    held = Echo(hold=True)
    [url] = serving.start(held, bind=TCP)
    with Client(url, timeout=WAIT_S) as client:
        calls = [client.start(b"%d" % n) for n in range(5)]
        with ThreadPoolExecutor(5) as threads:
            waiting = [threads.submit(call.result) for call in calls]
            serving.until(held, lambda: len(held.seen) == 5)
            serving.stop()
            serving.start(Echo(), bind=url)
            replies = [each.result(WAIT_S) for each in waiting]
    assert [reply.body for reply in replies] == [b"%d" % n for n in range(5)]
    assert {reply.attempts for reply in replies} == {2}


def test_an_idle_client_detects_that_its_worker_was_replaced(serving: Serving) -> None:
    [url] = serving.start(Echo(), bind=TCP)
    with Client(url, timeout=WAIT_S) as client:
        for _ in range(3):
            assert client.call(b"x", idempotent=False).attempts == 1
            serving.stop()
            serving.start(Echo(), bind=url)
            # After this idle time, a client checks its connections before it sends.
            threading.Event().wait(0.15)


def test_a_non_idempotent_request_is_not_sent_twice(serving: Serving) -> None:
    held = Echo(hold=True)
    with Client(serving.start(held, bind=TCP), timeout=WAIT_S) as client:
        call = client.start(b"once", idempotent=False)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(call.result)
            serving.until(held, lambda: bool(held.seen))
            serving.stop()
            with pytest.raises(TransportError, match="not idempotent") as caught:
                waiting.result(WAIT_S)
    assert caught.value.may_have_executed


def test_eight_threads_share_a_client(serving: Serving) -> None:
    urls = serving.start(Echo(), bind=TCP) + serving.start(Echo(), bind=TCP)
    with Client(urls, timeout=WAIT_S) as client:

        def run(thread: int) -> int:
            for number in range(200):
                body = b"%d-%d" % (thread, number)
                assert client.call(body).body == body
            return thread

        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(run, range(8))) == list(range(8))


def test_closing_ends_outstanding_calls(serving: Serving) -> None:
    held = Echo(hold=True)
    client = Client(serving.start(held, bind=TCP), bind=TCP, timeout=WAIT_S)
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(client.call, b"x")
        serving.until(held, lambda: bool(held.seen))
        client.close()
        with pytest.raises(Cancelled, match="closed"):
            call.result(WAIT_S)
    with pytest.raises(Cancelled, match="closed"):
        client.call(b"later")
    assert client.addresses == []


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_an_address_in_use_is_refused_and_other_addresses_are_released(
    serving: Serving, transport: str, tmp_path: Path
) -> None:
    [taken] = serving.start(Echo(), bind=place(transport, tmp_path))
    free = place("ipc", tmp_path)
    with pytest.raises(TransportError, match=r"cannot listen at .*(in use|another process)"):
        Client(bind=[free, taken])
    with Client(bind=free) as client:  # the address was released
        assert client.addresses == [free]
    assert not Path(free.removeprefix("sp+ipc://")).exists()


def test_invalid_settings_and_bodies_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="AsyncClient"):
        Client("inproc://name")
    with pytest.raises(ConfigurationError, match="AsyncClient"):
        Client(bind="inproc://name")
    with Client("sp+tcp://127.0.0.1:1") as client:
        with pytest.raises(ConfigurationError, match="no partial replies"):
            client.stream(b"x")
        with pytest.raises(ConfigurationError, match="SP carries only one"):
            client.call([b"x", b"y"])


# --- forks and interruptions ----------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_in_a_fork_a_connecting_client_works_and_a_listening_one_raises(
    serving: Serving, tmp_path: Path
) -> None:
    path = tmp_path / "client.sock"
    [url] = serving.start(Echo(), bind=TCP)
    with Client(url, timeout=WAIT_S) as connecting, Client(bind=f"sp+ipc://{path}") as listening:
        serving.start(Echo(), listening.addresses)
        for client in (connecting, listening):
            assert client.call(b"before", timeout=WAIT_S).body == b"before"
        child = os.fork()
        if not child:  # pragma: no cover - counted in the parent only
            code = 99
            try:
                assert connecting.call(b"in the child").body == b"in the child"
                with pytest.raises(TransportError, match="after a fork"):
                    listening.call(b"x")
                listening.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert path.exists()
        for client in (connecting, listening):
            assert client.call(b"after", timeout=WAIT_S).body == b"after"


@pure_only("the test replaces a method of the host")
def test_after_an_interruption_it_listens_at_the_same_address(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(bind=TCP, timeout=WAIT_S) as client:
        [url] = client.addresses
        serving.start(Echo(), url)
        assert client.call(b"before").body == b"before"
        with monkeypatch.context() as patch:
            patch.setattr(client._shell.host, "submit", _interrupted)
            with pytest.raises(KeyboardInterrupt):
                client.start(b"x")
        assert client.call(b"after").body == b"after"
        assert client.addresses == [url]


def _interrupted(_event: object) -> None:
    raise KeyboardInterrupt


def test_a_silent_peer_does_not_delay_others(serving: Serving) -> None:
    with Client(bind=TCP, timeout=WAIT_S) as client:
        [url] = client.addresses
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)):
            with pytest.raises(CallTimeout, match="no peer is connected"):
                client.call(b"x", timeout=0.05)
            serving.start(Echo(), url)
            assert client.call(b"x").body == b"x"
