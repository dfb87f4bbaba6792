"""The broker engine with MDP 0.3 peers: order, redelivery, limits, timeouts, draining."""

from __future__ import annotations

import pytest
from tests.spec.requirement import requirement
from tests.support.broker import BrokerBench

from requite.engine import CancelHandler, Received
from requite.errors import LocalViolation
from requite.protocols.majordomo.wire import (
    ClientCancel,
    ClientFinal,
    ClientPartial,
    ClientRequest,
    Disconnect,
    DrainNotice,
    Ready,
    WorkerCancel,
    WorkerPartial,
    WorkerRequest,
)
from requite.request import Status


# --- requests and replies -------------------------------------------------------------------------
def test_a_request_goes_to_a_worker_and_its_reply_comes_back():
    bench = BrokerBench()
    bench.worker("w")
    call_id = b"a-client-call-17"
    bench.request("c", 7, b"hi", timeout_ms=2500, key=b"k", call_id=call_id)
    assert bench.requests("w") == [WorkerRequest(b"", [b"hi"], 1, 2500, 1, b"k", call_id)]
    bench.final("w", b"ho")
    assert bench.finals("c") == [ClientFinal(b"", [b"ho"], 7, Status.OK, 1)]
    bench.assert_idle()


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


@requirement("mdp03:status-worker", "mdp03:status-reason")
@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED])
def test_a_negative_reply_reaches_the_client_with_its_reason(status: Status):
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 7)
    bench.final("w", b"ValueError: no", status)
    assert bench.finals("c") == [ClientFinal(b"", [b"ValueError: no"], 7, status, 1)]


@requirement("mdp03:status-final")
@pytest.mark.parametrize("more", [[], [b"final"], [b"other"]])
def test_a_negative_reply_that_is_final_is_forwarded_as_that(more: list[bytes]):
    bench = BrokerBench(tell_old_clients=True)
    bench.worker("w")
    bench.request("c", 7)
    bench.final("w", b"no", Status.FAILED, more=more)
    forwarded = more if more == [b"final"] else []
    assert bench.finals("c") == [ClientFinal(b"", [b"no", *forwarded], 7, Status.FAILED, 1)]
    bench.client("old", "0.2")
    message = bench.dialect_of("old").encode(ClientRequest(b"echo", [b"hi"], 1))
    bench.feed(Received("old", [message]))
    bench.final("w", b"no", Status.FAILED, more=more)
    assert [final.body for final in bench.finals("old")] == [[b"requite-error FAILED", b"no"]]


# --- order ----------------------------------------------------------------------------------------
def test_requests_go_to_the_worker_idle_longest():
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


def test_workers_with_free_slots_take_turns():
    bench = BrokerBench()
    bench.worker("w1", capacity=2)
    bench.worker("w2", capacity=2)
    for n in range(5):
        bench.request("c", n)
    assert [len(bench.requests(w)) for w in ("w1", "w2")] == [2, 2]
    assert bench.broker.snapshot().services[0].queued == 1


def test_clients_are_served_in_turn_regardless_of_their_queues():
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


# --- cancelling and disconnecting -----------------------------------------------------------------
@requirement("mdp03:client-cancel")
def test_a_queued_request_that_is_cancelled_never_starts():
    bench = BrokerBench()
    bench.request("c", 1)
    bench.say("c", ClientCancel, 1)
    bench.worker("w")
    bench.keep_alive(60, "w")
    assert bench.requests("w") == []
    assert bench.sent("c") == []
    bench.assert_idle()


@requirement("mdp03:client-cancel", "mdp03:worker-cancel")
def test_a_cancel_reaches_the_worker_and_its_late_replies_are_dropped():
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1)
    bench.say("c", ClientCancel, 1)
    bench.say("c", ClientCancel, 99)
    assert bench.sent("w", WorkerCancel) == [WorkerCancel(1)]
    bench.say("w", WorkerPartial, b"", [b"late"], 1)
    bench.final("w", b"cancelled", Status.CANCELLED)
    bench.assert_idle()
    bench.lose("w")
    bench.advance(60)
    assert bench.sent("c") == []


@requirement("mdp03:client-left")
def test_requests_of_a_client_that_disconnects_are_dropped():
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1)
    bench.request("c", 2)
    bench.lose("c")
    assert bench.sent("w", WorkerCancel) == [WorkerCancel(1)]
    bench.final("w")
    assert len(bench.requests("w")) == 1  # the queued request was dropped
    assert bench.broker.snapshot().clients == 0
    bench.assert_idle()


# --- limits ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("limit", "reason"), [("queue_max", b"queue of echo"), ("client_pending_max", b"the maximum")]
)
def test_a_request_beyond_a_limit_is_overloaded(limit: str, reason: bytes):
    bench = BrokerBench(**{limit: 2})
    for n in range(3):
        bench.request("c", n)
    (final,) = bench.finals("c")
    assert (final.request_id, final.status, final.attempts) == (2, Status.OVERLOADED, 0)
    assert reason in final.body[0]
    assert bench.broker.snapshot().pending == 2


