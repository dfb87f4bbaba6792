"""Processes that are killed, frozen and drained: every call still ends once, as specified.

Brokers and workers are processes of the command `requite`; this process makes the calls. Handlers
wait at a gate (`tests/support/gate.py`), so that processes are killed during a request without
sleeps.
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


class Cluster:
    """A broker process with worker processes, and calls to them from threads."""

    def __init__(self, gate: Gate, processes: list[Process], pool: ThreadPoolExecutor) -> None:
        self.gate = gate
        self._processes = processes
        self._pool = pool
        self.broker = self._own(BrokerProcess(*INTERVAL))

    def _own(self, process: Any) -> Any:
        self._processes.append(process)
        return process

    def restart_broker(self, *options: str) -> None:
        """Start another broker at the address of the killed one."""
        self.broker.forget_observer()
        again = BrokerProcess(*INTERVAL, *options, bind=self.broker.endpoint)
        assert again.endpoint == self.broker.endpoint
        self.broker = self._own(again)

    def add_worker(self, *options: str, services: str = "gated") -> WorkerProcess:
        """Start a worker; return it once it has registered."""
        return self.add_workers(1, *options, services=services)[0]

    def add_workers(
        self, count: int, *options: str, services: str = "gated"
    ) -> list[WorkerProcess]:
        """Start workers concurrently; return them once all have registered."""
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

    def call(self, body: str, service: str = "gated", **options: Any) -> Future[requite.Reply]:
        """Make a call in a thread with a new client."""

        def make() -> requite.Reply:
            with requite.Client(self.broker.url, service=service, timeout=TIMEOUT_S) as client:
                return client.call(body.encode(), **options)

        return self._pool.submit(make)

    def by_pid(self, *workers: WorkerProcess) -> Callable[[int], WorkerProcess]:
        """Return a function that finds the worker with a process id."""
        return {worker.pid: worker for worker in workers}.__getitem__


@pytest.fixture
def cluster(tmp_path: Path, processes: list[Process]) -> Any:
    """A broker without workers yet."""
    gate = Gate(tmp_path)
    with ThreadPoolExecutor(16) as pool:
        yield Cluster(gate, processes, pool)
        gate.open()


def other(one: WorkerProcess, *all_of_them: WorkerProcess) -> WorkerProcess:
    """Return the first worker that is not `one`."""
    return next(worker for worker in all_of_them if worker is not one)


# --- the broker is killed -------------------------------------------------------------------------
def test_calls_survive_a_kill_of_the_broker(cluster: Cluster) -> None:
    """40 calls are outstanding, 8 of them queued; each is answered once, and workers reconnect."""
    cluster.add_workers(2)
    bodies = [f"{who}{number}" for who in ("sync", "async") for number in range(20)]
    with ThreadPoolExecutor(2) as pool:
        outcomes = [
            pool.submit(call_with_client, cluster.broker.url, bodies[:20]),
            pool.submit(asyncio.run, call_with_async_client(cluster.broker.url, bodies[20:])),
        ]
        cluster.broker.await_service("gated", in_progress=32, queued=8)
        cluster.broker.kill()
        cluster.restart_broker()
        cluster.broker.await_workers("gated", 2)
        cluster.gate.open()
        replies = [reply for outcome in outcomes for reply in outcome.result(TIMEOUT_S)]
    assert [reply.frames[0].decode() for reply in replies] == bodies
    assert {reply.attempts for reply in replies} == {2}
    cluster.broker.await_service("gated", workers=2, in_progress=0, queued=0, replied=40)
    assert cluster.broker.stats()["pending"] == 0


def call_with_client(url: str, bodies: list[str]) -> list[requite.Reply]:
    """Make all calls at the same time with one blocking client."""
    with requite.Client(url, service="gated", timeout=TIMEOUT_S) as client:
        return list(client.map(map(str.encode, bodies), concurrency=len(bodies)))


async def call_with_async_client(url: str, bodies: list[str]) -> list[requite.Reply]:
    """Make all calls at the same time with one asynchronous client."""
    async with requite.AsyncClient(url, service="gated", timeout=TIMEOUT_S) as client:
        return await asyncio.gather(*(client.call(body.encode()) for body in bodies))


def test_a_non_idempotent_call_fails_when_its_broker_is_killed(cluster: Cluster) -> None:
    cluster.add_worker()
    call = cluster.call("once", idempotent=False)
    cluster.gate.await_run("once")
    cluster.broker.kill()
    with pytest.raises(requite.TransportError, match="not idempotent") as caught:
        call.result(TIMEOUT_S)
    assert caught.value.may_have_executed
    assert caught.value.attempts == 1
    cluster.restart_broker()
    cluster.gate.open()
    cluster.broker.await_workers("gated", 1)
    assert cluster.call("after").result(TIMEOUT_S).frames[0] == b"after"
    assert len(cluster.gate.runs("once")) == 1


def test_a_worker_cancels_requests_from_an_earlier_connection(cluster: Cluster) -> None:
    """[worker-reconnect]: a worker cancels requests from before the kill of the broker."""
    worker = cluster.add_worker()
    call = cluster.call("x")
    cluster.gate.await_run("x")
    cluster.broker.kill()
    assert cluster.gate.await_run("x", "given-up") == worker.pid
    cluster.restart_broker()
    cluster.gate.open()
    assert call.result(TIMEOUT_S).frames[0] == b"x"


def test_a_frozen_broker_expires_no_worker_when_it_resumes(cluster: Cluster) -> None:
    """After its own pause, the broker does not expire workers whose heartbeats it has not read."""
    worker = cluster.add_worker("--heartbeat-interval", "0.3", "--liveness", "100")
    call = cluster.call("x")
    cluster.gate.await_run("x")
    cluster.broker.signal(signal.SIGSTOP)
    eventually(lambda: is_stopped(cluster.broker), "the broker is frozen")
    sleep(1.5 * LOST_AFTER_S)  # the length of the pause
    cluster.broker.signal(signal.SIGCONT)
    cluster.gate.open()
    assert call.result(TIMEOUT_S).frames == [b"x", b"%d" % worker.pid]
    cluster.broker.await_service("gated", workers=1, redelivered=0)


def is_stopped(process: Process) -> bool:
    """Return whether a process is stopped by a signal."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


