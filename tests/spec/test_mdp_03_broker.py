"""What MDP 0.3 asks of a broker beyond the older dialects (docs/protocols/mdp-0.3.md)."""

from __future__ import annotations

import pytest
from tests.spec.requirement import requirement
from tests.support.broker import BrokerBench

from requite.engine import Received
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.wire import (
    NOT_IDEMPOTENT,
    ClientFinal,
    ClientHeartbeat,
    ClientPartial,
    Disconnect,
    WorkerCancel,
    WorkerHeartbeat,
    WorkerRequest,
)
from requite.request import Status

MDP_03 = by_version("0.3")


def outcomes(bench: BrokerBench, client: str = "c") -> list[tuple[int, Status]]:
    """Return id and status of each FINAL a client got."""
    return [(final.request_id, Status(final.status)) for final in bench.finals(client)]


def cancelled(bench: BrokerBench, worker: str = "w") -> list[int]:
    """Return the dispatch ids for which a worker was sent CANCEL."""
    return [cancel.dispatch_id for cancel in bench.sent(worker, WorkerCancel)]


def dispatched(bench: BrokerBench, worker: str = "w") -> list[int]:
    return [request.dispatch_id for request in bench.requests(worker)]


# --- the client's side ----------------------------------------------------------------------------
@requirement("mdp03:client-id", "mdp03:worker-malformed")
def test_a_request_id_that_is_pending_cannot_be_used_again() -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=2)
    bench.request("c", 7)
    bench.request("c", 7)
    assert "c" in bench.disconnected
    assert len(bench.requests("w")) == 1


@requirement("mdp03:client-id")
def test_a_request_id_may_be_used_again_after_its_final_and_by_others() -> None:
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
        bench.say("w", "worker_partial", b"", [b"x"], dispatch_id)
    told = [(partial.request_id, partial.part_index) for partial in bench.sent("c", ClientPartial)]
    assert told == [(7, 0), (8, 0), (7, 1), (7, 2)]


@requirement("mdp03:client-timeout", "mdp03:attempts")
def test_an_expired_request_is_not_started() -> None:
    bench = BrokerBench()
    bench.request("c", 7, timeout_ms=500)
    bench.advance(0.4)
    assert outcomes(bench) == []
    bench.advance(0.2)
    assert outcomes(bench) == [(7, Status.EXPIRED)]
    assert bench.finals("c")[0].attempts == 0
    bench.worker("w")
    assert bench.requests("w") == []


@requirement("mdp03:client-timeout")
def test_a_request_that_expires_before_the_broker_looks_is_not_started_either() -> None:
    bench = BrokerBench()
    bench.request("c", 7, timeout_ms=500)
    bench.now += 0.5
    bench.worker("w")
    assert bench.requests("w") == []
    assert outcomes(bench) == [(7, Status.EXPIRED)]


@requirement("mdp03:client-timeout", "mdp03:worker-cancel", "mdp03:worker-stale")
def test_a_request_that_expires_at_its_worker_is_cancelled_there() -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 7, timeout_ms=500)
    bench.advance(0.6)
    assert outcomes(bench) == [(7, Status.EXPIRED)]
    assert bench.finals("c")[0].attempts == 1
    assert cancelled(bench) == dispatched(bench)
    bench.final("w", b"too late")
    assert len(bench.sent("c")) == 1


@requirement("mdp03:timeout")
def test_a_worker_is_told_what_remains_of_the_time() -> None:
    bench = BrokerBench()
    bench.request("c", 7, timeout_ms=2500)
    bench.request("c", 8)
    bench.advance(1)
    bench.worker("w", capacity=3)
    assert [request.timeout_ms for request in bench.requests("w")] == [1500, 0]
    bench.request("c", 9, timeout_ms=1)
    assert bench.requests("w")[-1].timeout_ms == 1


@requirement("mdp03:client-cancel")
def test_a_queued_request_that_is_cancelled_never_starts() -> None:
    bench = BrokerBench()
    bench.request("c", 7)
    bench.say("c", "client_cancel", 7)
    bench.worker("w")
    bench.advance(60)
    assert bench.requests("w") == []
    assert bench.sent("c") == []