@requirement("mdp03:worker-confirm")
def test_a_service_beyond_services_max_is_refused():
    bench = BrokerBench(services_max=1)
    bench.request("c", 1, service=b"a")
    bench.request("c", 2, service=b"b")
    assert [final.status for final in bench.finals("c")] == [Status.OVERLOADED]
    bench.worker("v", b"b")
    assert not bench.disconnected, "what clients name is not in the way of a worker"
    bench.worker("w", b"c")
    assert "too many" in bench.disconnected["w"]
    assert bench.sent("w") == [Disconnect()]


# --- broken peers ---------------------------------------------------------------------------------
@requirement("mdp03:client-id", "mdp03:worker-malformed")
def test_a_request_id_in_use_is_malformed():
    bench = BrokerBench()
    bench.worker("w", capacity=2)
    bench.request("c", 1)
    bench.request("c", 1)
    assert "still pending" in bench.disconnected["c"]
    assert len(bench.requests("w")) == 1
    bench.final("w", status=Status.CANCELLED)
    bench.assert_idle()


def test_a_second_ready_disconnects_the_worker_and_redelivers_its_request():
    bench = BrokerBench()
    bench.worker("w1")
    bench.worker("w2")
    bench.request("c", 1)
    bench.say("w1", Ready, b"echo", 1, 1000, 0)
    assert isinstance(bench.sent("w1")[-1], Disconnect)
    assert len(bench.requests("w2")) == 1


def test_a_foreign_input_raises_a_local_violation():
    bench = BrokerBench()
    with pytest.raises(LocalViolation):
        bench.broker.handle([CancelHandler("token", "why")], 0.0)


# --- draining -------------------------------------------------------------------------------------
@requirement("mdp03:worker-confirm")
def test_a_drain_finishes_pending_requests_and_refuses_new_requests_and_workers():
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1)
    bench.request("c", 2)
    bench.drain()
    bench.request("c", 3)
    assert [(f.request_id, f.status) for f in bench.finals("c")] == [(3, Status.SHUTTING_DOWN)]
    bench.worker("late")
    assert "shutting down" in bench.disconnected["late"]
    assert bench.sent("late") == [Disconnect()]
    assert "w" not in bench.disconnected
    bench.final("w")
    assert not bench.stopped
    bench.final("w")
    assert bench.stopped
    assert isinstance(bench.sent("w")[-1], Disconnect)
    assert set(bench.disconnected) == {"w", "c", "late"}


def test_a_drain_ends_after_drain_timeout_s():
    bench = BrokerBench(drain_timeout_s=5.0)
    bench.worker("w")
    bench.request("c", 1)
    bench.drain()
    bench.keep_alive(5.5, "w")
    assert bench.stopped
    assert [final.status for final in bench.finals("c")] == [Status.SHUTTING_DOWN]


@requirement("mdp03:client-drain")
def test_requests_pending_when_a_drain_times_out_are_refused_with_their_attempts():
    bench = BrokerBench(drain_timeout_s=5.0)
    bench.worker("w")
    bench.request("c", 1)
    bench.request("c", 2)
    bench.drain()
    bench.request("c", 3)
    bench.keep_alive(5.5, "w")
    answers = [(final.request_id, final.status, final.attempts) for final in bench.finals("c")]
    assert answers == [
        (3, Status.SHUTTING_DOWN, 0),
        (1, Status.SHUTTING_DOWN, 1),
        (2, Status.SHUTTING_DOWN, 0),
    ]
    assert all(b"shutting down" in final.body[0] for final in bench.finals("c"))
    assert "c" in bench.disconnected


def test_tell_old_clients_sends_drain_errors_to_clients_of_older_dialects():
    bench = BrokerBench(drain_timeout_s=5.0, tell_old_clients=True)
    bench.worker("w")
    bench.client("c", "0.2")
    bench.request("c", 1)
    bench.drain()
    bench.request("c", 2)
    bench.keep_alive(5.5, "w")
    answers = [final.body[0] for final in bench.finals("c")]
    assert answers == [b"requite-error OVERLOADED", b"requite-error CANCELLED"]


@requirement("mdp03:worker-drain")
def test_a_draining_worker_finishes_and_gets_nothing_new():
    bench = BrokerBench()
    bench.worker("w1", capacity=4)
    bench.request("c", 1)
    bench.say("w1", DrainNotice)
    bench.request("c", 2)
    assert len(bench.requests("w1")) == 1
    bench.final("w1")
    assert len(bench.requests("w1")) == 1
    bench.say("w1", Disconnect)
    assert [final.request_id for final in bench.finals("c")] == [1]
    bench.worker("w2")
    assert [r.attempt for r in bench.requests("w2")] == [1]
