"""Clients and workers that know two addresses, when whoever is behind one of them fails.

Both brokers are plain ones here: who follows has to find the other one. What a pair adds to that,
only one of the two serving at a time, is in `test_pair_broker.py`.
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
PATIENCE_S = 1.0  # with an address that does not answer
TIMEOUT_S = 20.0  # for a busy machine; without the patience it were 30 s

P = TypeVar("P", bound=Process)


class Ask(Protocol):
    """Makes one call with a client of its own."""

    def __call__(self, url: str, body: bytes, timeout: float = TIMEOUT_S) -> requite.Reply: ...


def ask_blocking(url: str, body: bytes, timeout: float = TIMEOUT_S) -> requite.Reply:
    with requite.Client(url, timeout=timeout, heartbeat=HEARTBEAT) as client:
        return client.call(body, service="gated")


def ask_on_a_loop(url: str, body: bytes, timeout: float = TIMEOUT_S) -> requite.Reply:
    async def ask() -> requite.Reply:
        async with requite.AsyncClient(url, timeout=timeout, heartbeat=HEARTBEAT) as client:
            return await client.call(body, service="gated")

    return asyncio.run(ask())


class Town:
    """Two brokers and one worker, which knows both and is at the first."""

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

    def moves(self, how: signal.Signals) -> None:
        """Strike the first broker while a handler runs; let it run again at the second."""
        self.gate.await_run("x")
        self.first.signal(how)
        assert self.gate.await_run("x", "given-up") == self.worker.pid
        self.second.await_workers("gated", 1)
        self.gate.open()


def url_of(*endpoints: str) -> str:
    return f"mdp://{','.join(each.removeprefix('tcp://') for each in endpoints)}"


@pytest.fixture
def town(tmp_path: Path, processes: list[Process]) -> Iterator[Town]:
    gate = Gate(tmp_path)
    yield Town(gate, processes)
    gate.open()


def test_calls_that_are_out_move_when_their_broker_is_killed(town: Town) -> None:
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(ask_blocking, town.url, b"x")
        town.moves(signal.SIGKILL)
        reply = call.result(TIMEOUT_S)
    assert reply.frames == [b"x", b"%d" % town.worker.pid]


def test_a_broker_that_is_stopped_holds_up_neither_calls_nor_newcomers(town: Town) -> None:
    """The system goes on taking connections for it, and nobody ever answers them."""
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(ask_on_a_loop, town.url, b"x")
        town.moves(signal.SIGSTOP)
        reply = call.result(TIMEOUT_S)
    assert reply.frames == [b"x", b"%d" % town.worker.pid]
    for ask in (ask_blocking, ask_on_a_loop):
        assert ask(town.url, b"y", timeout=TIMEOUT_S).frames[0] == b"y"
    town.own(town.gate.worker(town.url, *INTERVAL)).await_start()
    town.second.await_workers("gated", 2, TIMEOUT_S)


@pytest.mark.parametrize("ask", [ask_blocking, ask_on_a_loop])
def test_while_nobody_answers_callers_hear_about_both_addresses(ask: Ask) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        places = [f"tcp://127.0.0.1:{each.getsockname()[1]}" for each in (silent, deaf)]
        with pytest.raises(requite.CallTimeout) as caught:
            ask(url_of(*places), b"x", timeout=PATIENCE_S * 3)
    text = str(caught.value)
    assert f"{places[0]} ended: accepted the connection, but sent nothing" in text
    assert f"cannot connect to {places[1]}: connection refused" in text
    assert not caught.value.may_have_executed