@requirement("mdp03:client-cancel", "mdp03:worker-cancel")
def test_a_request_that_is_cancelled_at_its_worker_is_not_answered() -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 7)
    bench.say("c", "client_cancel", 7)
    assert cancelled(bench) == dispatched(bench)
    bench.say("w", "worker_partial", b"", [b"x"], dispatched(bench)[0])
    bench.final("w", b"was cancelled", Status.CANCELLED)
    bench.lose("w")
    bench.advance(60)
    assert bench.sent("c") == []


@requirement("mdp03:client-cancel")
@pytest.mark.parametrize("request_id", [0, 8, (1 << 64) - 1])
def test_a_cancel_for_an_unknown_id_is_ignored(request_id: int) -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 7)
    bench.say("c", "client_cancel", request_id)
    bench.final("w")
    bench.say("c", "client_cancel", 7)
    assert outcomes(bench) == [(7, Status.OK)]
    assert cancelled(bench) == []
    assert not bench.disconnected


@requirement("mdp03:client-heartbeat")
def test_each_heartbeat_of_a_client_is_answered_and_none_is_missed() -> None:
    bench = BrokerBench()
    bench.client("c")
    for n in range(1, 4):
        bench.say("c", "client_heartbeat", 50)
        assert bench.sent("c") == [ClientHeartbeat(1000)] * n
    bench.advance(100_000)
    assert not bench.disconnected
    assert len(bench.sent("c")) == 3


@requirement("mdp03:client-left")
def test_what_a_client_left_behind_is_dropped() -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1)
    bench.request("c", 2)
    bench.lose("c")
    assert cancelled(bench) == dispatched(bench)
    bench.final("w", b"cancelled", Status.CANCELLED)
    assert len(bench.requests("w")) == 1
    assert bench.broker.snapshot().pending == 0


# --- names and statuses ---------------------------------------------------------------------------
@requirement("mdp03:service-name", "mdp03:worker-malformed")
@pytest.mark.parametrize("name", [b"", b"a\nb", b"\xff"])
def test_a_request_for_a_name_that_is_none_is_malformed(name: bytes) -> None:
    bench = BrokerBench()
    bench.request("c", 1, service=name)
    assert "c" in bench.disconnected
    assert bench.broker.snapshot().services == ()


@requirement("mdp03:service-name", "mdp03:worker-malformed")
@pytest.mark.parametrize("name", [b"", b"a\nb", b"\xff"])
def test_a_registration_for_a_name_that_is_none_is_malformed(name: bytes) -> None:
    bench = BrokerBench()
    bench.worker("w", name)
    assert "w" in bench.disconnected
    assert bench.broker.snapshot().services == ()


@requirement("mdp03:status-reason", "mdp03:attempts")
def test_whatever_the_broker_refuses_has_a_reason() -> None:
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
def test_a_status_that_is_not_the_workers_is_malformed(status: int) -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 7)
    header = MDP_03.worker_final(b"", [b"x"], dispatched(bench)[0], 0)[0]
    bench.feed(Received("w", [[header[:-1] + bytes([status]), b"x"]]))
    assert "w" in bench.disconnected
    assert outcomes(bench) == []


@requirement("mdp03:status-worker", "mdp03:status-reason")
@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED])
def test_a_negative_reply_of_a_worker_is_passed_on(status: Status) -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 7)
    bench.final("w", b"it did not work", status)
    assert bench.finals("c") == [ClientFinal(b"", [b"it did not work"], 7, status, 1)]


# --- the worker's side ----------------------------------------------------------------------------
@requirement("mdp03:worker-confirm")
def test_ready_is_confirmed_with_the_brokers_interval() -> None:
    bench = BrokerBench()
    bench.worker("w")
    assert bench.sent("w") == [WorkerHeartbeat(1000)]


