"""Invariant I4 with real processes: workers and brokers are killed, and no effect happens twice."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from tests.support.live import BrokerProcess, Process, eventually
from tests.support.once import Ledger, OnceProcess

import requite

pytestmark = pytest.mark.e2e

INTERVAL = ("--heartbeat-interval", "0.2", "--liveness", "3")
TIMEOUT_S = 30.0
CALLERS = 8
CALLS = 40
# REQUITE_SIM_SEEDS multiplies the calls and the kills.
TIMES = int(os.environ.get("REQUITE_SIM_SEEDS", "1"))
KILLS = 5 * TIMES


class DedupCluster:
    """A broker, and a worker with its folder of replies; both can be killed and restarted."""

    def __init__(self, folder: Path, processes: list[Process], service: str) -> None:
        self.ledger = Ledger(folder)
        self.folder = folder
        self._processes = processes
        self._service = service
        self.broker = self._own(BrokerProcess(*INTERVAL))
        self.start_worker()

    def _own(self, process: Any) -> Any:
        self._processes.append(process)
        return process

    def start_worker(self) -> OnceProcess:
        worker = self._own(self.ledger.worker(self.broker.url, *INTERVAL, service=self._service))
        worker.await_start()
        self.worker = worker
        return worker

    def kill_worker(self) -> None:
        self.worker.kill()
        self.start_worker()

    def kill_broker(self) -> None:
        self.broker.forget_observer()
        self.broker.kill()
        self.broker = self._own(BrokerProcess(*INTERVAL, bind=self.broker.endpoint))

    def call(self, body: str, **options: Any) -> str:
        with requite.Client(self.broker.url, service=self._service, timeout=TIMEOUT_S) as client:
            key = options.pop("key", body.encode())
            return client.call(body.encode(), idempotency_key=key, **options).body.decode()


@pytest.fixture
def cluster(tmp_path: Path, processes: list[Process]) -> DedupCluster:
    return DedupCluster(tmp_path, processes, "once")


@pytest.fixture
def gated(tmp_path: Path, processes: list[Process]) -> DedupCluster:
    return DedupCluster(tmp_path, processes, "gated")


@pytest.mark.slow
@pytest.mark.timeout(60 + 60 * TIMES)
def test_no_effect_happens_twice_despite_many_kills(cluster: DedupCluster) -> None:
    bodies = [f"call-{number}" for number in range(CALLS * TIMES)]
    with ThreadPoolExecutor(CALLERS) as pool:
        ends = [pool.submit(ask_until_answered, cluster, body) for body in bodies * 2]
        kill_at_random(cluster)
        replies = [end.result(TIMEOUT_S * TIMES) for end in ends]
    replies += [ask_until_answered(cluster, body) for body in bodies]
    effects = cluster.ledger.effects()
    assert effects.keys() <= set(bodies)
    assert all(len(words) == 1 for words in effects.values())
    # A worker killed between its record and its effect leaves a request in doubt without an effect.
    for body, reply in zip(bodies * 3, replies, strict=True):
        assert reply is None or [reply] == effects.get(body)
    assert sum(reply is not None for reply in replies) > len(replies) / 2


def ask_until_answered(cluster: DedupCluster, body: str) -> str | None:
    """Return the reply, or None if it is unknown whether the request has run."""
    try:
        return cluster.call(body)
    except requite.RemoteFailure as error:
        if "may have run" not in str(error):
            raise
        return None


def kill_at_random(cluster: DedupCluster) -> None:
    for number in range(KILLS):
        sleep(random.random() * 0.2)  # the test needs random moments
        if number % 3 == 2:
            cluster.kill_broker()
        else:
            cluster.kill_worker()


def test_a_stored_reply_survives_its_worker(cluster: DedupCluster) -> None:
    first = cluster.call("a")
    refuse_a_second_worker(cluster)
    cluster.kill_worker()
    assert cluster.call("a") == first
    assert cluster.ledger.effects() == {"a": [first]}


def test_a_request_whose_worker_is_killed_during_it_is_in_doubt(gated: DedupCluster) -> None:
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(gated.call, "a")
        eventually(lambda: "a" in gated.ledger.effects(), "the handler has had its effect")
        gated.kill_worker()  # the broker redelivers the request to the next worker
        with pytest.raises(requite.RemoteFailure, match="may have run"):
            call.result(TIMEOUT_S)
    (gated.folder / "open").touch()
    with pytest.raises(requite.RemoteFailure, match="may have run"):
        gated.call("a")
    assert len(gated.ledger.effects()["a"]) == 1


def test_a_handler_continues_while_its_broker_is_killed(gated: DedupCluster) -> None:
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(gated.call, "a", key=b"")
        eventually(lambda: "a" in gated.ledger.effects(), "the handler has had its effect")
        gated.kill_broker()  # the client resends the request, which waits for the same handler
        (gated.folder / "open").touch()
        assert [call.result(TIMEOUT_S)] == gated.ledger.effects()["a"]


def refuse_a_second_worker(cluster: DedupCluster) -> None:
    """Check that a second worker on the folder exits: it could not read the first one's replies."""
    second = cluster.ledger.worker(cluster.broker.url)
    code, errors = second.ended()
    second.dispose()
    assert code != 0
    assert "is in use by process" in errors
    assert "Traceback" not in errors
