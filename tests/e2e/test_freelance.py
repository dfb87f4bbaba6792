"""Freelance with real processes: servers are killed, stopped and drained, and clients are killed.

Each call still ends once, with the reply to its own request.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.support.live import Process, eventually

import requite

pytestmark = pytest.mark.e2e

MODELS = ("agent", "failover", "shotgun")
SERVICE = "tests.support.freelance_service:tell"
TIMEOUT_S = 30.0
# REQUITE_SIM_SEEDS multiplies the kills.
KILLS = 3 * int(os.environ.get("REQUITE_SIM_SEEDS", "1"))
CALLERS = 4


class Server(Process):
    """A server process; it listens once the object is made."""

    def __init__(self, bind: str, service: str = SERVICE, *options: str, **env: str) -> None:
        command = ("-m", "requite.cli", "worker", service, "--bind", bind, *options)
        super().__init__(*command, **env)
        self.url = self.line().partition(" at ")[2]
        assert self.url, self.ended()

    @property
    def place(self) -> str:
        """The host and the port."""
        return self.url.removeprefix("flp://").partition("?")[0]


class Fleet:
    """Equal servers of one Freelance model."""

    def __init__(self, processes: list[Process], model: str, servers: int = 3) -> None:
        self._processes = processes
        self.model = model
        self.servers = [self.start("127.0.0.1:0") for _ in range(servers)]
        places = ",".join(server.place for server in self.servers)
        self.url = f"flp://{places}?model={model}"

    def start(self, place: str, *options: str) -> Server:
        """Start a server."""
        server = Server(f"flp://{place}?model={self.model}", SERVICE, *options)
        self._processes.append(server)
        return server

    def client(self, **settings: Any) -> requite.Client:
        """Return a client of all servers."""
        if self.model == "agent":
            settings = {"heartbeat": 0.3, **settings}
        return requite.Client(self.url, timeout=TIMEOUT_S, **settings)

    def restart(self, index: int) -> None:
        """Kill a server, and start another one at its address."""
        old = self.servers[index]
        old.kill()
        self.servers[index] = self.start(old.place)


class Callers:
    """Threads that make calls and check the replies until `stop`."""

    def __init__(self, client: requite.Client) -> None:
        self._client = client
        self._stop = threading.Event()
        self._numbers = count()
        self.answered = 0
        self._pool = ThreadPoolExecutor(CALLERS)
        self._runs = [self._pool.submit(self._run) for _ in range(CALLERS)]

    def _run(self) -> None:
        while not self._stop.is_set():
            body = b"call %d" % next(self._numbers)
            pid, _, echoed = self._client.call(body).body.partition(b" ")
            assert echoed == body
            assert int(pid)
            self.answered += 1

    def await_more(self, calls: int = 50) -> None:
        """Wait until `calls` more calls are answered; raise the error of a thread that failed."""
        goal = self.answered + calls
        eventually(lambda: self.answered >= goal or self._failed(), "calls are answered")
        for run in self._failed():
            run.result()

    def _failed(self) -> list[Future[None]]:
        return [run for run in self._runs if run.done()]

    def stop(self) -> None:
        """Stop the threads; raise the error of a thread that failed."""
        self._stop.set()
        self._pool.shutdown()
        for run in self._runs:
            run.result()


# --- servers --------------------------------------------------------------------------------------
@pytest.mark.timeout(60 * KILLS)
@pytest.mark.parametrize("model", MODELS)
def test_every_call_is_answered_while_servers_are_killed(
    model: str, processes: list[Process]
) -> None:
    fleet = Fleet(processes, model)
    # Enough attempts for a call that meets several killed servers.
    retry = None if model == "shotgun" else requite.RetryPolicy(attempts=10, attempt_timeout=5.0)
    with fleet.client(retry=retry) as client:
        callers = Callers(client)
        for kill in range(KILLS):
            callers.await_more()
            fleet.restart(kill % len(fleet.servers))
        callers.await_more()
        callers.stop()


@pytest.mark.parametrize("model", MODELS)
def test_a_stopped_server_delays_no_call_and_is_used_again(
    model: str, processes: list[Process]
) -> None:
    fleet = Fleet(processes, model, servers=2)
    first, second = fleet.servers
    with fleet.client() as client:
        client.call(b"hello")
        asked = first if model == "shotgun" else _answering_server(client, fleet)
        asked.signal(signal.SIGSTOP)
        other = second if asked is first else first
        assert client.call(b"hello").body == b"%d hello" % other.pid
        asked.signal(signal.SIGCONT)
        other.kill()
        assert client.call(b"hello again").body == b"%d hello again" % asked.pid


def _answering_server(client: requite.Client, fleet: Fleet) -> Server:
    """Return the server that answers a call."""
    pid = int(client.call(b"who").body.partition(b" ")[0])
    return next(server for server in fleet.servers if server.pid == pid)


@pytest.mark.parametrize("model", MODELS)
def test_a_draining_server_answers_its_requests(model: str, processes: list[Process]) -> None:
    fleet = Fleet(processes, model, servers=1)
    [server] = fleet.servers
    retry = requite.RetryPolicy(attempt_timeout=20.0) if model == "failover" else None
    with fleet.client(retry=retry) as client:
        call = client.start(b"nap")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(call.result)
            assert server.line() == "napping"
            server.signal(signal.SIGTERM)
            assert waiting.result(TIMEOUT_S).body == b"%d nap" % server.pid
        assert server.ended()[0] == 0


@pytest.mark.parametrize("model", ["agent", "failover"])
def test_a_request_that_is_not_idempotent_is_not_sent_again(
    model: str, processes: list[Process]
) -> None:
    fleet = Fleet(processes, model, servers=2)
    with fleet.client() as client, ThreadPoolExecutor(1) as pool:
        asked = _answering_server(client, fleet)
        waiting = pool.submit(client.call, b"wait", idempotent=False)
        assert asked.line() == "waiting"
        asked.kill()
        with pytest.raises(requite.TransportError, match="not idempotent") as caught:
            waiting.result(TIMEOUT_S)
        assert caught.value.may_have_executed
        assert client.call(b"still here").body.endswith(b"still here")


# --- clients --------------------------------------------------------------------------------------
@pytest.mark.parametrize("model", ["agent", "failover"])
def test_the_request_of_a_killed_client_is_cancelled(model: str, processes: list[Process]) -> None:
    """With a capacity of 1, the next call is answered only if the killed client's is cancelled."""
    bind = f"flp://127.0.0.1:0?model={model}"
    server = Server(bind, SERVICE, "--capacity", "1")
    processes.append(server)
    for _ in range(2):
        client = Process("-m", "requite.cli", "call", server.url, "wait")
        processes.append(client)
        assert server.line() == "waiting"
        client.kill()
        with requite.Client(server.url, timeout=TIMEOUT_S) as another:
            assert another.call(b"hello").body == b"%d hello" % server.pid


# --- the example ----------------------------------------------------------------------------------
def test_the_name_example_resolves_names_after_a_kill(
    processes: list[Process], tmp_path: Path
) -> None:
    table = tmp_path / "names.json"
    table.write_text(json.dumps({"test": {"orders": ["tcp://a:1", "tcp://b:1"]}}))
    service = "requite.examples.names:resolve"
    servers = [Server("flp://127.0.0.1:0", service, REQUITE_NAMES=str(table)) for _ in range(2)]
    processes.extend(servers)
    url = f"flp://{','.join(server.place for server in servers)}"
    with requite.Client(url, timeout=TIMEOUT_S) as client:
        assert client.call(b"test orders").body == b"tcp://a:1\ntcp://b:1"
        assert client.call(b"production orders").body == b""
        servers[0].kill()
        table.write_text(json.dumps({"test": {"orders": ["tcp://c:1"]}, "production": {}}))
        assert client.call(b"test orders").body == b"tcp://c:1"
        table.write_text("no JSON at all")
        assert client.call(b"test orders").body == b"tcp://c:1"