@requirement("mdp03:worker-confirm", "mdp03:service-name")
def test_a_worker_is_declined_for_a_name_of_the_brokers() -> None:
    bench = BrokerBench()
    bench.worker("w", b"mmi.mine")
    assert bench.sent("w") == [Disconnect()]
    assert "w" in bench.disconnected


@requirement("mdp03:worker-confirm")
def test_a_worker_is_declined_while_the_broker_drains() -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1)
    bench.drain()
    bench.worker("late")
    assert bench.sent("late") == [Disconnect()]
    assert "w" not in bench.disconnected


@requirement("mdp03:worker-confirm")
def test_a_worker_is_declined_when_there_are_too_many_services() -> None:
    bench = BrokerBench(services_max=1)
    bench.worker("w", b"one")
    bench.worker("v", b"two")
    assert bench.sent("v") == [Disconnect()]


@requirement("mdp03:worker-capacity")
@pytest.mark.parametrize("capacity", [1, 3, 65535])
def test_a_worker_is_never_given_more_than_its_capacity(capacity: int) -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=capacity)
    for n in range(10):
        bench.request("c", n)
    assert len(bench.requests("w")) == min(capacity, 10)
    bench.final("w", nth=0)
    assert len(bench.requests("w")) == min(capacity + 1, 10)


@requirement("mdp03:worker-capacity", "mdp03:worker-cancel")
def test_the_place_of_a_cancelled_request_stays_taken_until_its_final() -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1)
    bench.say("c", "client_cancel", 1)
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
@pytest.mark.parametrize("command", ["worker_partial", "worker_final", "progress"])
@pytest.mark.parametrize("whose", ["nobody", "another worker"])
def test_what_a_worker_says_of_a_dispatch_it_does_not_hold_is_ignored(
    command: str, whose: str
) -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 7)
    bench.worker("stranger")
    dispatch_id = dispatched(bench)[0] if whose == "another worker" else 12345
    fields = {
        "worker_partial": (b"", [b"forged"], dispatch_id),
        "worker_final": (b"", [b"forged"], dispatch_id, 0),
        "progress": (dispatch_id, 5000),
    }[command]
    bench.say("stranger", command, *fields)
    assert bench.sent("c") == []
    assert not bench.disconnected
    bench.final("w", b"true")
    assert bench.finals("c") == [ClientFinal(b"", [b"true"], 7, 0, 1)]


@requirement("mdp03:worker-heartbeat")
def test_the_longer_of_both_intervals_holds() -> None:
    bench = BrokerBench()
    bench.worker("slow", interval_ms=4000)
    bench.worker("hasty", interval_ms=10)
    bench.advance(3.1)
    assert list(bench.disconnected) == ["hasty"]  # three of the broker's intervals of 1 s
    bench.advance(8.8)
    assert "slow" not in bench.disconnected
    assert len(bench.sent("slow", WorkerHeartbeat)) == 1 + 2
    bench.advance(0.2)
    assert "slow" in bench.disconnected


@requirement("mdp03:worker-heartbeat")
def test_a_worker_may_announce_a_longer_interval_later() -> None:
    bench = BrokerBench()
    bench.worker("w", interval_ms=100)
    bench.say("w", "worker_heartbeat", 5000)
    bench.advance(14.9)
    assert "w" not in bench.disconnected
    bench.advance(0.2)
    assert "w" in bench.disconnected


def with_lease(lease_ms: int = 2000) -> BrokerBench:
    bench = BrokerBench()
    bench.worker("w", lease_ms=lease_ms, capacity=2)
    bench.request("c", 7)
    return bench


@requirement("mdp03:worker-lease")
def test_a_request_whose_lease_ran_out_goes_to_another_worker() -> None:
    bench = with_lease()
    bench.worker("v")
    bench.keep_alive(1.5, "w", "v")
    assert bench.requests("v") == []
    bench.keep_alive(1, "w", "v")
    assert cancelled(bench) == dispatched(bench)[:1]
    assert [request.attempt for request in bench.requests("v")] == [2]
    bench.final("w", b"stale", nth=0)
    assert bench.sent("c") == []
    bench.final("v", b"fresh")
    assert bench.finals("c") == [ClientFinal(b"", [b"fresh"], 7, 0, 2)]


