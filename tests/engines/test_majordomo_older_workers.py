"""The broker engine and workers of MDP 0.1 and 0.2: when silence means that one is gone.

A single-threaded worker, such as the Guide's, sends no heartbeats while it works, and one every
2.5 s while it waits.
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


def busy(version: str, **policy: float) -> BrokerBench:
    """Return a broker whose worker, w, has had a request since just now; v waits for another."""
    bench = BrokerBench(**policy)
    bench.client("c", version)
    bench.worker("w", version=version)
    bench.request("c", 1, b"work")
    assert len(bench.requests("w")) == 1
    bench.worker("v")
    return bench


@older
def test_a_worker_that_works_for_five_seconds_without_a_word_keeps_its_request(version):
    bench = busy(version)
    bench.keep_alive(5.0, "v")
    assert "w" not in bench.disconnected
    bench.final("w", b"done")
    assert [final.body for final in bench.finals("c")] == [[b"done"]]
    assert bench.requests("v") == []


@requirement("mdp01:heartbeat:gone", "mdp02:heartbeat:gone")
@older
def test_a_busy_worker_is_gone_after_the_limit_for_busy_ones(version):
    bench = busy(version)
    bench.keep_alive(299.5, "v")
    assert "w" not in bench.disconnected
    bench.keep_alive(1.0, "v")
    assert "silent for 300.00 s" in bench.disconnected["w"]
    assert [request.body for request in bench.requests("v")] == [[b"work"]]


@older
def test_the_limit_counts_from_the_request_or_from_the_last_word_since(version):
    bench = BrokerBench(legacy_busy_timeout_s=20.0)
    bench.client("c", version)
    bench.worker("w", version=version)
    bench.advance(5.0)
    bench.request("c", 1)
    bench.advance(19.5)  # 24.5 s after its last word
    assert "w" not in bench.disconnected
    bench.say("w", WorkerHeartbeat, 0)
    bench.advance(19.9)
    assert "w" not in bench.disconnected
    bench.advance(0.2)
    assert "silent for 20.00 s" in bench.disconnected["w"]


@older
def test_a_lost_connection_counts_at_once(version):
    bench = busy(version)
    bench.lose("w")
    assert [request.body for request in bench.requests("v")] == [[b"work"]]


@older
def test_a_worker_whose_request_was_withdrawn_is_busy_until_it_answers(version):
    bench = busy(version)
    bench.lose("c")
    bench.keep_alive(200.0, "v")
    assert "w" not in bench.disconnected
    bench.final("w")
    bench.advance(7.6)
    assert "silent for 7.50 s" in bench.disconnected["w"]


@older
def test_the_rule_for_idle_workers_counts_from_the_final_reply(version):
    bench = busy(version)
    bench.keep_alive(100.0, "v")
    bench.final("w")
    bench.advance(7.4)
    assert "w" not in bench.disconnected
    bench.advance(0.2)
    assert "w" in bench.disconnected


@older
def test_a_worker_that_beats_at_the_pace_of_the_guide_stays(version):
    bench = BrokerBench()
    bench.worker("w", version=version)
    for _ in range(20):
        bench.advance(3.5)  # the Guide's API looks at its clock once a second at our pace
        bench.say("w", WorkerHeartbeat, 0)
    assert not bench.disconnected


@older
@pytest.mark.parametrize(("interval_s", "liveness", "gone_s"), [(0.1, 3, 7.5), (5.0, 3, 15.0)])
def test_an_idle_worker_has_the_guides_time_or_ours_if_that_is_more(
    version, interval_s, liveness, gone_s
):
    bench = BrokerBench(heartbeat=HeartbeatPolicy(interval_s, liveness))
    bench.worker("w", version=version)
    bench.advance(gone_s - 0.1)
    assert "w" not in bench.disconnected
    bench.advance(0.2)
    assert "w" in bench.disconnected


@older
def test_a_pause_of_the_brokers_own_does_not_count_against_a_busy_worker(version):
    bench = busy(version, legacy_busy_timeout_s=20.0)
    bench.freeze(100.0)  # for 99 s of which nobody could be heard
    bench.keep_alive(18.5, "v")
    assert not bench.disconnected
    bench.keep_alive(1.0, "v")
    assert "w" in bench.disconnected


def test_a_busy_worker_of_0_3_is_judged_by_heartbeats():
    bench = busy("0.3")
    bench.keep_alive(3.5, "v")
    assert "silent for 3.00 s" in bench.disconnected["w"]
    assert len(bench.requests("v")) == 1


@older
def test_the_broker_goes_on_speaking_to_a_busy_worker(version):
    bench = busy(version)
    before = len(bench.sent("w"))
    bench.keep_alive(10.0, "v")
    assert len(bench.sent("w")) - before in (9, 10)


@pytest.mark.parametrize("limit_s", [0.0, -1.0, float("nan")])
def test_the_limit_has_to_be_positive(limit_s):
    with pytest.raises(ConfigurationError, match="legacy_busy_timeout_s must be positive"):
        BrokerPolicy(legacy_busy_timeout_s=limit_s)
    BrokerPolicy(legacy_busy_timeout_s=inf)
