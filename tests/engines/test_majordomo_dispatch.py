"""The dispatch of requests to workers of MDP 0.3: redelivery, deadlines and leases."""

from __future__ import annotations

import pytest
from tests.spec.requirement import requirement
from tests.support.broker import BrokerBench

from requite.engine import Cause, Received
from requite.protocols.majordomo.wire import (
    NOT_IDEMPOTENT,
    ClientFinal,
    ClientHeartbeat,
    Disconnect,
    WorkerCancel,
    WorkerHeartbeat,
    WorkerPartial,
)
from requite.request import Status


# --- redelivery -----------------------------------------------------------------------------------
def test_requests_of_a_lost_worker_are_redelivered_first_and_in_order():
    bench = BrokerBench()
    bench.worker("w1", capacity=2)
    for n in range(3):
        bench.request("c", n, b"%d" % n)
    bench.lose("w1")
    bench.worker("w2", capacity=3)
    assert [(r.body[0], r.attempt) for r in bench.requests("w2")] == [
        (b"0", 2),
        (b"1", 2),
        (b"2", 1),
    ]


@requirement("mdp03:worker-lease")
def test_a_request_whose_lease_expires_is_redelivered_and_its_late_reply_dropped():
    bench = BrokerBench()
    bench.worker("w1", lease_ms=2000)
    bench.worker("w2")
    bench.request("c", 1)
    bench.keep_alive(1.5, "w1", "w2")
    assert bench.requests("w2") == []
    bench.keep_alive(1.0, "w1", "w2")
    assert bench.sent("w1", WorkerCancel) == [WorkerCancel(1)]
    assert [r.attempt for r in bench.requests("w2")] == [2]
    bench.final("w1", b"late")
    assert bench.finals("c") == []
    bench.final("w2", b"good")
    assert bench.finals("c") == [ClientFinal(b"", [b"good"], 1, 0, 2)]
    bench.assert_idle()


@requirement("mdp03:worker-lost", "mdp03:attempts")
@pytest.mark.parametrize("attempts_max", [1, 3])
def test_a_request_that_loses_every_worker_is_poisoned_after_attempts_max(attempts_max: int):
    bench = BrokerBench(attempts_max=attempts_max)
    bench.request("c", 1)
    for n in range(attempts_max):
        assert bench.finals("c") == []
        bench.worker(f"w{n}")
        assert [request.attempt for request in bench.requests(f"w{n}")] == [n + 1]
        bench.lose(f"w{n}")
    (final,) = bench.finals("c")
    assert (final.status, final.attempts) == (Status.POISONED, attempts_max)
    bench.worker("last")
    assert bench.requests("last") == []
    bench.assert_idle()


@requirement("mdp03:worker-lost")
@pytest.mark.parametrize("cause", ["flag", "partial"])
def test_a_request_that_is_not_idempotent_ends_with_worker_lost(cause: str):
    bench = BrokerBench()
    bench.worker("w1")
    bench.worker("w2")
    bench.request("c", 1, flags=NOT_IDEMPOTENT if cause == "flag" else 0)
    if cause == "partial":
        bench.say("w1", WorkerPartial, b"", [b"p"], 1)
    bench.lose("w1")
    assert [final.status for final in bench.finals("c")] == [Status.WORKER_LOST]
    assert bench.requests("w2") == []


def test_the_request_of_a_worker_that_disconnects_is_redelivered():
    bench = BrokerBench()
    bench.worker("w1")
    bench.worker("w2")
    bench.request("c", 1)
    bench.say("w1", Disconnect)
    assert len(bench.requests("w2")) == 1
    bench.say("w1", WorkerHeartbeat, 1000)
    assert bench.sent("w1", Disconnect) == []  # a worker that has sent DISCONNECT gets none


# --- timeouts -------------------------------------------------------------------------------------
@requirement("mdp03:client-timeout", "mdp03:attempts")
def test_a_queued_request_that_expires_never_starts():
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1)
    bench.request("c", 2, timeout_ms=500)
    bench.advance(0.4)
    assert bench.finals("c") == []
    bench.keep_alive(0.6, "w")
    assert [(f.request_id, f.status, f.attempts) for f in bench.finals("c")] == [
        (2, Status.EXPIRED, 0)
    ]
    bench.final("w")
    assert len(bench.requests("w")) == 1
    bench.assert_idle()


