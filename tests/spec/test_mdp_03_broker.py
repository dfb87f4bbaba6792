"""Requirements of MDP 0.3 for a broker: clients, service names and statuses.

`tests/engines/test_majordomo_broker.py` cites the other requirements.
"""

from __future__ import annotations

import pytest
from tests.spec.mdp_03 import MDP_03, cancelled, dispatched, outcomes
from tests.spec.requirement import requirement
from tests.support.broker import BrokerBench

from requite.engine import Received
from requite.protocols.majordomo.wire import (
    NOT_IDEMPOTENT,
    ClientCancel,
    ClientHeartbeat,
    ClientPartial,
    WorkerFinal,
    WorkerPartial,
)
from requite.request import Status


# --- clients --------------------------------------------------------------------------------------
@requirement("mdp03:client-id")
def test_a_request_id_may_be_reused_after_its_final_and_by_other_clients() -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=2)
    bench.request("c", 7)
    bench.request("d", 7)
    bench.final("w", nth=0)
    bench.request("c", 7)
    bench.final("w")
    bench.final("w", nth=1)
    assert outcomes(bench) == [(7, Status.OK)] * 2
    assert outcomes(bench, "d") == [(7, Status.OK)]


@requirement("mdp03:client-partials")
def test_partials_of_each_request_count_from_0() -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=2)
    bench.request("c", 7)
    bench.request("c", 8)
    first, second = dispatched(bench)
    for dispatch_id in (first, second, first, first):
        bench.say("w", WorkerPartial, b"", [b"x"], dispatch_id)
    indices = [
        (partial.request_id, partial.part_index) for partial in bench.sent("c", ClientPartial)
    ]
    assert indices == [(7, 0), (8, 0), (7, 1), (7, 2)]


@requirement("mdp03:client-timeout")
def test_a_request_that_expires_before_the_brokers_timer_fires_never_starts() -> None:
    bench = BrokerBench()
    bench.request("c", 7, timeout_ms=500)
    bench.now += 0.5
    bench.worker("w")
    assert bench.requests("w") == []
    assert outcomes(bench) == [(7, Status.EXPIRED)]


@requirement("mdp03:timeout")
def test_a_worker_gets_the_remaining_time_of_a_request() -> None:
    bench = BrokerBench()
    bench.request("c", 7, timeout_ms=2500)
    bench.request("c", 8)
    bench.advance(1)
    bench.worker("w", capacity=3)
    assert [request.timeout_ms for request in bench.requests("w")] == [1500, 0]
    bench.request("c", 9, timeout_ms=1)
    assert bench.requests("w")[-1].timeout_ms == 1


@requirement("mdp03:client-cancel")
@pytest.mark.parametrize("request_id", [0, 8, (1 << 64) - 1])
def test_a_cancel_for_an_unknown_id_is_ignored(request_id: int) -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 7)
    bench.say("c", ClientCancel, request_id)
    bench.final("w")
    bench.say("c", ClientCancel, 7)
    assert outcomes(bench) == [(7, Status.OK)]
    assert cancelled(bench) == []
    assert not bench.disconnected


@requirement("mdp03:client-heartbeat")
def test_each_heartbeat_of_a_client_is_answered_and_none_is_required() -> None:
    bench = BrokerBench()
    bench.client("c")
    for n in range(1, 4):
        bench.say("c", ClientHeartbeat, 50)
        assert bench.sent("c") == [ClientHeartbeat(1000)] * n
    bench.advance(100_000)
    assert not bench.disconnected
    assert len(bench.sent("c")) == 3


# --- names and statuses ---------------------------------------------------------------------------
@requirement("mdp03:service-name", "mdp03:worker-malformed")
@pytest.mark.parametrize("name", [b"", b"a\nb", b"\xff"])
def test_a_request_with_an_invalid_service_name_is_malformed(name: bytes) -> None:
    bench = BrokerBench()
    bench.request("c", 1, service=name)
    assert "c" in bench.disconnected
    assert bench.broker.snapshot().services == ()


@requirement("mdp03:service-name", "mdp03:worker-malformed")
@pytest.mark.parametrize("name", [b"", b"a\nb", b"\xff"])
def test_a_registration_with_an_invalid_service_name_is_malformed(name: bytes) -> None:
    bench = BrokerBench()
    bench.worker("w", name)
    assert "w" in bench.disconnected
    assert bench.broker.snapshot().services == ()


@requirement("mdp03:status-reason", "mdp03:attempts")
def test_every_refusal_by_the_broker_has_a_reason() -> None:
    bench = BrokerBench(service_grace_s=1, queue_max=2, attempts_max=1)
    for n in range(3):
        bench.request("c", n)
    bench.request("c", 3, service=b"other", timeout_ms=500)
    bench.advance(2)
    bench.worker("w")
    bench.request("c", 4)
    bench.lose("w")
    bench.worker("w")
    bench.request("c", 5, flags=NOT_IDEMPOTENT)
    bench.lose("w")
    assert sorted(outcomes(bench)) == [
        (0, Status.NO_SERVICE),
        (1, Status.NO_SERVICE),
        (2, Status.OVERLOADED),
        (3, Status.EXPIRED),
        (4, Status.POISONED),
        (5, Status.WORKER_LOST),
    ]
    for final in bench.finals("c"):
        assert " " in final.body[0].decode()
        assert final.attempts == (1 if final.request_id in (4, 5) else 0)


@requirement("mdp03:status-worker", "mdp03:worker-malformed")
@pytest.mark.parametrize("status", [Status.NO_SERVICE, Status.POISONED, 8, 255])
def test_a_status_that_workers_may_not_send_is_malformed(status: int) -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 7)
    header = MDP_03.encode(WorkerFinal(b"", [b"x"], dispatched(bench)[0], 0))[0]
    bench.feed(Received("w", [[header[:-1] + bytes([status]), b"x"]]))
    assert "w" in bench.disconnected
    assert outcomes(bench) == []
