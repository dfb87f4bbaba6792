"""The broker engine: order of service, redelivery, limits, time, and draining (MDP 0.3 peers)."""

from __future__ import annotations

import pytest
from tests.spec.requirement import requirement
from tests.support.broker import BrokerBench

from requite.engine import CancelHandler, Received
from requite.errors import LocalViolation
from requite.protocols.majordomo.wire import (
    NOT_IDEMPOTENT,
    ClientCancel,
    ClientFinal,
    ClientHeartbeat,
    ClientPartial,
    Disconnect,
    DrainNotice,
    Progress,
    Ready,
    WorkerCancel,
    WorkerHeartbeat,
    WorkerPartial,
    WorkerRequest,
)
from requite.request import Status


def assert_baseline(bench: BrokerBench) -> None:
    """Check that no table remembers a request (I9)."""
    snapshot = bench.broker.snapshot()
    assert snapshot.pending == 0
    assert all(s.queued == s.in_progress == 0 for s in snapshot.services)
    assert all(worker.holding == 0 for worker in snapshot.workers)
    assert snapshot.timers == len(snapshot.workers) + sum(not s.workers for s in snapshot.services)


# --- the way there and back -----------------------------------------------------------------------
def test_a_request_goes_to_a_worker_and_its_reply_comes_back():
    bench = BrokerBench()
    bench.worker("w")
    call_id = b"a-client-call-17"
    bench.request("c", 7, b"hi", timeout_ms=2500, key=b"k", call_id=call_id)
    assert bench.requests("w") == [WorkerRequest(b"", [b"hi"], 1, 2500, 1, b"k", call_id)]
    bench.final("w", b"ho")
    assert bench.finals("c") == [ClientFinal(b"", [b"ho"], 7, Status.OK, 1)]
    assert_baseline(bench)


def test_partials_are_numbered_and_precede_the_final():
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 7)
    for part in (b"a", b"b"):
        bench.say("w", WorkerPartial, b"", [part], 1)
    bench.final("w", b"z")
    assert bench.sent("c") == [
        ClientPartial(b"", [b"a"], 7, 0),
        ClientPartial(b"", [b"b"], 7, 1),
        ClientFinal(b"", [b"z"], 7, 0, 1),
    ]


def test_a_negative_reply_reaches_the_client_with_its_reason():
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 7)
    bench.final("w", b"ValueError: no", Status.FAILED)
    assert bench.finals("c") == [ClientFinal(b"", [b"ValueError: no"], 7, Status.FAILED, 1)]


# --- order ----------------------------------------------------------------------------------------
def test_workers_take_turns_the_longest_waiting_first():
    bench = BrokerBench()
    for name in ("w1", "w2", "w3"):
        bench.worker(name)
    served = []
    for n in range(9):
        bench.request("c", n)
        worker = next(w for w in ("w1", "w2", "w3") if len(bench.requests(w)) > served.count(w))
        served.append(worker)
        bench.final(worker)
    assert served == ["w1", "w2", "w3"] * 3


def test_a_worker_with_room_goes_to_the_end_of_the_line():
    bench = BrokerBench()
    bench.worker("w1", capacity=2)
    bench.worker("w2", capacity=2)
    for n in range(5):
        bench.request("c", n)
    assert [len(bench.requests(w)) for w in ("w1", "w2")] == [2, 2]
    assert bench.broker.snapshot().services[0].queued == 1


def test_clients_take_turns_however_much_each_has_queued():
    bench = BrokerBench()
    for n in range(4):
        bench.request("greedy", n, b"g%d" % n)
    bench.request("modest", 0, b"m0")
    bench.request("modest", 1, b"m1")
    bench.worker("w", capacity=6)
    bodies = [request.body[0] for request in bench.requests("w")]
    assert bodies == [b"g0", b"m0", b"g1", b"m1", b"g2", b"g3"]


def test_a_blocked_worker_gets_nothing_until_it_reads_again():
    bench = BrokerBench()
    bench.worker("w")
    bench.block("w")
    bench.request("c", 1)
    assert bench.requests("w") == []
    bench.unblock("w")
    assert len(bench.requests("w")) == 1


# --- redelivery -----------------------------------------------------------------------------------
def test_requests_of_a_lost_worker_go_first_and_in_order_to_the_next():
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