@requirement("mdp03:client-timeout", "mdp03:worker-cancel", "mdp03:worker-stale")
def test_a_running_request_that_expires_is_cancelled_and_frees_its_slot_with_the_final():
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1, timeout_ms=500)
    bench.keep_alive(1.0, "w")
    assert bench.sent("w", WorkerCancel) == [WorkerCancel(1)]
    bench.request("c", 2)
    assert len(bench.requests("w")) == 1
    bench.final("w", status=Status.CANCELLED)
    assert len(bench.requests("w")) == 2
    assert [(f.status, f.attempts) for f in bench.finals("c")] == [(Status.EXPIRED, 1)]


def test_a_final_at_the_deadline_before_the_brokers_timer_fires_means_expired():
    """Both broker and worker time the deadline; the worker's timer may fire first."""
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1, timeout_ms=500)
    bench.now += 0.5
    bench.final("w", b"its deadline passed", Status.CANCELLED)
    assert [final.status for final in bench.finals("c")] == [Status.EXPIRED]
    bench.assert_idle()


def test_requests_for_a_service_without_workers_wait_for_service_grace_s():
    bench = BrokerBench(service_grace_s=2.0)
    bench.request("c", 1, service=b"nobody")
    bench.advance(1.9)
    assert bench.finals("c") == []
    bench.advance(0.2)
    (final,) = bench.finals("c")
    assert (final.status, final.attempts) == (Status.NO_SERVICE, 0)
    assert b"nobody" in final.body[0]


def test_service_grace_restarts_when_the_last_worker_leaves():
    bench = BrokerBench(service_grace_s=2.0)
    bench.worker("w")
    bench.request("c", 1)
    bench.request("c", 2)
    bench.keep_alive(5.0, "w")
    bench.lose("w")
    bench.advance(1.9)
    assert bench.finals("c") == []
    bench.advance(0.2)
    assert {final.status for final in bench.finals("c")} == {Status.NO_SERVICE}
    bench.assert_idle()


def test_services_without_workers_are_dropped_after_service_ttl_s():
    bench = BrokerBench(service_ttl_s=5.0)
    bench.worker("w")
    bench.keep_alive(20.0, "w")
    assert b"echo" in bench.broker.services
    bench.lose("w")
    bench.advance(4.9)
    assert b"echo" in bench.broker.services
    bench.advance(0.2)
    assert bench.broker.services == {}
    assert bench.broker.deadline() is None


def test_services_may_be_dropped_when_no_request_waits():
    bench = BrokerBench(service_ttl_s=0.0, service_grace_s=1.0)
    bench.request("c", 1)
    bench.advance(0.9)
    assert b"echo" in bench.broker.services
    bench.advance(0.2)
    assert [final.status for final in bench.finals("c")] == [Status.NO_SERVICE]
    assert bench.broker.services == {}


def test_a_silent_worker_is_disconnected_and_its_request_redelivered():
    bench = BrokerBench()
    bench.worker("w1")
    bench.worker("w2")
    bench.request("c", 1)
    bench.keep_alive(4.0, "w2")
    assert "silent" in bench.disconnected["w1"]
    assert bench.causes["w1"] is Cause.SILENT
    assert isinstance(bench.sent("w1")[-1], Disconnect)
    assert len(bench.requests("w2")) == 1


@requirement("mdp03:worker-heartbeat")
def test_the_longer_interval_applies_to_both():
    bench = BrokerBench()
    bench.worker("slow", interval_ms=10_000)
    bench.worker("hasty", interval_ms=10)
    bench.advance(3.1)
    assert list(bench.disconnected) == ["hasty"]  # three of the broker's intervals of 1 s
    bench.advance(25.9)
    assert "slow" not in bench.disconnected
    assert len(bench.sent("slow", WorkerHeartbeat)) == 3  # the confirmation, then one per 10 s
    bench.advance(2.0)
    assert "slow" in bench.disconnected


def test_silence_does_not_count_after_the_broker_itself_was_frozen():
    bench = BrokerBench()
    bench.worker("w")
    bench.freeze(60.0)
    assert bench.disconnected == {}
    bench.advance(5.0)
    assert "w" in bench.disconnected


@requirement("mdp03:client-slow")
def test_part_of_a_message_counts_as_a_heartbeat():
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1)
    for _ in range(20):
        bench.advance(0.5)
        bench.feed(Received("w", []))
        bench.feed(Received("c", []))
    assert bench.disconnected == {}
    assert len(bench.sent("c", ClientHeartbeat)) == 10  # one per interval


def test_a_new_peer_may_send_its_first_message_in_parts():
    bench = BrokerBench()
    bench.client("c")
    bench.feed(Received("c", []))
    bench.request("c", 1)
    assert bench.disconnected == {}