# --- workers are killed ---------------------------------------------------------------------------
def test_the_request_of_a_killed_worker_is_redelivered_to_another(cluster: Cluster) -> None:
    first, second = cluster.add_workers(2)
    call = cluster.call("x")
    victim = cluster.by_pid(first, second)(cluster.gate.await_run("x"))
    successor = other(victim, first, second)
    victim.kill()
    eventually(lambda: successor.pid in cluster.gate.runs("x"), "the other worker has it")
    cluster.gate.open()
    reply = call.result(TIMEOUT_S)
    assert reply.frames == [b"x", b"%d" % successor.pid]
    cluster.broker.await_service("gated", workers=1, redelivered=1, replied=1)


def test_a_non_idempotent_request_fails_when_its_worker_is_killed(cluster: Cluster) -> None:
    first, second = cluster.add_workers(2)
    call = cluster.call("x", idempotent=False)
    victim = cluster.by_pid(first, second)(cluster.gate.await_run("x"))
    victim.kill()
    with pytest.raises(requite.WorkerLost, match="not idempotent") as caught:
        call.result(TIMEOUT_S)
    assert caught.value.may_have_executed
    assert len(cluster.gate.runs("x")) == 1


def test_a_request_that_kills_three_workers_is_poisoned(cluster: Cluster) -> None:
    victims = cluster.add_workers(3, services="crash")
    survivor = cluster.add_worker()
    with pytest.raises(requite.Poisoned, match="dispatched 3 times") as caught:
        cluster.call("x", "crash").result(TIMEOUT_S)
    assert caught.value.may_have_executed
    assert sorted(cluster.gate.runs("x")) == sorted(victim.pid for victim in victims)
    assert [victim.ended()[0] for victim in victims] == [-signal.SIGKILL] * 3
    cluster.gate.open()
    assert cluster.call("y").result(TIMEOUT_S).frames == [b"y", b"%d" % survivor.pid]


