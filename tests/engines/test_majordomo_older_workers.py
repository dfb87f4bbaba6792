"""The broker engine and workers of MDP 0.1 and 0.2: when a silent worker times out.

A single-threaded worker, such as the Guide's, sends no heartbeats while a request runs, and one
every 2.5 s while it is idle.
"""

from __future__ import annotations

from math import inf

import pytest
from tests.spec.requirement import requirement
from tests.support.broker import BrokerBench

from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.protocols.majordomo.wire import WorkerHeartbeat

older = pytest.mark.parametrize("version", ["0.1", "0.2"])


def bench_with_busy_worker(version: str, **policy: float) -> BrokerBench:
    """Return a broker whose worker w has just been sent a request; worker v is idle."""
    bench = BrokerBench(**policy)
    bench.client("c", version)
    bench.worker("w", version=version)
    bench.request("c", 1, b"work")
    assert len(bench.requests("w")) == 1
    bench.worker("v")
    return bench


@older
def test_a_busy_worker_may_be_silent_for_five_seconds(version):
    bench = bench_with_busy_worker(version)
    bench.keep_alive(5.0, "v")
    assert "w" not in bench.disconnected
    bench.final("w", b"done")
    assert [final.body for final in bench.finals("c")] == [[b"done"]]
    assert bench.requests("v") == []


@requirement("mdp01:heartbeat:gone", "mdp02:heartbeat:gone")
@older
def test_a_busy_worker_times_out_after_the_limit_for_busy_ones(version):
    bench = bench_with_busy_worker(version)
    bench.keep_alive(299.5, "v")
    assert "w" not in bench.disconnected
    bench.keep_alive(1.0, "v")
    assert "silent for 300.00 s" in bench.disconnected["w"]
    assert [request.body for request in bench.requests("v")] == [[b"work"]]


@older
def test_the_limit_counts_from_the_request_or_a_later_message(version):
    bench = BrokerBench(legacy_busy_timeout_s=20.0)
    bench.client("c", version)
    bench.worker("w", version=version)
    bench.advance(5.0)
    bench.request("c", 1)
    bench.advance(19.5)  # 24.5 s after its last message
    assert "w" not in bench.disconnected
    bench.say("w", WorkerHeartbeat, 0)
    bench.advance(19.9)
    assert "w" not in bench.disconnected
    bench.advance(0.2)
    assert "silent for 20.00 s" in bench.disconnected["w"]


@older
def test_the_request_of_a_lost_connection_is_redelivered_at_once(version):
    bench = bench_with_busy_worker(version)
    bench.lose("w")
    assert [request.body for request in bench.requests("v")] == [[b"work"]]


@older
def test_a_worker_whose_client_is_lost_stays_busy_until_it_replies(version):
    bench = bench_with_busy_worker(version)
    bench.lose("c")
    bench.keep_alive(200.0, "v")
    assert "w" not in bench.disconnected
    bench.final("w")
    bench.advance(7.6)
    assert "silent for 7.50 s" in bench.disconnected["w"]


@older
def test_the_idle_timeout_counts_from_the_final_reply(version):
    bench = bench_with_busy_worker(version)
    bench.keep_alive(100.0, "v")
    bench.final("w")
    bench.advance(7.4)
    assert "w" not in bench.disconnected
    bench.advance(0.2)
    assert "w" in bench.disconnected


@older
def test_a_worker_with_the_guides_heartbeat_interval_does_not_time_out(version):
    bench = BrokerBench()
    bench.worker("w", version=version)
    for _ in range(20):
        bench.advance(3.5)  # the Guide's API checks its clock once a second
        bench.say("w", WorkerHeartbeat, 0)
    assert not bench.disconnected


@older
@pytest.mark.parametrize(("interval_s", "liveness", "gone_s"), [(0.1, 3, 7.5), (5.0, 3, 15.0)])
def test_the_idle_timeout_is_the_guides_or_ours_if_longer(version, interval_s, liveness, gone_s):
    bench = BrokerBench(heartbeat=HeartbeatPolicy(interval_s, liveness))
    bench.worker("w", version=version)
    bench.advance(gone_s - 0.1)
    assert "w" not in bench.disconnected
    bench.advance(0.2)
    assert "w" in bench.disconnected


@older
def test_a_pause_of_the_broker_does_not_count_as_silence_of_a_busy_worker(version):
    bench = bench_with_busy_worker(version, legacy_busy_timeout_s=20.0)
    bench.freeze(100.0)  # 99 s of the pause count as absence of the broker
    bench.keep_alive(18.5, "v")
    assert not bench.disconnected
    bench.keep_alive(1.0, "v")
    assert "w" in bench.disconnected


def test_a_busy_worker_of_0_3_times_out_without_heartbeats():
    bench = bench_with_busy_worker("0.3")
    bench.keep_alive(3.5, "v")
    assert "silent for 3.00 s" in bench.disconnected["w"]
    assert len(bench.requests("v")) == 1


@older
def test_the_broker_sends_heartbeats_to_a_busy_worker(version):
    bench = bench_with_busy_worker(version)
    before = len(bench.sent("w"))
    bench.keep_alive(10.0, "v")
    assert len(bench.sent("w")) - before in (9, 10)


@pytest.mark.parametrize("limit_s", [0.0, -1.0, float("nan")])
def test_the_limit_must_be_positive(limit_s):
    with pytest.raises(ConfigurationError, match="legacy_busy_timeout_s must be positive"):
        BrokerPolicy(legacy_busy_timeout_s=limit_s)
    BrokerPolicy(legacy_busy_timeout_s=inf)
