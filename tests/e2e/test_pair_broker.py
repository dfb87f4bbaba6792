"""A pair of broker processes that are killed, stopped and switched while clients make calls.

Several kinds of clients make calls all the time and check each reply. After each fault, every
client has to make progress. No call may fail or get the reply to another call.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, takewhile
from pathlib import Path
from time import monotonic
from typing import Any, Final

import pytest
from tests.support.gate import Gate
from tests.support.live import BrokerProcess, Process, eventually
from tests.support.raw_zmtp import RawPeer

import requite
from requite.core.liveness import HeartbeatPolicy

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(180)]

ROUNDS: Final = int(os.environ.get("REQUITE_SIM_SEEDS", "1"))
# Long enough that a busy machine does not make a process miss its heartbeats.
INTERVAL: Final = ("--heartbeat-interval", "0.3", "--liveness", "5")
HEARTBEAT: Final = HeartbeatPolicy(0.3, 5)
PAIR_HEARTBEAT_S: Final = 0.6
STEP: Final = 10  # calls that each client makes after a fault
WITHIN_S: Final = 20.0  # a busy machine
PING: Final = (b"MDPC02", b"\x01", b"mmi.ping", b"")


class PairedBroker:
    """A broker of the pair, which can be restarted at the same address."""

    def __init__(self, role: str, folder: Path, processes: list[Process]) -> None:
        other = {"primary": "backup", "backup": "primary"}[role]
        self._options = (
            *(f"--{role}", "--pair-bind", f"ipc://{folder}/{role}"),
            *("--peer", f"ipc://{folder}/{other}", *INTERVAL),
            *("--pair-heartbeat", str(PAIR_HEARTBEAT_S)),
        )
        self.role = role
        self._processes = processes
        self.process = self._start("tcp://127.0.0.1:0")
        self.endpoint = self.process.endpoint

    def _start(self, bind: str) -> BrokerProcess:
        process = BrokerProcess(*self._options, bind=bind)
        self._processes.append(process)
        self.started_at = monotonic()
        return process

    def restart(self) -> None:
        """Start the broker again at its address."""
        self.process = self._start(self.endpoint)


class Cluster:
    """A pair of brokers, and a worker for the services `plain` and `gated`."""

    def __init__(self, folder: Path, processes: list[Process]) -> None:
        self.gate = Gate(folder)
        self.brokers = [PairedBroker(role, folder, processes) for role in ("primary", "backup")]
        places = [broker.endpoint.removeprefix("tcp://") for broker in self.brokers]
        self.url = f"mdp://{','.join(places)}"
        self.client = requite.Client(self.url, timeout=WITHIN_S, heartbeat=HEARTBEAT)
        self.worker = self.gate.worker(self.url, *INTERVAL, services="plain gated")
        processes.append(self.worker)
        self.worker.await_start()

    def pair_state(self) -> dict[str, Any]:
        """Return the active broker's view of the pair (`mmi.pair`)."""
        pair_state: dict[str, Any] = json.loads(self.client.call(b"", service="mmi.pair").body)
        return pair_state

    def active(self) -> PairedBroker:
        """Return the active broker."""
        role = self.pair_state()["role"]
        return next(broker for broker in self.brokers if broker.role == role)

    def passive(self) -> PairedBroker:
        """Return the other broker once it is passive."""
        active = self.active()
        other = next(broker for broker in self.brokers if broker is not active)
        eventually(lambda: self._is_passive(other), "the other one is passive")
        return other

    def _is_passive(self, other: PairedBroker) -> bool:
        seen = self.pair_state()
        is_current = seen["heard_s_ago"] < monotonic() - other.started_at  # since its restart
        return seen["role"] != other.role and seen["peer"] == "passive" and is_current