def test_a_reply_of_a_former_owner_is_dropped():
    bench = BrokerBench()
    bench.worker("w1", lease_ms=1000)
    bench.worker("w2")
    bench.request("c", 1)
    bench.keep_alive(1.5, "w1", "w2")
    assert bench.sent("w1", WorkerCancel) == [WorkerCancel(1)]
    assert [r.attempt for r in bench.requests("w2")] == [2]
    bench.final("w1", b"late")
    assert bench.finals("c") == []
    bench.final("w2", b"good")
    assert bench.finals("c") == [ClientFinal(b"", [b"good"], 1, 0, 2)]
    assert_baseline(bench)


def test_progress_and_partials_renew_the_lease():
    bench = BrokerBench()
    bench.worker("w", lease_ms=1000)
    bench.request("c", 1)
    bench.advance(0.8)
    bench.say("w", Progress, 1, 0)
    bench.advance(0.8)
    bench.say("w", WorkerPartial, b"", [b"p"], 1)
    bench.advance(0.8)
    bench.say("w", Progress, 1, 5000)
    bench.keep_alive(4.0, "w")
    bench.final("w")
    assert [final.status for final in bench.finals("c")] == [Status.OK]


def test_poison_is_given_out_as_often_as_allowed():
    bench = BrokerBench(attempts_max=3)
    bench.request("c", 1)
    for n in range(3):
        bench.worker(f"w{n}")
        assert bench.requests(f"w{n}")[-1].attempt == n + 1
        bench.lose(f"w{n}")
    (final,) = bench.finals("c")
    assert (final.status, final.attempts) == (Status.POISONED, 3)
    assert_baseline(bench)


@pytest.mark.parametrize("cause", ["flag", "partial"])
def test_what_may_not_run_again_ends_with_worker_lost(cause: str):
    bench = BrokerBench()
    bench.worker("w1")
    bench.worker("w2")
    bench.request("c", 1, flags=NOT_IDEMPOTENT if cause == "flag" else 0)
    if cause == "partial":
        bench.say("w1", WorkerPartial, b"", [b"p"], 1)
    bench.lose("w1")
    assert [final.status for final in bench.finals("c")] == [Status.WORKER_LOST]
    assert bench.requests("w2") == []


def test_a_worker_that_disconnects_gives_its_request_back():
    bench = BrokerBench()
    bench.worker("w1")
    bench.worker("w2")
    bench.request("c", 1)
    bench.say("w1", Disconnect)
    assert len(bench.requests("w2")) == 1
    bench.say("w1", WorkerHeartbeat, 1000)
    assert bench.sent("w1", Disconnect) == []  # it is told nothing more


# --- time -----------------------------------------------------------------------------------------
def test_expired_work_never_starts():
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1)
    bench.request("c", 2, timeout_ms=500)
    bench.keep_alive(1.0, "w")
    assert [(f.request_id, f.status, f.attempts) for f in bench.finals("c")] == [
        (2, Status.EXPIRED, 0)
    ]
    bench.final("w")
    assert len(bench.requests("w")) == 1
    assert_baseline(bench)


def test_work_in_progress_is_cancelled_when_it_expires_and_its_place_comes_back_with_the_final():
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1, timeout_ms=500)
    bench.keep_alive(1.0, "w")
    assert bench.sent("w", WorkerCancel) == [WorkerCancel(1)]
    bench.request("c", 2)
    assert len(bench.requests("w")) == 1
    bench.final("w", status=Status.CANCELLED)
    assert len(bench.requests("w")) == 2
    assert [final.status for final in bench.finals("c")] == [Status.EXPIRED]


def test_a_worker_that_gives_up_at_the_deadline_before_the_broker_looks_means_expired():
    """Broker and worker have timers for it, and the worker's may fire first."""
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1, timeout_ms=500)
    bench.now += 0.5
    bench.final("w", b"its deadline passed", Status.CANCELLED)
    assert [final.status for final in bench.finals("c")] == [Status.EXPIRED]
    assert_baseline(bench)


