"""Processes that are killed, frozen and drained: every call still ends, once, and as it should.

Brokers and workers are processes of the command, the calls are made here. Handlers wait at a gate
(`tests/support/gate.py`), so that what is killed is killed while it works, without any sleeps.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from tests.support.gate import Gate, WorkerProcess
from tests.support.live import BrokerProcess, Process, eventually

import requite

pytestmark = pytest.mark.e2e

# Short enough for tests, long enough for a busy machine.
INTERVAL = ("--heartbeat-interval", "0.3", "--liveness", "7")
LOST_AFTER_S = 2.1
TIMEOUT_S = 30.0


class Town:
    """A broker with workers, all of them processes, and calls to them from threads."""

    def __init__(self, gate: Gate, processes: list[Process], pool: ThreadPoolExecutor) -> None:
        self.gate = gate
        self._processes = processes
        self._pool = pool
        self.broker = self._own(BrokerProcess(*INTERVAL))

    def _own(self, process: Any) -> Any:
        self._processes.append(process)
        return process

    def restart_broker(self, *options: str) -> None:
        """Start another broker where the one that was killed has been."""
        self.broker.forget_observer()
        again = BrokerProcess(*INTERVAL, *options, bind=self.broker.endpoint)
        assert again.endpoint == self.broker.endpoint
        self.broker = self._own(again)

    def add_worker(self, *options: str, services: str = "gated") -> WorkerProcess:
        """Start a worker, and wait until it has registered."""
        return self.add_workers(1, *options, services=services)[0]

    def add_workers(
        self, count: int, *options: str, services: str = "gated"
    ) -> list[WorkerProcess]:
        """Start workers side by side, and wait until all have registered."""
        known = self.broker.service(services)
        url = self.broker.url
        added = [
            self._own(self.gate.worker(url, *(options or INTERVAL), services=services))
            for _ in range(count)
        ]
        for worker in added:
            worker.await_start()
        self.broker.await_workers(services, count + (known["workers"] if known else 0))
        return added

    def call(self, body: str, service: str = "gated", **how: Any) -> Future[requite.Reply]:
        """Make a call with a client of its own, on a thread."""

        def make() -> requite.Reply:
            with requite.Client(self.broker.url, service=service, timeout=TIMEOUT_S) as client:
                return client.call(body.encode(), **how)

        return self._pool.submit(make)

    def by_pid(self, *workers: WorkerProcess) -> Callable[[int], WorkerProcess]:
        """Return a function that finds the worker with a process id."""
        return {worker.pid: worker for worker in workers}.__getitem__


@pytest.fixture
def town(tmp_path: Path, processes: list[Process]) -> Any:
    """A broker and no workers yet."""
    gate = Gate(tmp_path)
    with ThreadPoolExecutor(16) as pool:
        yield Town(gate, processes, pool)
        gate.open()


def other(one: WorkerProcess, *all_of_them: WorkerProcess) -> WorkerProcess:
    """Return the one that is not `one`."""
    return next(worker for worker in all_of_them if worker is not one)


# --- the broker is killed -------------------------------------------------------------------------
def test_calls_outlive_a_broker_that_is_killed(town: Town) -> None:
    """40 calls are out, 8 of them queued; each is answered once, and workers come by themselves."""
    town.add_workers(2)
    bodies = [f"{who}{number}" for who in ("sync", "async") for number in range(20)]
    with ThreadPoolExecutor(2) as pool:
        outcomes = [
            pool.submit(call_with_client, town.broker.url, bodies[:20]),
            pool.submit(asyncio.run, call_with_async_client(town.broker.url, bodies[20:])),
        ]
        town.broker.await_service("gated", in_progress=32, queued=8)
        town.broker.kill()
        town.restart_broker()
        town.broker.await_workers("gated", 2)
        town.gate.open()
        replies = [reply for outcome in outcomes for reply in outcome.result(TIMEOUT_S)]
    assert [reply.frames[0].decode() for reply in replies] == bodies
    assert {reply.attempts for reply in replies} == {2}
    town.broker.await_service("gated", workers=2, in_progress=0, queued=0, replied=40)
    assert town.broker.stats()["pending"] == 0


def call_with_client(url: str, bodies: list[str]) -> list[requite.Reply]:
    """Call once per body, all at a time, with one blocking client."""
    with requite.Client(url, service="gated", timeout=TIMEOUT_S) as client:
        return list(client.map(map(str.encode, bodies), concurrency=len(bodies)))


async def call_with_async_client(url: str, bodies: list[str]) -> list[requite.Reply]:
    """Call once per body, all at a time, with one client for event loops."""
    async with requite.AsyncClient(url, service="gated", timeout=TIMEOUT_S) as client:
        return await asyncio.gather(*(client.call(body.encode()) for body in bodies))


def test_a_call_that_must_not_run_twice_ends_with_its_broker(town: Town) -> None:
    town.add_worker()
    call = town.call("once", idempotent=False)
    town.gate.await_run("once")
    town.broker.kill()
    with pytest.raises(requite.TransportError, match="not idempotent") as caught:
        call.result(TIMEOUT_S)
    assert caught.value.may_have_executed
    assert caught.value.attempts == 1
    town.restart_broker()
    town.gate.open()
    town.broker.await_workers("gated", 1)
    assert town.call("after").result(TIMEOUT_S).frames[0] == b"after"
    assert len(town.gate.runs("once")) == 1


def test_the_work_of_an_earlier_conversation_is_given_up(town: Town) -> None:
    """[worker-reconnect]: nobody waits for what came before the broker was killed."""
    worker = town.add_worker()
    call = town.call("x")
    town.gate.await_run("x")
    town.broker.kill()
    assert town.gate.await_run("x", "given-up") == worker.pid
    town.restart_broker()
    town.gate.open()
    assert call.result(TIMEOUT_S).frames[0] == b"x"


def test_a_frozen_broker_loses_nobody_when_it_goes_on(town: Town) -> None:
    """Its own pause is no evidence against its workers, whose heartbeats it has not read yet."""
    worker = town.add_worker("--heartbeat-interval", "0.3", "--liveness", "100")
    call = town.call("x")
    town.gate.await_run("x")
    town.broker.signal(signal.SIGSTOP)
    eventually(lambda: is_stopped(town.broker), "the broker is frozen")
    sleep(1.5 * LOST_AFTER_S)  # as long as the pause is to be; nothing tells when it is over
    town.broker.signal(signal.SIGCONT)
    town.gate.open()
    assert call.result(TIMEOUT_S).frames == [b"x", b"%d" % worker.pid]
    town.broker.await_service("gated", workers=1, redelivered=0)


def is_stopped(process: Process) -> bool:
    """Tell whether a process is stopped by a signal."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