def test_a_frozen_worker_loses_its_request_and_registers_again(cluster: Cluster) -> None:
    """After SIGCONT, the worker registers again, and its late reply is dropped."""
    first, second = cluster.add_workers(2)
    call = cluster.call("x")
    frozen = cluster.by_pid(first, second)(cluster.gate.await_run("x"))
    successor = other(frozen, first, second)
    frozen.signal(signal.SIGSTOP)
    eventually(lambda: successor.pid in cluster.gate.runs("x"), "the other worker has it")
    cluster.gate.open()
    assert call.result(TIMEOUT_S).frames == [b"x", b"%d" % successor.pid]
    cluster.broker.await_service("gated", workers=1, redelivered=1, replied=1)
    frozen.signal(signal.SIGCONT)
    cluster.broker.await_workers("gated", 2)
    successor.kill()
    cluster.broker.await_workers("gated", 1)
    assert cluster.call("y").result(TIMEOUT_S).frames == [b"y", b"%d" % frozen.pid]
    cluster.broker.await_service("gated", replied=2)


# --- a client is killed ---------------------------------------------------------------------------
def test_the_request_of_a_killed_client_is_cancelled(
    cluster: Cluster, processes: list[Process]
) -> None:
    worker = cluster.add_worker()
    caller = Process("-m", "requite.cli", "call", f"{cluster.broker.url}/gated", "x")
    processes.append(caller)
    cluster.gate.await_run("x")
    caller.kill()
    assert cluster.gate.await_run("x", "given-up") == worker.pid
    cluster.broker.await_service("gated", cancelled=1, in_progress=0, queued=0)


# --- SIGTERM --------------------------------------------------------------------------------------
def test_sigterm_drains_a_worker(cluster: Cluster) -> None:
    """The worker finishes its request; later requests go to another worker."""
    leaving = cluster.add_worker()
    call = cluster.call("x")
    cluster.gate.await_run("x")
    leaving.signal(signal.SIGTERM)
    eventually(
        lambda: any(row["draining"] for row in cluster.broker.workers("gated")),
        "it tells the broker",
    )
    staying = cluster.add_worker()
    later = cluster.call("y")
    assert cluster.gate.await_run("y") == staying.pid
    cluster.gate.open()
    assert call.result(TIMEOUT_S).frames == [b"x", b"%d" % leaving.pid]
    assert later.result(TIMEOUT_S).frames == [b"y", b"%d" % staying.pid]
    assert leaving.ended() == (0, "")
    cluster.broker.await_service("gated", workers=1, redelivered=0, replied=2)


def test_sigterm_drains_a_broker(cluster: Cluster) -> None:
    """Pending requests finish; later ones do not start, but wait for the next broker."""
    worker = cluster.add_worker()
    call = cluster.call("x")
    cluster.gate.await_run("x")
    cluster.broker.signal(signal.SIGTERM)
    eventually(lambda: cluster.broker.observer.ask(b"mmi.ping")["draining"], "it drains")
    late = cluster.call("y")
    with (
        requite.Client(cluster.broker.url) as hasty,
        pytest.raises(requite.CallTimeout, match="has not run") as caught,
    ):
        hasty.call(b"z", service="gated", timeout=1.0)
    assert not caught.value.may_have_executed
    cluster.gate.open()
    assert call.result(TIMEOUT_S).frames == [b"x", b"%d" % worker.pid]
    assert cluster.broker.ended() == (0, "")
    assert not cluster.gate.runs("y")
    cluster.restart_broker()
    assert late.result(TIMEOUT_S).frames == [b"y", b"%d" % worker.pid]
    assert not cluster.gate.runs("z")


CALLERS = 64