class Traffic:
    """Clients that make calls and check the replies until the block ends."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._end = threading.Event()
        self.wrong: list[str] = []
        self.done = {"blocking": 0, "0.2": 0, "asyncio": 0}
        callers = (self._blocking, self._over_mdp_02, self._on_a_loop)
        self._threads = [threading.Thread(target=caller) for caller in callers]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(WITHIN_S)
            assert not thread.is_alive()

    def await_progress(self) -> None:
        """Wait until each client has made `STEP` more calls."""
        wanted = {name: done + STEP for name, done in self.done.items()}
        eventually(lambda: self._is_at(wanted), f"{wanted} calls", WITHIN_S)

    def _is_at(self, wanted: dict[str, int]) -> bool:
        assert not self.wrong, self.wrong[:3]
        return all(self.done[name] >= least for name, least in wanted.items())

    # --- the clients ------------------------------------------------------------------------------
    def _blocking(self) -> None:
        with requite.Client(self._url, timeout=WITHIN_S, heartbeat=HEARTBEAT) as client:
            self._call_on("blocking", client)

    def _over_mdp_02(self) -> None:
        """Call over MDP 0.2: without heartbeats, a frozen broker is detected by a timeout."""
        retry = requite.RetryPolicy(attempts=20, attempt_timeout=0.8)
        with requite.Client(self._url, timeout=WITHIN_S, dialect="0.2", retry=retry) as client:
            self._call_on("0.2", client)

    def _call_on(self, name: str, client: requite.Client) -> None:
        while not self._end.is_set():
            body = b"%d of %s" % (self.done[name], name.encode())
            try:
                reply = client.call(body, service="plain")
            except requite.RequiteError as error:
                self.wrong.append(f"{name}: {error!r}")
                return
            self._check(name, reply, body)

    def _on_a_loop(self) -> None:
        async def call_on() -> None:
            bodies = (b"%d" % number for number in count())
            wanted = takewhile(lambda _: not self._end.is_set(), bodies)
            async with requite.AsyncClient(
                self._url, timeout=WITHIN_S, heartbeat=HEARTBEAT
            ) as client:
                async for reply in client.map(wanted, concurrency=8, service="plain"):
                    assert isinstance(reply, requite.Reply)
                    self._check("asyncio", reply, b"%d" % self.done["asyncio"])

        try:
            asyncio.run(call_on())
        except requite.RequiteError as error:
            self.wrong.append(f"asyncio: {error!r}")

    def _check(self, name: str, reply: requite.Reply, body: bytes) -> None:
        if reply.body != body:
            self.wrong.append(f"{name}: {reply.body!r} came for {body!r}")
        self.done[name] += 1


@pytest.fixture
def cluster(tmp_path: Path, processes: list[Process]) -> Iterator[Cluster]:
    made = Cluster(tmp_path, processes)
    yield made
    made.gate.open()
    made.client.close()


def test_calls_succeed_while_either_broker_fails(cluster: Cluster) -> None:
    with Traffic(cluster.url) as traffic:
        traffic.await_progress()
        epoch = cluster.pair_state()["epoch"]
        for _ in range(ROUNDS):
            # Kill the active broker. After its restart, it is passive.
            victim = cluster.active()
            victim.process.kill()
            traffic.await_progress()
            successor = cluster.active()
            assert successor is not victim
            victim.restart()
            assert cluster.passive() is victim

            # Stop the active broker: its port still accepts connections. It resumes too late.
            successor.process.signal(signal.SIGSTOP)
            traffic.await_progress()
            assert cluster.active() is victim
            successor.process.signal(signal.SIGCONT)
            assert cluster.passive() is successor
            traffic.await_progress()

            # Kill the passive broker: this has no effect on calls.
            successor.process.kill()
            traffic.await_progress()
            assert cluster.active() is victim
            successor.restart()
            assert cluster.passive() is successor

            # Stop the active broker with SIGTERM: it hands over to the other.
            victim.process.signal(signal.SIGTERM)
            assert victim.process.ended()[0] == 0
            traffic.await_progress()
            assert cluster.active() is successor
            victim.restart()
            assert cluster.passive() is victim

            assert cluster.pair_state()["epoch"] >= epoch + 3
            epoch = cluster.pair_state()["epoch"]
        traffic.await_progress()


def test_a_broker_that_was_replaced_while_stopped_answers_no_request(cluster: Cluster) -> None:
    """Requests that need no worker wait in its connection; it could answer them itself."""
    cluster.client.call(b"x", service="plain")
    stopped = cluster.active()
    with RawPeer(stopped.endpoint) as known_peer:
        known_peer.shake_hands()
        known_peer.say(*PING)
        assert b"pong" in known_peer.receive()[-1]
        stopped.process.signal(signal.SIGSTOP)
        cluster.client.call(b"x", service="plain")
        assert cluster.active() is not stopped
        for _ in range(3):
            known_peer.say(*PING)
        stopped.process.signal(signal.SIGCONT)
        assert known_peer.last_words() == []
    assert cluster.passive() is stopped
    with RawPeer(stopped.endpoint) as newcomer:
        assert b"mmi" not in newcomer.hung_up()


def test_a_broker_that_was_not_replaced_while_stopped_continues(cluster: Cluster) -> None:
    """No client contacted the other broker meanwhile. The outstanding call is answered."""
    cluster.client.call(b"x", service="plain")
    stopped = cluster.active()
    with ThreadPoolExecutor(1) as pool:
        patient = requite.Client(cluster.url, timeout=WITHIN_S, heartbeat=HeartbeatPolicy(1.0, 100))
        call = pool.submit(patient.call, b"x", service="gated")
        cluster.gate.await_run("x")
        stopped.process.signal(signal.SIGSTOP)
        cluster.gate.await_run("x", "given-up")  # the worker treats the broker as lost
        stopped.process.signal(signal.SIGCONT)
        cluster.gate.open()
        reply = call.result(WITHIN_S)
        patient.close()
    assert (reply.frames[0], reply.attempts) == (b"x", 2)
    assert cluster.active() is stopped
    assert cluster.pair_state()["epoch"] == 1