# --- workers are killed ---------------------------------------------------------------------------
def test_the_request_of_a_worker_that_is_killed_goes_to_another(town: Town) -> None:
    first, second = town.add_workers(2)
    call = town.call("x")
    victim = town.by_pid(first, second)(town.gate.await_run("x"))
    heir = other(victim, first, second)
    victim.kill()
    eventually(lambda: heir.pid in town.gate.runs("x"), "the other worker has it")
    town.gate.open()
    reply = call.result(TIMEOUT_S)
    assert reply.frames == [b"x", b"%d" % heir.pid]
    town.broker.await_service("gated", workers=1, redelivered=1, replied=1)


def test_a_request_that_must_not_run_twice_ends_with_its_worker(town: Town) -> None:
    first, second = town.add_workers(2)
    call = town.call("x", idempotent=False)
    victim = town.by_pid(first, second)(town.gate.await_run("x"))
    victim.kill()
    with pytest.raises(requite.WorkerLost, match="not idempotent") as caught:
        call.result(TIMEOUT_S)
    assert caught.value.may_have_executed
    assert len(town.gate.runs("x")) == 1


def test_a_request_that_kills_its_workers_is_given_up_after_three(town: Town) -> None:
    victims = town.add_workers(3, services="crash")
    survivor = town.add_worker()
    with pytest.raises(requite.Poisoned, match="dispatched 3 times") as caught:
        town.call("x", "crash").result(TIMEOUT_S)
    assert caught.value.may_have_executed
    assert sorted(town.gate.runs("x")) == sorted(victim.pid for victim in victims)
    assert [victim.ended()[0] for victim in victims] == [-signal.SIGKILL] * 3
    town.gate.open()
    assert town.call("y").result(TIMEOUT_S).frames == [b"y", b"%d" % survivor.pid]


