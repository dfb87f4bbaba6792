"""Clients and workers with the addresses of two brokers, one of which fails.

The brokers are independent here, so clients and workers have to find the same one. A pair, of which
only one broker is active at a time, is tested in `test_pair_broker.py`.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

import pytest
from tests.support.gate import Gate, WorkerProcess
from tests.support.live import BrokerProcess, Process

import requite
from requite.core.liveness import HeartbeatPolicy

pytestmark = pytest.mark.e2e

INTERVAL = ("--heartbeat-interval", "0.2", "--liveness", "4")
HEARTBEAT = HeartbeatPolicy(0.2, 4)
PATIENCE_S = 1.0  # the time until an address that does not answer is given up
TIMEOUT_S = 20.0  # enough for a busy machine; giving up an address would take 30 s by default

P = TypeVar("P", bound=Process)


class Ask(Protocol):
    """A function that makes one call with a new client."""

    def __call__(self, url: str, body: bytes, timeout: float = TIMEOUT_S) -> requite.Reply: ...


def ask_blocking(url: str, body: bytes, timeout: float = TIMEOUT_S) -> requite.Reply:
    with requite.Client(url, timeout=timeout, heartbeat=HEARTBEAT) as client:
        return client.call(body, service="gated")


def ask_on_a_loop(url: str, body: bytes, timeout: float = TIMEOUT_S) -> requite.Reply:
    async def ask() -> requite.Reply:
        async with requite.AsyncClient(url, timeout=timeout, heartbeat=HEARTBEAT) as client:
            return await client.call(body, service="gated")

    return asyncio.run(ask())


class Cluster:
    """Two brokers, and a worker that has both addresses and is connected to the first."""

    def __init__(self, gate: Gate, processes: list[Process]) -> None:
        self.gate = gate
        self._processes = processes
        self.first, self.second = (self.own(BrokerProcess(*INTERVAL)) for _ in range(2))
        self.url = url_of(self.first.endpoint, self.second.endpoint)
        self.worker: WorkerProcess = self.own(gate.worker(self.url, *INTERVAL))
        self.worker.await_start()
        self.first.await_workers("gated", 1)

    def own(self, process: P) -> P:
        self._processes.append(process)
        return process

    def move(self, number: signal.Signals) -> None:
        """Signal the first broker while a handler runs; the request runs again at the second."""
        self.gate.await_run("x")
        self.first.signal(number)
        assert self.gate.await_run("x", "given-up") == self.worker.pid
        self.second.await_workers("gated", 1)
        self.gate.open()


def url_of(*endpoints: str) -> str:
    return f"mdp://{','.join(each.removeprefix('tcp://') for each in endpoints)}"


@pytest.fixture
def cluster(tmp_path: Path, processes: list[Process]) -> Iterator[Cluster]:
    gate = Gate(tmp_path)
    yield Cluster(gate, processes)
    gate.open()


def test_outstanding_calls_move_when_their_broker_is_killed(cluster: Cluster) -> None:
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(ask_blocking, cluster.url, b"x")
        cluster.move(signal.SIGKILL)
        reply = call.result(TIMEOUT_S)
    assert reply.frames == [b"x", b"%d" % cluster.worker.pid]


def test_a_stopped_broker_delays_neither_calls_nor_new_clients(cluster: Cluster) -> None:
    """The system still accepts connections for the stopped broker, which does not answer them."""
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(ask_on_a_loop, cluster.url, b"x")
        cluster.move(signal.SIGSTOP)
        reply = call.result(TIMEOUT_S)
    assert reply.frames == [b"x", b"%d" % cluster.worker.pid]
    for ask in (ask_blocking, ask_on_a_loop):
        assert ask(cluster.url, b"y", timeout=TIMEOUT_S).frames[0] == b"y"
    cluster.own(cluster.gate.worker(cluster.url, *INTERVAL)).await_start()
    cluster.second.await_workers("gated", 2, TIMEOUT_S)


@pytest.mark.parametrize("ask", [ask_blocking, ask_on_a_loop])
def test_without_an_answer_the_error_names_both_addresses(ask: Ask) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        places = [f"tcp://127.0.0.1:{each.getsockname()[1]}" for each in (silent, closed)]
        with pytest.raises(requite.CallTimeout) as caught:
            ask(url_of(*places), b"x", timeout=PATIENCE_S * 3)
    text = str(caught.value)
    assert f"{places[0]} ended: accepted the connection, but sent nothing" in text
    assert f"cannot connect to {places[1]}: connection refused" in text
    assert not caught.value.may_have_executed
