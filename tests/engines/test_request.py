"""Requests, replies, retry policies and budgets, and the errors of statuses."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requite import errors
from requite.errors import CallError, ConfigurationError
from requite.request import (
    Partial,
    Reply,
    Request,
    RetryBudget,
    RetryPolicy,
    Status,
    error_from_status,
)


@pytest.mark.parametrize("frames", [[b"one"], [b"o", b"", b"ne"]])
def test_the_body_joins_all_frames(frames):
    assert Reply(frames).body == b"one"
    assert Partial(frames, 0).body == b"one"
    assert Request("echo", frames).body == b"one"


def test_progress_calls_the_callback_with_token_and_extension():
    extensions = []
    request = Request("echo", [b""], _token=7, _on_progress=lambda *given: extensions.append(given))
    request.progress()
    request.progress(30.0)
    assert extensions == [(7, 0.0), (7, 30.0)]
    Request("echo", [b""]).progress()  # a request without a lease: no effect


# --- retries --------------------------------------------------------------------------------------
def test_pauses_double_up_to_the_limit():
    policy = RetryPolicy(backoff=0.1, backoff_max=1.0, jitter=0.0)
    pauses = [policy.delay_s(n, lambda: 0.5) for n in range(1, 7)]
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert policy.delay_s(10_000, lambda: 0.5) == 1.0


@given(jitter=st.floats(0, 1), at=st.floats(0, 1, exclude_max=True), retry=st.integers(1, 100))
def test_jitter_shortens_a_pause_by_at_most_its_share(jitter, at, retry):
    policy = RetryPolicy(jitter=jitter)
    full = RetryPolicy(jitter=0.0).delay_s(retry, lambda: at)
    pause = policy.delay_s(retry, lambda: at)
    assert full * (1 - jitter) <= pause <= full


@pytest.mark.parametrize(
    "bad",
    [
        {"attempts": 0},
        {"attempt_timeout": 0.0},
        {"jitter": 1.1},
        {"backoff": -1.0},
        {"budget": -0.1},
        {"budget_burst": -1},
    ],
)
def test_an_invalid_policy_is_refused(bad):
    with pytest.raises(ConfigurationError):
        RetryPolicy(**bad)


@given(
    share=st.sampled_from([0.0, 0.1, 0.25, 1.0]),
    burst=st.integers(0, 5),
    history=st.lists(st.booleans(), max_size=200),
)
def test_retries_never_exceed_the_burst_and_their_share_of_the_calls(share, burst, history):
    budget = RetryBudget(RetryPolicy(budget=share, budget_burst=burst))
    calls = retries = 0
    for is_call in history:
        if is_call:
            budget.earn()
            calls += 1
        else:
            retries += budget.maybe_spend()
        assert retries <= burst + share * calls + 1e-9


def test_calls_refill_a_spent_budget():
    budget = RetryBudget(RetryPolicy(budget=0.5, budget_burst=1))
    assert budget.maybe_spend()
    assert not budget.maybe_spend()
    budget.earn()
    assert not budget.maybe_spend()
    budget.earn()
    assert budget.maybe_spend()


# --- errors ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("status", "kind", "attempts", "may_have_executed"),
    [
        (Status.FAILED, errors.RemoteFailure, 1, True),
        (Status.NO_SERVICE, errors.NoService, 0, False),
        (Status.OVERLOADED, errors.Overloaded, 0, False),
        (Status.EXPIRED, errors.CallTimeout, 0, False),
        (Status.EXPIRED, errors.CallTimeout, 1, True),
        (Status.WORKER_LOST, errors.WorkerLost, 1, True),
        (Status.POISONED, errors.Poisoned, 3, True),
        (Status.CANCELLED, errors.Cancelled, 0, False),
        (Status.CANCELLED, errors.Cancelled, 1, True),
        (Status.SHUTTING_DOWN, errors.Overloaded, 0, False),
        (Status.SHUTTING_DOWN, errors.Overloaded, 1, True),
    ],
)
def test_each_negative_status_has_its_error(status, kind, attempts, may_have_executed):
    error = error_from_status(status, [b"why"], attempts)
    assert type(error) is kind
    assert (str(error), error.attempts) == ("why", attempts)
    assert error.may_have_executed is may_have_executed


def test_every_status_but_ok_has_an_error():
    for status in set(Status) - {Status.OK}:
        assert isinstance(error_from_status(status, [b""], 1), CallError)


def test_errors_survive_pickling():
    error = errors.CallTimeout("late", may_have_executed=False, attempts=2)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is errors.CallTimeout
    assert (str(copy), copy.may_have_executed, copy.attempts) == ("late", False, 2)
    assert copy.request_id == ""
    error.request_id = "37318fdeaa15e1b00000000000000007"
    assert pickle.loads(pickle.dumps(error)).request_id == error.request_id


def test_errors_are_subclasses_of_the_builtin_ones():
    assert issubclass(errors.CallTimeout, TimeoutError)
    assert issubclass(errors.TransportError, ConnectionError)
    assert issubclass(errors.ConfigurationError, ValueError)