def test_a_frozen_worker_loses_its_request_and_comes_back_without_it(town: Town) -> None:
    """After SIGCONT it finds out, registers again, and its late reply reaches nobody."""
    first, second = town.add_workers(2)
    call = town.call("x")
    frozen = town.by_pid(first, second)(town.gate.await_run("x"))
    heir = other(frozen, first, second)
    frozen.signal(signal.SIGSTOP)
    eventually(lambda: heir.pid in town.gate.runs("x"), "the other worker has it")
    town.gate.open()
    assert call.result(TIMEOUT_S).frames == [b"x", b"%d" % heir.pid]
    town.broker.await_service("gated", workers=1, redelivered=1, replied=1)
    frozen.signal(signal.SIGCONT)
    town.broker.await_workers("gated", 2)
    heir.kill()
    town.broker.await_workers("gated", 1)
    assert town.call("y").result(TIMEOUT_S).frames == [b"y", b"%d" % frozen.pid]
    town.broker.await_service("gated", replied=2)


# --- a client is killed ---------------------------------------------------------------------------
def test_the_work_for_a_client_that_is_killed_is_given_up(
    town: Town, processes: list[Process]
) -> None:
    worker = town.add_worker()
    caller = Process("-m", "requite.cli", "call", f"{town.broker.url}/gated", "x")
    processes.append(caller)
    town.gate.await_run("x")
    caller.kill()
    assert town.gate.await_run("x", "given-up") == worker.pid
    town.broker.await_service("gated", cancelled=1, in_progress=0, queued=0)


# --- SIGTERM --------------------------------------------------------------------------------------
def test_sigterm_drains_a_worker(town: Town) -> None:
    """What it has in hand it finishes; what comes after goes to another worker."""
    leaving = town.add_worker()
    call = town.call("x")
    town.gate.await_run("x")
    leaving.signal(signal.SIGTERM)
    eventually(
        lambda: any(row["draining"] for row in town.broker.workers("gated")), "it tells the broker"
    )
    staying = town.add_worker()
    later = town.call("y")
    assert town.gate.await_run("y") == staying.pid
    town.gate.open()
    assert call.result(TIMEOUT_S).frames == [b"x", b"%d" % leaving.pid]
    assert later.result(TIMEOUT_S).frames == [b"y", b"%d" % staying.pid]
    assert leaving.ended() == (0, "")
    town.broker.await_service("gated", workers=1, redelivered=0, replied=2)


def test_sigterm_drains_a_broker(town: Town) -> None:
    """What is pending is finished; what comes after is not started, but waits for the next one."""
    worker = town.add_worker()
    call = town.call("x")
    town.gate.await_run("x")
    town.broker.signal(signal.SIGTERM)
    eventually(lambda: town.broker.observer.ask(b"mmi.ping")["draining"], "it drains")
    late = town.call("y")
    with (
        requite.Client(town.broker.url) as hasty,
        pytest.raises(requite.CallTimeout, match="has not run") as caught,
    ):
        hasty.call(b"z", service="gated", timeout=1.0)
    assert not caught.value.may_have_executed
    town.gate.open()
    assert call.result(TIMEOUT_S).frames == [b"x", b"%d" % worker.pid]
    assert town.broker.ended() == (0, "")
    assert not town.gate.runs("y")
    town.restart_broker()
    assert late.result(TIMEOUT_S).frames == [b"y", b"%d" % worker.pid]
    assert not town.gate.runs("z")


CALLERS = 64