def test_a_service_without_workers_has_a_grace():
    bench = BrokerBench(service_grace_s=2.0)
    bench.request("c", 1, service=b"nobody")
    bench.advance(1.9)
    assert bench.finals("c") == []
    bench.advance(0.2)
    (final,) = bench.finals("c")
    assert (final.status, final.attempts) == (Status.NO_SERVICE, 0)
    assert b"nobody" in final.body[0]


def test_the_grace_starts_anew_when_the_last_worker_leaves():
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
    assert_baseline(bench)


def test_services_without_workers_are_forgotten():
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


def test_services_may_be_forgotten_as_soon_as_nobody_waits_for_them():
    bench = BrokerBench(service_ttl_s=0.0, service_grace_s=1.0)
    bench.request("c", 1)
    bench.advance(0.9)
    assert b"echo" in bench.broker.services
    bench.advance(0.2)
    assert [final.status for final in bench.finals("c")] == [Status.NO_SERVICE]
    assert bench.broker.services == {}


def test_a_silent_worker_is_dropped_and_its_work_given_to_another():
    bench = BrokerBench()
    bench.worker("w1")
    bench.worker("w2")
    bench.request("c", 1)
    bench.keep_alive(4.0, "w2")
    assert "silent" in bench.disconnected["w1"]
    assert isinstance(bench.sent("w1")[-1], Disconnect)
    assert len(bench.requests("w2")) == 1


def test_the_longer_interval_holds_for_both():
    bench = BrokerBench()
    bench.worker("slow", interval_ms=10_000)
    bench.advance(29.0)
    assert "slow" not in bench.disconnected
    assert len(bench.sent("slow", WorkerHeartbeat)) == 3  # the confirmation, then one per 10 s
    bench.advance(2.0)
    assert "slow" in bench.disconnected


def test_silence_proves_nothing_after_a_pause_of_the_brokers_own():
    bench = BrokerBench()
    bench.worker("w")
    bench.freeze(60.0)
    assert bench.disconnected == {}
    bench.advance(5.0)
    assert "w" in bench.disconnected


def test_heartbeats_are_sent_only_when_nothing_else_was():
    bench = BrokerBench()
    bench.worker("w")
    for n in range(8):
        bench.keep_alive(0.5, "w")
        bench.request("c", n)
        bench.final("w")
    assert len(bench.sent("w", WorkerHeartbeat)) == 1  # the confirmation of READY


@requirement("mdp03:client-slow")
def test_part_of_a_message_is_a_sign_of_life():
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1)
    for _ in range(20):
        bench.advance(0.5)
        bench.feed(Received("w", []))
        bench.feed(Received("c", []))
    assert bench.disconnected == {}
    assert len(bench.sent("c", ClientHeartbeat)) == 10  # one per interval


def test_a_newcomer_may_take_its_time_over_its_first_message():
    bench = BrokerBench()
    bench.client("c")
    bench.feed(Received("c", []))
    bench.request("c", 1)
    assert bench.disconnected == {}


# --- cancel and leaving ---------------------------------------------------------------------------
def test_cancel_of_a_queued_request_means_it_never_starts():
    bench = BrokerBench()
    bench.request("c", 1)
    bench.say("c", ClientCancel, 1)
    bench.worker("w")
    assert bench.requests("w") == []
    assert bench.finals("c") == []
    assert_baseline(bench)


def test_cancel_reaches_the_worker_and_the_late_reply_nobody():
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1)
    bench.say("c", ClientCancel, 1)
    bench.say("c", ClientCancel, 99)
    assert bench.sent("w", WorkerCancel) == [WorkerCancel(1)]
    bench.final("w")
    assert bench.finals("c") == []
    assert_baseline(bench)


def test_a_client_that_leaves_takes_its_requests_along():
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1)
    bench.request("c", 2)
    bench.lose("c")
    assert bench.sent("w", WorkerCancel) == [WorkerCancel(1)]
    bench.final("w")
    assert len(bench.requests("w")) == 1
    assert bench.broker.snapshot().clients == 0
    assert_baseline(bench)


# --- limits ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("limit", "reason"), [("queue_max", b"queue of echo"), ("client_pending_max", b"the limit")]
)
def test_limits_end_in_overloaded(limit: str, reason: bytes):
    bench = BrokerBench(**{limit: 2})
    for n in range(3):
        bench.request("c", n)
    (final,) = bench.finals("c")
    assert (final.request_id, final.status, final.attempts) == (2, Status.OVERLOADED, 0)
    assert reason in final.body[0]
    assert bench.broker.snapshot().pending == 2


