"""I4 with real processes: workers and brokers are killed, and no effect happens twice."""

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
# Longer with REQUITE_SIM_SEEDS, like everything that goes on for as long as one likes.
TIMES = int(os.environ.get("REQUITE_SIM_SEEDS", "1"))
KILLS = 5 * TIMES


class Shop:
    """A broker, and a worker on a folder; both can be killed and started again."""

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

    def call(self, body: str, **how: Any) -> str:
        with requite.Client(self.broker.url, service=self._service, timeout=TIMEOUT_S) as client:
            key = how.pop("key", body.encode())
            return client.call(body.encode(), idempotency_key=key, **how).body.decode()


@pytest.fixture
def shop(tmp_path: Path, processes: list[Process]) -> Shop:
    return Shop(tmp_path, processes, "once")


@pytest.fixture
def gated(tmp_path: Path, processes: list[Process]) -> Shop:
    return Shop(tmp_path, processes, "gated")


@pytest.mark.slow
@pytest.mark.timeout(60 + 60 * TIMES)
def test_killed_again_and_again_no_effect_happens_twice(shop: Shop) -> None:
    bodies = [f"call-{number}" for number in range(CALLS * TIMES)]
    with ThreadPoolExecutor(CALLERS) as pool:
        ends = [pool.submit(ask_until_answered, shop, body) for body in bodies * 2]
        kill_at_random(shop)
        replies = [end.result(TIMEOUT_S * TIMES) for end in ends]
    replies += [ask_until_answered(shop, body) for body in bodies]
    effects = shop.ledger.effects()
    assert effects.keys() <= set(bodies)
    assert all(len(words) == 1 for words in effects.values())
    # A worker killed between its note and its effect leaves a request in doubt without one.
    for body, reply in zip(bodies * 3, replies, strict=True):
        assert reply is None or [reply] == effects.get(body)
    assert sum(reply is not None for reply in replies) > len(replies) / 2


def ask_until_answered(shop: Shop, body: str) -> str | None:
    """Return the reply; None where nobody knows whether the request has run."""
    try:
        return shop.call(body)
    except requite.RemoteFailure as error:
        if "may have run" not in str(error):
            raise
        return None


def kill_at_random(shop: Shop) -> None:
    for number in range(KILLS):
        sleep(random.random() * 0.2)  # any moment: that is what is tested
        if number % 3 == 2:
            shop.kill_broker()
        else:
            shop.kill_worker()


def test_a_stored_reply_outlives_the_worker(shop: Shop) -> None:
    first = shop.call("a")
    refuse_a_second_worker(shop)
    shop.kill_worker()
    assert shop.call("a") == first
    assert shop.ledger.effects() == {"a": [first]}


def test_a_request_whose_worker_was_killed_in_the_middle_is_in_doubt(gated: Shop) -> None:
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(gated.call, "a")
        eventually(lambda: "a" in gated.ledger.effects(), "the handler has had its effect")
        gated.kill_worker()  # the broker gives the request to the next worker
        with pytest.raises(requite.RemoteFailure, match="may have run"):
            call.result(TIMEOUT_S)
    (gated.folder / "open").touch()
    with pytest.raises(requite.RemoteFailure, match="may have run"):
        gated.call("a")
    assert len(gated.ledger.effects()["a"]) == 1


def test_a_handler_goes_on_while_its_broker_is_killed(gated: Shop) -> None:
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(gated.call, "a", key=b"")
        eventually(lambda: "a" in gated.ledger.effects(), "the handler has had its effect")
        gated.kill_broker()  # the client sends the call again, and it waits for the same handler
        (gated.folder / "open").touch()
        assert [call.result(TIMEOUT_S)] == gated.ledger.effects()["a"]


def refuse_a_second_worker(shop: Shop) -> None:
    """Two workers on one folder would not know of each other's replies."""
    second = shop.ledger.worker(shop.broker.url)
    code, errors = second.ended()
    second.dispose()
    assert code != 0
    assert "is in use by process" in errors
    assert "Traceback" not in errors