@requirement("mdp03:worker-lease", "mdp03:worker-capacity")
def test_its_place_stays_taken_until_the_final() -> None:
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
@pytest.mark.parametrize("command", ["worker_partial", "progress"])
def test_partials_and_progress_renew_the_lease(command: str) -> None:
    bench = with_lease()
    dispatch_id = dispatched(bench)[0]
    fields = (b"", [b"x"], dispatch_id) if command == "worker_partial" else (dispatch_id, 0)
    for _ in range(4):
        bench.keep_alive(1.5, "w")
        bench.say("w", command, *fields)
    assert cancelled(bench) == []
    bench.keep_alive(2.5, "w")
    assert cancelled(bench) == [dispatch_id]


@requirement("mdp03:worker-lease")
def test_an_extension_holds_once() -> None:
    bench = with_lease()
    dispatch_id = dispatched(bench)[0]
    bench.say("w", "progress", dispatch_id, 6000)
    bench.keep_alive(5.5, "w")
    assert cancelled(bench) == []
    bench.say("w", "progress", dispatch_id, 0)
    bench.keep_alive(1.5, "w")
    assert cancelled(bench) == []
    bench.keep_alive(1, "w")
    assert cancelled(bench) == [dispatch_id]


@requirement("mdp03:worker-lease")
def test_without_a_lease_a_handler_may_take_for_ever() -> None:
    bench = with_lease(lease_ms=0)
    bench.keep_alive(600, "w", every=1.0)
    assert cancelled(bench) == []
    bench.final("w")
    assert outcomes(bench) == [(7, Status.OK)]


@requirement("mdp03:worker-lost")
def test_requests_that_may_not_run_twice_end_when_their_worker_is_lost() -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=3)
    bench.request("c", 1, flags=NOT_IDEMPOTENT)
    bench.request("c", 2)
    bench.request("c", 3)
    bench.say("w", "worker_partial", b"", [b"x"], dispatched(bench)[1])
    bench.worker("v", capacity=3)
    bench.lose("w")
    assert sorted(outcomes(bench)) == [(1, Status.WORKER_LOST), (2, Status.WORKER_LOST)]
    assert len(bench.requests("v")) == 1
    bench.final("v")
    assert outcomes(bench)[-1] == (3, Status.OK)


@requirement("mdp03:worker-lost", "mdp03:attempts")
@pytest.mark.parametrize("attempts_max", [1, 3])
def test_a_request_that_loses_every_worker_is_poisoned(attempts_max: int) -> None:
    bench = BrokerBench(attempts_max=attempts_max)
    bench.request("c", 7)
    for n in range(attempts_max):
        assert outcomes(bench) == []
        bench.worker(f"w{n}")
        assert [request.attempt for request in bench.requests(f"w{n}")] == [n + 1]
        bench.lose(f"w{n}")
    assert outcomes(bench) == [(7, Status.POISONED)]
    assert bench.finals("c")[0].attempts == attempts_max
    bench.worker("last")
    assert bench.requests("last") == []


@requirement("mdp03:worker-drain")
def test_a_worker_that_drains_gets_nothing_new_and_may_finish() -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=2)
    bench.request("c", 1)
    bench.say("w", "drain")
    bench.request("c", 2)
    assert len(bench.requests("w")) == 1
    bench.final("w", b"done")
    assert outcomes(bench) == [(1, Status.OK)]
    assert len(bench.requests("w")) == 1
    bench.say("w", "disconnect")
    bench.worker("v")
    assert len(bench.requests("v")) == 1


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
def test_a_malformed_message_costs_a_worker_its_place(message: list[bytes]) -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 7)
    bench.worker("v")
    bench.feed(Received("w", [message]))
    assert list(bench.disconnected) == ["w"]
    assert len(bench.requests("v")) == 1
    assert not bench.sent("w", WorkerRequest)[1:]
