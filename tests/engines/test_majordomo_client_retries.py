"""The client engine of MDP 0.3: which calls are retried, and when."""

from __future__ import annotations

import pytest
from tests.support.client import ClientBench, connected

from requite.core.liveness import HeartbeatPolicy
from requite.errors import (
    CallTimeout,
    Cancelled,
    NoService,
    Overloaded,
    Poisoned,
    RemoteFailure,
    WorkerLost,
)
from requite.request import Status


# --- negative replies -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("status", "attempts", "kind", "may_have_run"),
    [
        (Status.FAILED, 1, RemoteFailure, True),
        (Status.POISONED, 3, Poisoned, True),
        (Status.EXPIRED, 0, CallTimeout, False),
        (Status.EXPIRED, 1, CallTimeout, True),
        (Status.CANCELLED, 0, Cancelled, False),
        (Status.CANCELLED, 1, Cancelled, True),
    ],
)
def test_a_negative_reply_is_the_end(status, attempts, kind, may_have_run):
    bench = connected()
    bench.submit("a")
    bench.answer(bench.requests[0], b"the reason", status, attempts)
    error = bench.errors["a"]
    assert type(error) is kind
    assert (str(error), error.may_have_executed, error.attempts) == ("the reason", may_have_run, 1)
    bench.assert_empty()


@pytest.mark.parametrize("status", [Status.NO_SERVICE, Status.OVERLOADED])
@pytest.mark.parametrize("idempotent", [True, False])
def test_what_never_ran_is_tried_again_after_a_growing_pause(status, idempotent):
    bench = connected(retry={"attempts": 3, "backoff": 0.5})
    bench.submit("a", idempotent=idempotent)
    for pause in (0.5, 1.0):
        n = len(bench.requests)
        bench.answer(bench.requests[-1], b"not now", status, 0)
        bench.advance(pause - 0.01)
        assert len(bench.requests) == n
        bench.advance(0.01)
        assert len(bench.requests) == n + 1
    assert len({sent.command.request_id for sent in bench.requests}) == 3
    bench.answer(bench.requests[-1], b"not now", status, 0)
    error = bench.errors["a"]
    assert type(error) in (NoService, Overloaded)
    assert (error.may_have_executed, error.attempts) == (False, 3)
    bench.assert_empty()


def test_a_reply_counts_how_often_the_request_was_sent():
    bench = connected()
    bench.submit("a")
    bench.answer(bench.requests[0], b"none", Status.NO_SERVICE, 0)
    bench.advance(1.0)
    bench.answer(bench.requests[1])
    assert bench.replies["a"].attempts == 2


@pytest.mark.parametrize(("idempotent", "sent"), [(True, 2), (False, 1)])
def test_a_lost_worker_is_reason_to_try_again_only_what_may_run_twice(idempotent, sent):
    bench = connected()
    bench.submit("a", idempotent=idempotent)
    bench.answer(bench.requests[0], b"lost", Status.WORKER_LOST)
    bench.advance(10.0)
    assert len(bench.requests) == sent
    assert isinstance(bench.errors.get("a"), WorkerLost) is not idempotent


def test_a_request_that_may_have_run_once_is_not_safe_to_send_for_any_other_reason():
    """First lost with its worker, then refused: it still may have run."""
    bench = connected(retry={"attempts": 2})
    bench.submit("a")
    bench.answer(bench.requests[0], b"lost", Status.WORKER_LOST)
    bench.advance(1.0)
    bench.answer(bench.requests[1], b"none", Status.NO_SERVICE, 0)
    assert isinstance(bench.errors["a"], NoService)
    assert bench.errors["a"].may_have_executed


