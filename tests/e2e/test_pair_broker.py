"""A pair of brokers as processes that are killed, stopped and switched while calls go on.

Clients of several kinds call all the time and look at each reply. After each blow every one of them
has to get on; none of their calls may fail, and none may get another one's answer.
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
# Long enough that nobody is taken for dead for want of the processor.
INTERVAL: Final = ("--heartbeat-interval", "0.3", "--liveness", "5")
HEARTBEAT: Final = HeartbeatPolicy(0.3, 5)
PAIR_HEARTBEAT_S: Final = 0.6
STEP: Final = 10  # calls that each client makes after a blow
WITHIN_S: Final = 20.0  # a busy machine
PING: Final = (b"MDPC02", b"\x01", b"mmi.ping", b"")


class Half:
    """One of the two brokers, which can be started again at the same place."""

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
        self.since = monotonic()
        return process

    def again(self) -> None:
        """Start it where it was."""
        self.process = self._start(self.endpoint)


class Town:
    """The pair, and a worker for `plain` and `gated`."""

    def __init__(self, folder: Path, processes: list[Process]) -> None:
        self.gate = Gate(folder)
        self.halves = [Half(role, folder, processes) for role in ("primary", "backup")]
        places = [half.endpoint.removeprefix("tcp://") for half in self.halves]
        self.url = f"mdp://{','.join(places)}"
        self.client = requite.Client(self.url, timeout=WITHIN_S, heartbeat=HEARTBEAT)
        self.worker = self.gate.worker(self.url, *INTERVAL, services="plain gated")
        processes.append(self.worker)
        self.worker.await_start()

    def standing(self) -> dict[str, Any]:
        """Return what the one that serves knows of the pair."""
        standing: dict[str, Any] = json.loads(self.client.call(b"", service="mmi.pair").body)
        return standing

    def active(self) -> Half:
        """Return the one that serves."""
        role = self.standing()["role"]
        return next(half for half in self.halves if half.role == role)

    def passive(self) -> Half:
        """Return the other one, once it is passive."""
        active = self.active()
        other = next(half for half in self.halves if half is not active)
        eventually(lambda: self._is_passive(other), "the other one is passive")
        return other

    def _is_passive(self, other: Half) -> bool:
        seen = self.standing()
        is_its_own = seen["heard_s_ago"] < monotonic() - other.since  # not of a former life
        return seen["role"] != other.role and seen["peer"] == "passive" and is_its_own


class Traffic:
    """Clients that call as long as they are wanted, and look at what they get."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._end = threading.Event()
        self.wrong: list[str] = []
        self.done = {"blocking": 0, "0.2": 0, "asyncio": 0}
        callers = (self._blocking, self._in_old_words, self._on_a_loop)
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

    def goes_on(self) -> None:
        """Wait until each client has made some more calls."""
        wanted = {who: done + STEP for who, done in self.done.items()}
        eventually(lambda: self._is_at(wanted), f"{wanted} calls", WITHIN_S)

    def _is_at(self, wanted: dict[str, int]) -> bool:
        assert not self.wrong, self.wrong[:3]
        return all(self.done[who] >= least for who, least in wanted.items())

    # --- the clients ------------------------------------------------------------------------------
    def _blocking(self) -> None:
        with requite.Client(self._url, timeout=WITHIN_S, heartbeat=HEARTBEAT) as client:
            self._call_on("blocking", client)

    def _in_old_words(self) -> None:
        """MDP 0.2 has no heartbeats for clients: time alone tells that a broker is frozen."""
        retry = requite.RetryPolicy(attempts=20, attempt_timeout=0.8)
        with requite.Client(self._url, timeout=WITHIN_S, dialect="0.2", retry=retry) as client:
            self._call_on("0.2", client)

    def _call_on(self, who: str, client: requite.Client) -> None:
        while not self._end.is_set():
            body = b"%d of %s" % (self.done[who], who.encode())
            try:
                reply = client.call(body, service="plain")
            except requite.RequiteError as error:
                self.wrong.append(f"{who}: {error!r}")
                return
            self._check(who, reply, body)

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

    def _check(self, who: str, reply: requite.Reply, body: bytes) -> None:
        if reply.body != body:
            self.wrong.append(f"{who}: {reply.body!r} came for {body!r}")
        self.done[who] += 1


@pytest.fixture
def town(tmp_path: Path, processes: list[Process]) -> Iterator[Town]:
    made = Town(tmp_path, processes)
    yield made
    made.gate.open()
    made.client.close()


def test_calls_go_on_whatever_becomes_of_either(town: Town) -> None:
    with Traffic(town.url) as traffic:
        traffic.goes_on()
        epoch = town.standing()["epoch"]
        for _ in range(ROUNDS):
            # The active one is killed; it comes back, and nothing changes by that.
            victim = town.active()
            victim.process.kill()
            traffic.goes_on()
            heir = town.active()
            assert heir is not victim
            victim.again()
            assert town.passive() is victim

            # The active one is stopped: its port goes on accepting. It is woken too late.
            heir.process.signal(signal.SIGSTOP)
            traffic.goes_on()
            assert town.active() is victim
            heir.process.signal(signal.SIGCONT)
            assert town.passive() is heir
            traffic.goes_on()

            # The passive one is killed: nobody notices.
            heir.process.kill()
            traffic.goes_on()
            assert town.active() is victim
            heir.again()
            assert town.passive() is heir

            # The active one is told to end, and lets the other one take over.
            victim.process.signal(signal.SIGTERM)
            assert victim.process.ended()[0] == 0
            traffic.goes_on()
            assert town.active() is heir
            victim.again()
            assert town.passive() is victim

            assert town.standing()["epoch"] >= epoch + 3
            epoch = town.standing()["epoch"]
        traffic.goes_on()


def test_one_that_was_stopped_answers_nobody_when_it_is_woken(town: Town) -> None:
    """Questions that need no worker wait in its connection, and it would have the answers."""
    town.client.call(b"x", service="plain")
    stopped = town.active()
    with RawPeer(stopped.endpoint) as old_friend:
        old_friend.shake_hands()
        old_friend.say(*PING)
        assert b"pong" in old_friend.receive()[-1]
        stopped.process.signal(signal.SIGSTOP)
        town.client.call(b"x", service="plain")
        assert town.active() is not stopped
        for _ in range(3):
            old_friend.say(*PING)
        stopped.process.signal(signal.SIGCONT)
        assert old_friend.last_words() == []
    assert town.passive() is stopped
    with RawPeer(stopped.endpoint) as newcomer:
        assert b"mmi" not in newcomer.hung_up()


def test_if_nobody_has_taken_over_it_goes_on_as_if_nothing_had_been(town: Town) -> None:
    """No client asked the other one meanwhile. The call that was out comes back."""
    town.client.call(b"x", service="plain")
    stopped = town.active()
    with ThreadPoolExecutor(1) as pool:
        patient = requite.Client(town.url, timeout=WITHIN_S, heartbeat=HeartbeatPolicy(1.0, 100))
        call = pool.submit(patient.call, b"x", service="gated")
        town.gate.await_run("x")
        stopped.process.signal(signal.SIGSTOP)
        town.gate.await_run("x", "given-up")  # the worker takes it for gone, and goes
        stopped.process.signal(signal.SIGCONT)
        town.gate.open()
        reply = call.result(WITHIN_S)
        patient.close()
    assert (reply.frames[0], reply.attempts) == (b"x", 2)
    assert town.active() is stopped
    assert town.standing()["epoch"] == 1
