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
def test_a_final_status_is_not_retried(status, attempts, kind, may_have_run):
    bench = connected()
    bench.submit("a")
    bench.answer(bench.requests[0], b"the reason", status, attempts)
    error = bench.errors["a"]
    assert type(error) is kind
    assert (str(error), error.may_have_executed, error.attempts) == ("the reason", may_have_run, 1)
    bench.assert_empty()


@pytest.mark.parametrize("status", [Status.NO_SERVICE, Status.OVERLOADED])
@pytest.mark.parametrize("idempotent", [True, False])
def test_a_request_that_did_not_run_is_retried_with_back_off(status, idempotent):
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


def test_a_reply_carries_the_number_of_attempts():
    bench = connected()
    bench.submit("a")
    bench.answer(bench.requests[0], b"none", Status.NO_SERVICE, 0)
    bench.advance(1.0)
    bench.answer(bench.requests[1])
    assert bench.replies["a"].attempts == 2


@pytest.mark.parametrize(("idempotent", "sent"), [(True, 2), (False, 1)])
def test_after_a_lost_worker_only_idempotent_requests_are_retried(idempotent, sent):
    bench = connected()
    bench.submit("a", idempotent=idempotent)
    bench.answer(bench.requests[0], b"lost", Status.WORKER_LOST)
    bench.advance(10.0)
    assert len(bench.requests) == sent
    assert isinstance(bench.errors.get("a"), WorkerLost) is not idempotent


def test_an_earlier_attempt_that_may_have_run_counts_for_the_error():
    """The worker of the first attempt was lost, and the second attempt was refused: the first may
    have run."""
    bench = connected(retry={"attempts": 2})
    bench.submit("a")
    bench.answer(bench.requests[0], b"lost", Status.WORKER_LOST)
    bench.advance(1.0)
    bench.answer(bench.requests[1], b"none", Status.NO_SERVICE, 0)
    assert isinstance(bench.errors["a"], NoService)
    assert bench.errors["a"].may_have_executed


@pytest.mark.parametrize(("idempotent", "sent"), [(True, 2), (False, 1)])
def test_no_service_after_an_attempt_does_not_exclude_execution(idempotent, sent):
    """NO_SERVICE also answers a request whose worker was lost and not replaced."""
    bench = connected()
    bench.submit("a", idempotent=idempotent)
    bench.answer(bench.requests[0], b"none left", Status.NO_SERVICE, 1)
    bench.advance(10.0)
    assert len(bench.requests) == sent
    assert ("a" in bench.errors) is not idempotent


def test_a_call_fails_at_once_if_the_pause_would_outlast_its_deadline():
    bench = connected(retry={"backoff": 2.0})
    bench.submit("a", timeout=1.0)
    bench.answer(bench.requests[0], b"none", Status.NO_SERVICE, 0)
    assert isinstance(bench.errors["a"], NoService)


def test_a_stream_that_has_begun_is_not_retried():
    bench = connected()
    bench.submit("a", partials=True)
    bench.say(bench.partial(bench.requests[0], b"0", 0))
    bench.answer(bench.requests[0], b"lost", Status.WORKER_LOST)
    assert isinstance(bench.errors["a"], WorkerLost)


def test_all_calls_share_the_retry_budget():
    bench = connected(slots=100, retry={"budget": 0.0, "budget_burst": 3, "backoff": 0.1})
    for token in range(10):
        bench.submit(token)
    for sent in bench.requests:
        bench.answer(sent, b"none", Status.NO_SERVICE, 0)
    bench.advance(1.0)
    assert len(bench.requests) == 13
    assert len(bench.errors) == 7


def test_calls_add_to_the_retry_budget():
    bench = connected(retry={"budget": 0.5, "budget_burst": 1, "backoff": 0.1})
    for token in range(8):
        bench.submit(token)
        bench.answer(bench.requests[-1], b"none", Status.NO_SERVICE, 0)
        bench.advance(0.1)
        if token not in bench.errors:
            bench.answer(bench.requests[-1])
    assert list(bench.replies) == [0, 2, 4, 6]


# --- attempt timeouts -----------------------------------------------------------------------------
def test_an_attempt_that_times_out_is_cancelled_and_retried_with_a_new_id():
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


def test_the_error_gives_the_number_of_attempts_that_timed_out():
    bench = connected(retry={"attempts": 2, "attempt_timeout": 1.0, "backoff": 0.25})
    bench.submit("a", timeout=10.0)
    bench.advance(2.25)
    error = bench.errors["a"]
    assert str(error) == "no reply from 'echo' to 2 attempts of 1 s"
    assert (error.may_have_executed, error.attempts) == (True, 2)
    assert len(bench.cancels) == 2


def test_a_request_that_is_not_idempotent_has_no_attempt_timeout():
    bench = connected(retry={"attempt_timeout": 1.0}, heartbeat=HeartbeatPolicy(interval_s=30.0))
    bench.submit("a", timeout=5.0, idempotent=False)
    bench.advance(4.9)
    assert "a" not in bench.errors
    bench.answer(bench.requests[0])
    assert bench.replies["a"].elapsed == pytest.approx(4.9)


def test_waiting_for_a_connection_does_not_count_as_an_attempt():
    bench = ClientBench(retry={"attempt_timeout": 1.0})
    bench.submit("a", timeout=10.0)
    bench.advance(5.0)
    bench.join()
    assert bench.requests[0].command.timeout_ms == 5000
    bench.answer(bench.requests[0])
    assert bench.replies["a"].attempts == 1
