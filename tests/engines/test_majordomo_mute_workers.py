"""The broker engine and workers of MDP 0.3 that take requests and never answer."""

from __future__ import annotations

import pytest
from tests.spec.requirement import requirement
from tests.support.broker import BrokerBench

from requite.errors import ConfigurationError
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.protocols.majordomo.wire import Disconnect, Progress, WorkerHeartbeat, WorkerPartial
from requite.request import Status

FOREVER_MS = 2**32 - 1


def expire(bench: BrokerBench, count: int, *, worker: str = "w", first: int = 0) -> None:
    """Let requests expire at the worker, one after the other, in 0.2 s each."""
    for n in range(first, first + count):
        bench.request("c", n, timeout_ms=100)
        bench.advance(0.2)
        if worker not in bench.disconnected:
            bench.say(worker, WorkerHeartbeat, 1000)


def mute(**policy: int) -> BrokerBench:
    """Return a broker with a worker of 1,000 places that is never heard but for heartbeats."""
    bench = BrokerBench(**{"worker_expired_max": 5, **policy})
    bench.worker("w", capacity=1000)
    return bench


# --- the attack -----------------------------------------------------------------------------------
def test_mute_workers_cannot_swallow_the_requests_of_a_service_for_long():
    bench = BrokerBench()
    for n in range(20):
        bench.worker(f"mute{n}", b"pay", capacity=65_535, interval_ms=FOREVER_MS)
    bench.worker("honest", b"pay", capacity=1)
    number = served = 0
    while len(bench.disconnected) < 20:
        number += 1
        assert number < 1000, "they still take requests"
        bench.request("c", number, service=b"pay", timeout_ms=50)
        if len(bench.requests("honest")) > served:
            served += 1
            bench.final("honest")
        bench.advance(0.1)
        bench.say("honest", WorkerHeartbeat, 1000)
        for name in {f"mute{n}" for n in range(20)} - bench.disconnected.keys():
            bench.say(name, WorkerHeartbeat, FOREVER_MS)
    assert all("without any answer" in reason for reason in bench.disconnected.values())
    assert "honest" not in bench.disconnected
    bench.request("c", 5000, service=b"pay")
    bench.final("honest")
    assert bench.finals("c")[-1].status == Status.OK


@requirement("mdp03:worker-capacity")
def test_the_broker_honours_a_part_of_an_enormous_capacity():
    bench = BrokerBench()
    bench.worker("w", capacity=65_535)
    for n in range(2000):
        bench.request("c", n)
    assert len(bench.requests("w")) == 1024
    (row,) = bench.broker.snapshot().workers
    assert row.capacity == 1024
    (warning,) = bench.warnings
    assert "65535" in warning.text
    assert "(worker_capacity_max, --worker-capacity-max)" in warning.text


@requirement("mdp03:worker-heartbeat")
@pytest.mark.parametrize(("announced_ms", "counted_s"), [(FOREVER_MS, 30.0), (0, 1.0)])
def test_an_announced_interval_counts_as_at_most_30_s(announced_ms, counted_s):
    bench = BrokerBench()
    bench.worker("w", interval_ms=announced_ms)
    bench.advance(3 * counted_s - 0.1)
    assert not bench.disconnected
    bench.advance(0.2)
    assert "silent" in bench.disconnected["w"]


# --- workers that never answer --------------------------------------------------------------------
@requirement("mdp03:worker-mute")
def test_a_worker_that_lets_requests_expire_without_any_answer_is_disconnected():
    bench = mute()
    bench.request("c", 1000)
    expire(bench, 15)
    assert not bench.disconnected, "it may be silent about requests for three intervals"
    bench.request("d", 1, b"safe", flags=1)
    expire(bench, 1, first=20)
    assert bench.disconnected["w"] == (
        "its worker let 16 requests in a row expire without any answer (worker_expired_max,"
        " --worker-expired-max)"
    )
    assert bench.sent("w")[-1] == Disconnect(bench.disconnected["w"].encode())
    assert bench.finals("d")[0].status == Status.WORKER_LOST
    bench.worker("other")
    assert bench.requests("other")[-1].attempt == 2, "its other request is redelivered"


@pytest.mark.parametrize("answer", ["final", "cancelled", "partial", "progress"])
@requirement("mdp03:worker-mute")
def test_any_answer_counts(answer):
    bench = mute()
    for n in range(40):
        expire(bench, 1, first=n)
        if n % 4 == 0:
            sent = bench.requests("w")[-1]
            if answer == "partial":
                bench.say("w", WorkerPartial, b"c", [b"x"], sent.dispatch_id)
            elif answer == "progress":
                bench.request("c", 1000 + n)
                bench.say("w", Progress, bench.requests("w")[-1].dispatch_id, 0)
            else:
                bench.final("w", status=Status.CANCELLED if answer == "cancelled" else Status.OK)
    assert not bench.disconnected


def test_many_requests_that_expire_at_once_are_no_evidence():
    """The worker answers each CANCEL, but cannot do so before the next request expires."""
    bench = mute()
    for round_ in range(20):
        for n in range(100):
            bench.request("c", 100 * round_ + n, timeout_ms=100)
        bench.keep_alive(0.5, "w")
        for nth in range(100):
            bench.final("w", nth=-1 - nth, status=Status.CANCELLED)
    assert not bench.disconnected


def test_a_pause_of_the_broker_is_no_evidence():
    bench = mute()
    expire(bench, 4)
    for n in range(10, 30):
        bench.request("c", n, timeout_ms=1000)
    bench.freeze(20.0)
    assert not bench.disconnected, "answers may be unread"


@pytest.mark.parametrize("name", ["worker_capacity_max", "worker_expired_max"])
def test_a_limit_is_at_least_one(name):
    with pytest.raises(ConfigurationError, match=name):
        BrokerPolicy(**{name: 0})