def test_too_many_services():
    bench = BrokerBench(services_max=1)
    bench.request("c", 1, service=b"a")
    bench.request("c", 2, service=b"b")
    assert [final.status for final in bench.finals("c")] == [Status.OVERLOADED]
    bench.worker("w", b"b")
    assert "too many" in bench.disconnected["w"]


# --- broken peers ---------------------------------------------------------------------------------
def test_a_request_id_in_use_is_malformed():
    bench = BrokerBench()
    bench.request("c", 1)
    bench.request("c", 1)
    assert "still pending" in bench.disconnected["c"]
    assert_baseline(bench)


def test_a_second_ready_gives_the_workers_requests_to_others():
    bench = BrokerBench()
    bench.worker("w1")
    bench.worker("w2")
    bench.request("c", 1)
    bench.say("w1", Ready, b"echo", 1, 1000, 0)
    assert isinstance(bench.sent("w1")[-1], Disconnect)
    assert len(bench.requests("w2")) == 1


def test_input_that_makes_no_sense_is_our_own_fault():
    bench = BrokerBench()
    with pytest.raises(LocalViolation):
        bench.broker.handle([CancelHandler("token", "why")], 0.0)


# --- the end --------------------------------------------------------------------------------------
def test_drain_finishes_what_is_there_and_refuses_the_rest():
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1)
    bench.request("c", 2)
    bench.drain()
    bench.request("c", 3)
    assert [(f.request_id, f.status) for f in bench.finals("c")] == [(3, Status.SHUTTING_DOWN)]
    bench.worker("late")
    assert "shutting down" in bench.disconnected["late"]
    bench.final("w")
    assert not bench.stopped
    bench.final("w")
    assert bench.stopped
    assert isinstance(bench.sent("w")[-1], Disconnect)
    assert set(bench.disconnected) == {"w", "c", "late"}


def test_a_drain_has_an_end():
    bench = BrokerBench(drain_timeout_s=5.0)
    bench.worker("w")
    bench.request("c", 1)
    bench.drain()
    bench.keep_alive(5.5, "w")
    assert bench.stopped
    assert [final.status for final in bench.finals("c")] == [Status.SHUTTING_DOWN]


@requirement("mdp03:client-drain")
def test_what_is_pending_at_the_end_of_a_drain_goes_back_with_its_attempts():
    bench = BrokerBench(drain_timeout_s=5.0)
    bench.worker("w")
    bench.request("c", 1)
    bench.request("c", 2)
    bench.drain()
    bench.request("c", 3)
    bench.keep_alive(5.5, "w")
    told = [(final.request_id, final.status, final.attempts) for final in bench.finals("c")]
    assert told == [
        (3, Status.SHUTTING_DOWN, 0),
        (1, Status.SHUTTING_DOWN, 1),
        (2, Status.SHUTTING_DOWN, 0),
    ]
    assert all(b"shutting down" in final.body[0] for final in bench.finals("c"))
    assert "c" in bench.disconnected


def test_clients_of_older_dialects_are_told_as_before_that_a_broker_drains():
    bench = BrokerBench(drain_timeout_s=5.0, tell_old_clients=True)
    bench.worker("w")
    bench.client("c", "0.2")
    bench.request("c", 1)
    bench.drain()
    bench.request("c", 2)
    bench.keep_alive(5.5, "w")
    told = [final.body[0] for final in bench.finals("c")]
    assert told == [b"requite-error OVERLOADED", b"requite-error CANCELLED"]


def test_a_draining_worker_finishes_and_gets_nothing_new():
    bench = BrokerBench()
    bench.worker("w1", capacity=4)
    bench.request("c", 1)
    bench.say("w1", DrainNotice)
    bench.request("c", 2)
    assert len(bench.requests("w1")) == 1
    bench.final("w1")
    bench.say("w1", Disconnect)
    assert [final.request_id for final in bench.finals("c")] == [1]
    bench.worker("w2")
    assert [r.attempt for r in bench.requests("w2")] == [1]
