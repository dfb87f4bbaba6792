"""Requirements of MDP 0.3 for a broker towards its workers.

`tests/engines/test_majordomo_broker.py` cites the other requirements.
"""

from __future__ import annotations

import pytest
from tests.spec.mdp_03 import cancelled, dispatched, outcomes
from tests.spec.requirement import requirement
from tests.support.broker import BrokerBench

from requite.engine import Received
from requite.protocols.majordomo.wire import (
    ClientCancel,
    ClientFinal,
    Disconnect,
    Progress,
    WorkerFinal,
    WorkerHeartbeat,
    WorkerPartial,
    WorkerRequest,
)
from requite.request import Status


@requirement("mdp03:worker-confirm")
def test_ready_is_confirmed_with_the_brokers_interval() -> None:
    bench = BrokerBench()
    bench.worker("w")
    assert bench.sent("w") == [WorkerHeartbeat(1000)]


@requirement("mdp03:worker-confirm", "mdp03:service-name")
def test_a_worker_is_declined_for_a_name_reserved_by_the_broker() -> None:
    bench = BrokerBench()
    bench.worker("w", b"mmi.mine")
    assert bench.sent("w") == [Disconnect()]
    assert "w" in bench.disconnected


@requirement("mdp03:worker-capacity")
@pytest.mark.parametrize("capacity", [1, 3, 65535])
def test_a_worker_never_gets_more_requests_than_its_capacity(capacity: int) -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=capacity)
    for n in range(10):
        bench.request("c", n)
    assert len(bench.requests("w")) == min(capacity, 10)
    bench.final("w", nth=0)
    assert len(bench.requests("w")) == min(capacity + 1, 10)


@requirement("mdp03:worker-capacity", "mdp03:worker-cancel")
def test_a_cancelled_request_keeps_its_slot_until_its_final() -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1)
    bench.say("c", ClientCancel, 1)
    bench.request("c", 2)
    assert len(bench.requests("w")) == 1
    bench.final("w", b"cancelled", Status.CANCELLED)
    assert len(bench.requests("w")) == 2


@requirement("mdp03:worker-dispatch", "mdp03:attempts")
def test_a_dispatch_id_is_never_used_twice() -> None:
    bench = BrokerBench()
    for name in ("u", "v", "w"):
        bench.worker(name, capacity=2)
        bench.request("c", ord(name))
        bench.request("d", ord(name))
    bench.lose("u")
    for nth in range(4):
        for worker in ("v", "w"):
            if nth < len(bench.requests(worker)):
                bench.final(worker, nth=nth)
    seen = [request.dispatch_id for name in "uvw" for request in bench.requests(name)]
    assert len(seen) == len(set(seen)) == 8
    attempts = sorted(final.attempts for client in "cd" for final in bench.finals(client))
    assert attempts == [1, 1, 1, 1, 2, 2]


@requirement("mdp03:worker-stale")
@pytest.mark.parametrize("command", [WorkerPartial, WorkerFinal, Progress])
@pytest.mark.parametrize("whose", ["nobody", "another worker"])
def test_commands_for_a_dispatch_that_the_worker_does_not_hold_are_ignored(
    command: str, whose: str
) -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 7)
    bench.worker("stranger")
    dispatch_id = dispatched(bench)[0] if whose == "another worker" else 12345
    fields = {
        WorkerPartial: (b"", [b"forged"], dispatch_id),
        WorkerFinal: (b"", [b"forged"], dispatch_id, 0),
        Progress: (dispatch_id, 5000),
    }[command]
    bench.say("stranger", command, *fields)
    assert bench.sent("c") == []
    assert not bench.disconnected
    bench.final("w", b"true")
    assert bench.finals("c") == [ClientFinal(b"", [b"true"], 7, 0, 1)]


@requirement("mdp03:worker-heartbeat")
def test_a_worker_may_announce_a_longer_interval_later() -> None:
    bench = BrokerBench()
    bench.worker("w", interval_ms=100)
    bench.say("w", WorkerHeartbeat, 5000)
    bench.advance(14.9)
    assert "w" not in bench.disconnected
    bench.advance(0.2)
    assert "w" in bench.disconnected


def with_lease(lease_ms: int = 2000) -> BrokerBench:
    bench = BrokerBench()
    bench.worker("w", lease_ms=lease_ms, capacity=2)
    bench.request("c", 7)
    return bench


@requirement("mdp03:worker-lease", "mdp03:worker-capacity")
def test_a_request_whose_lease_ran_out_keeps_its_slot_until_its_final() -> None:
    bench = BrokerBench(attempts_max=1)
    bench.worker("w", lease_ms=1000)
    bench.request("c", 7)
    bench.request("c", 8)
    bench.keep_alive(2, "w")
    assert outcomes(bench) == [(7, Status.POISONED)]
    assert len(bench.requests("w")) == 1
    bench.final("w", b"late", Status.CANCELLED)
    assert len(bench.requests("w")) == 2


@requirement("mdp03:worker-lease")
@pytest.mark.parametrize("command", [WorkerPartial, Progress])
def test_partials_and_progress_renew_the_lease(command: str) -> None:
    bench = with_lease()
    dispatch_id = dispatched(bench)[0]
    fields = (b"", [b"x"], dispatch_id) if command == WorkerPartial else (dispatch_id, 0)
    for _ in range(4):
        bench.keep_alive(1.5, "w")
        bench.say("w", command, *fields)
    assert cancelled(bench) == []
    bench.keep_alive(2.5, "w")
    assert cancelled(bench) == [dispatch_id]


@requirement("mdp03:worker-lease")
def test_a_lease_extension_applies_once() -> None:
    bench = with_lease()
    dispatch_id = dispatched(bench)[0]
    bench.say("w", Progress, dispatch_id, 6000)
    bench.keep_alive(5.5, "w")
    assert cancelled(bench) == []
    bench.say("w", Progress, dispatch_id, 0)
    bench.keep_alive(1.5, "w")
    assert cancelled(bench) == []
    bench.keep_alive(1, "w")
    assert cancelled(bench) == [dispatch_id]


@requirement("mdp03:worker-lease")
def test_without_a_lease_a_handler_may_run_for_any_time() -> None:
    bench = with_lease(lease_ms=0)
    bench.keep_alive(600, "w", every=1.0)
    assert cancelled(bench) == []
    bench.final("w")
    assert outcomes(bench) == [(7, Status.OK)]


@requirement("mdp03:worker-malformed", "mdp03:header", "mdp03:body")
@pytest.mark.parametrize(
    "message",
    [
        [b"MDPW03\x04" + bytes(8), b"short"],
        [b"MDPW03\x02" + bytes(29), b"a broker's command"],
        [b"MDPW03\x04" + bytes(9)],
        [b"MDPC03\x01" + bytes(30), b"a client's command"],
    ],
    ids=["short header", "wrong direction", "no body", "wrong role"],
)
def test_a_worker_that_sends_a_malformed_message_is_disconnected(message: list[bytes]) -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 7)
    bench.worker("v")
    bench.feed(Received("w", [message]))
    assert list(bench.disconnected) == ["w"]
    assert len(bench.requests("v")) == 1
    assert not bench.sent("w", WorkerRequest)[1:]