class Load:
    """Calls that continue, `CALLERS` at a time, until `stopping` is set."""

    def __init__(self) -> None:
        self.answered = 0
        self.stopping = False

    def await_more(self, calling: Future[None]) -> None:
        """Wait until `CALLERS` more calls are answered, or one has failed."""
        enough = self.answered + CALLERS
        eventually(lambda: self.answered > enough or calling.done(), "calls are answered")

    def name_calls(self) -> Iterator[bytes]:
        """Yield the bodies of the calls until `stopping` is set."""
        for number in count():
            if self.stopping:
                return
            yield b"%d" % number

    def blocking(self, url: str) -> None:
        """Make calls with the blocking client; raise the error of the first call that fails."""
        with requite.Client(url, service="plain", timeout=TIMEOUT_S) as client:
            for _ in client.map(self.name_calls(), concurrency=CALLERS):
                self.answered += 1

    def asynchronous(self, url: str) -> None:
        """Make calls with the asynchronous client; raise the error of the first one that fails."""
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


@pytest.mark.parametrize("kind", ["blocking", "asynchronous"])
def test_a_broker_is_restarted_under_load_and_no_call_fails(kind: str, cluster: Cluster) -> None:
    cluster.add_worker(services="plain")
    load = Load()
    with ThreadPoolExecutor(1) as pool:
        calling = pool.submit(getattr(load, kind), cluster.broker.url)
        try:
            for _ in range(3):
                load.await_more(calling)
                cluster.broker.signal(signal.SIGTERM)
                assert cluster.broker.ended() == (0, "")
                cluster.restart_broker()
            load.await_more(calling)
        finally:
            load.stopping = True
        calling.result(TIMEOUT_S)


def test_requests_beyond_the_drain_timeout_run_at_the_next_broker(cluster: Cluster) -> None:
    """After `--drain-timeout`, idempotent requests are resent; others fail and may have run."""
    cluster.broker.kill()
    cluster.restart_broker("--drain-timeout", "0.2")
    cluster.add_worker()
    again, once = cluster.call("again"), cluster.call("once", idempotent=False)
    cluster.gate.await_run("again")
    cluster.gate.await_run("once")
    cluster.broker.signal(signal.SIGTERM)
    assert cluster.broker.ended() == (0, "")
    with pytest.raises(requite.TransportError, match="not idempotent") as caught:
        once.result(TIMEOUT_S)
    assert caught.value.may_have_executed
    cluster.restart_broker()
    cluster.gate.open()
    assert again.result(TIMEOUT_S).frames[0] == b"again"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_stops_a_broker_at_once(number: signal.Signals, cluster: Cluster) -> None:
    cluster.add_worker()
    call = cluster.call("x", idempotent=False)
    cluster.gate.await_run("x")
    cluster.broker.signal(number)
    eventually(lambda: cluster.broker.observer.ask(b"mmi.ping")["draining"], "it drains")
    cluster.broker.signal(number)
    code, errors = cluster.broker.ended()
    assert code == {signal.SIGTERM: 143, signal.SIGINT: 130}[number]
    assert "Traceback" not in errors
    with pytest.raises(requite.TransportError):
        call.result(TIMEOUT_S)


def test_a_second_signal_stops_a_worker_at_once(cluster: Cluster) -> None:
    """Its request is redelivered to another worker."""
    hasty = cluster.add_worker()
    call = cluster.call("x")
    cluster.gate.await_run("x")
    hasty.signal(signal.SIGTERM)
    eventually(
        lambda: any(row["draining"] for row in cluster.broker.workers("gated")),
        "it tells the broker",
    )
    hasty.signal(signal.SIGTERM)
    assert hasty.ended()[0] == 143
    successor = cluster.add_worker()
    cluster.gate.open()
    assert call.result(TIMEOUT_S).frames == [b"x", b"%d" % successor.pid]


def test_idle_processes_exit_at_once(cluster: Cluster) -> None:
    worker = cluster.add_worker()
    worker.signal(signal.SIGTERM)
    assert worker.ended() == (0, "")
    cluster.broker.await_workers("gated", 0)
    cluster.broker.signal(signal.SIGTERM)
    assert cluster.broker.ended() == (0, "")