class Crowd:
    """Calls that go on, `CALLERS` at a time, until they are told to stop."""

    def __init__(self) -> None:
        self.answered = 0
        self.stopping = False

    def await_more(self, calling: Future[None]) -> None:
        """Wait until each caller has been answered about once more, or one has failed."""
        enough = self.answered + CALLERS
        eventually(lambda: self.answered > enough or calling.done(), "calls are answered")

    def name_calls(self) -> Iterator[bytes]:
        """Give the next call its body, for as long as there is to be one."""
        for number in count():
            if self.stopping:
                return
            yield b"%d" % number

    def blocking(self, url: str) -> None:
        """Call with the blocking client; raises for the first call that fails."""
        with requite.Client(url, service="plain", timeout=TIMEOUT_S) as client:
            for _ in client.map(self.name_calls(), concurrency=CALLERS):
                self.answered += 1

    def asynchronous(self, url: str) -> None:
        """Call with the client for event loops; raises for the first call that fails."""
        asyncio.run(self._call(url))

    async def _call(self, url: str) -> None:
        async with requite.AsyncClient(url, service="plain", timeout=TIMEOUT_S) as client:
            bodies = self.name_calls()
            await asyncio.gather(*(self._call_on(client, bodies) for _ in range(CALLERS)))

    async def _call_on(self, client: requite.AsyncClient, bodies: Iterator[bytes]) -> None:
        for body in bodies:
            reply = await client.call(body)
            assert reply.frames == [body]
            self.answered += 1


@pytest.mark.parametrize("how", ["blocking", "asynchronous"])
def test_a_broker_is_restarted_under_load_and_no_call_fails(how: str, town: Town) -> None:
    town.add_worker(services="plain")
    crowd = Crowd()
    with ThreadPoolExecutor(1) as pool:
        calling = pool.submit(getattr(crowd, how), town.broker.url)
        try:
            for _ in range(3):
                crowd.await_more(calling)
                town.broker.signal(signal.SIGTERM)
                assert town.broker.ended() == (0, "")
                town.restart_broker()
            crowd.await_more(calling)
        finally:
            crowd.stopping = True
        calling.result(TIMEOUT_S)


def test_what_a_broker_cannot_wait_for_is_done_under_the_next(town: Town) -> None:
    """Its `--drain-timeout` is over: what may run twice does, what may not is said to have run."""
    town.broker.kill()
    town.restart_broker("--drain-timeout", "0.2")
    town.add_worker()
    again, once = town.call("again"), town.call("once", idempotent=False)
    town.gate.await_run("again")
    town.gate.await_run("once")
    town.broker.signal(signal.SIGTERM)
    assert town.broker.ended() == (0, "")
    with pytest.raises(requite.TransportError, match="not idempotent") as caught:
        once.result(TIMEOUT_S)
    assert caught.value.may_have_executed
    town.restart_broker()
    town.gate.open()
    assert again.result(TIMEOUT_S).frames[0] == b"again"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_stops_a_broker_at_once(number: signal.Signals, town: Town) -> None:
    town.add_worker()
    call = town.call("x", idempotent=False)
    town.gate.await_run("x")
    town.broker.signal(number)
    eventually(lambda: town.broker.observer.ask(b"mmi.ping")["draining"], "it drains")
    town.broker.signal(number)
    code, errors = town.broker.ended()
    assert code == {signal.SIGTERM: 143, signal.SIGINT: 130}[number]
    assert "Traceback" not in errors
    with pytest.raises(requite.TransportError):
        call.result(TIMEOUT_S)


def test_a_second_signal_stops_a_worker_at_once(town: Town) -> None:
    """What it had in hand is somebody else's then."""
    hasty = town.add_worker()
    call = town.call("x")
    town.gate.await_run("x")
    hasty.signal(signal.SIGTERM)
    eventually(
        lambda: any(row["draining"] for row in town.broker.workers("gated")), "it tells the broker"
    )
    hasty.signal(signal.SIGTERM)
    assert hasty.ended()[0] == 143
    heir = town.add_worker()
    town.gate.open()
    assert call.result(TIMEOUT_S).frames == [b"x", b"%d" % heir.pid]


def test_idle_processes_end_at_once(town: Town) -> None:
    worker = town.add_worker()
    worker.signal(signal.SIGTERM)
    assert worker.ended() == (0, "")
    town.broker.await_workers("gated", 0)
    town.broker.signal(signal.SIGTERM)
    assert town.broker.ended() == (0, "")