@pytest.mark.parametrize(("idempotent", "sent"), [(True, 2), (False, 1)])
def test_a_service_that_died_of_the_request_is_no_proof_that_it_never_ran(idempotent, sent):
    """NO_SERVICE also ends a request whose worker was lost and for which no other came."""
    bench = connected()
    bench.submit("a", idempotent=idempotent)
    bench.answer(bench.requests[0], b"none left", Status.NO_SERVICE, 1)
    bench.advance(10.0)
    assert len(bench.requests) == sent
    assert ("a" in bench.errors) is not idempotent


def test_no_pause_goes_beyond_the_deadline():
    bench = connected(retry={"backoff": 2.0})
    bench.submit("a", timeout=1.0)
    bench.answer(bench.requests[0], b"none", Status.NO_SERVICE, 0)
    assert isinstance(bench.errors["a"], NoService)


def test_a_stream_is_not_begun_anew():
    bench = connected()
    bench.submit("a", partials=True)
    bench.say(bench.partial(bench.requests[0], b"0", 0))
    bench.answer(bench.requests[0], b"lost", Status.WORKER_LOST)
    assert isinstance(bench.errors["a"], WorkerLost)


def test_retries_stay_inside_the_budget_of_all_calls():
    bench = connected(slots=100, retry={"budget": 0.0, "budget_burst": 3, "backoff": 0.1})
    for token in range(10):
        bench.submit(token)
    for sent in bench.requests:
        bench.answer(sent, b"none", Status.NO_SERVICE, 0)
    bench.advance(1.0)
    assert len(bench.requests) == 13
    assert len(bench.errors) == 7


def test_calls_earn_the_budget_of_later_retries():
    bench = connected(retry={"budget": 0.5, "budget_burst": 1, "backoff": 0.1})
    for token in range(8):
        bench.submit(token)
        bench.answer(bench.requests[-1], b"none", Status.NO_SERVICE, 0)
        bench.advance(0.1)
        if token not in bench.errors:
            bench.answer(bench.requests[-1])
    assert list(bench.replies) == [0, 2, 4, 6]


# --- time per attempt -----------------------------------------------------------------------------
def test_an_attempt_that_takes_too_long_is_cancelled_and_repeated_under_a_new_id():
    bench = connected(retry={"attempt_timeout": 1.0, "backoff": 0.25})
    bench.submit("a", timeout=10.0)
    bench.advance(1.0)
    first = bench.requests[0]
    assert bench.cancels == [first.command.request_id]
    bench.advance(0.25)
    second = bench.requests[1]
    assert second.command.request_id != first.command.request_id
    assert second.command.timeout_ms == 8750
    bench.say(bench.final(first, b"late"), bench.final(second, b"in time"))
    assert bench.replies["a"].body == b"in time"
    assert bench.replies["a"].attempts == 2
    bench.assert_empty()


def test_when_all_attempts_took_too_long_the_caller_is_told_how_many():
    bench = connected(retry={"attempts": 2, "attempt_timeout": 1.0, "backoff": 0.25})
    bench.submit("a", timeout=10.0)
    bench.advance(2.25)
    error = bench.errors["a"]
    assert str(error) == "no reply from 'echo' to 2 attempts of 1 s"
    assert (error.may_have_executed, error.attempts) == (True, 2)
    assert len(bench.cancels) == 2


def test_a_request_that_cannot_be_repeated_gets_all_its_time_at_once():
    bench = connected(retry={"attempt_timeout": 1.0}, heartbeat=HeartbeatPolicy(interval_s=30.0))
    bench.submit("a", timeout=5.0, idempotent=False)
    bench.advance(4.9)
    assert "a" not in bench.errors
    bench.answer(bench.requests[0])
    assert bench.replies["a"].elapsed == pytest.approx(4.9)


def test_waiting_for_a_connection_is_no_attempt():
    bench = ClientBench(retry={"attempt_timeout": 1.0})
    bench.submit("a", timeout=10.0)
    bench.advance(5.0)
    bench.join()
    assert bench.requests[0].command.timeout_ms == 5000
    bench.answer(bench.requests[0])
    assert bench.replies["a"].attempts == 1
