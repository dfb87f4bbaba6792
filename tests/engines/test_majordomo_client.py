"""The client engine of MDP 0.3: calls, retries, connections, heartbeats, and the end."""

from __future__ import annotations

from math import inf

import pytest
from tests.spec.requirement import requirement
from tests.support.client import ORIGIN, ClientBench

from requite.engine import (
    BulkEngine,
    Cancel,
    PeerBlocked,
    PeerJoined,
    PeerWritable,
    Produced,
    Submit,
)
from requite.errors import (
    CallTimeout,
    Cancelled,
    ConfigurationError,
    LocalViolation,
    NoService,
    Overloaded,
    Poisoned,
    RemoteFailure,
    TransportError,
    WorkerLost,
)
from requite.heartbeat import HeartbeatPolicy
from requite.protocols.majordomo.calls import ClientPolicy
from requite.protocols.majordomo.wire import NOT_IDEMPOTENT, ClientRequest
from requite.request import Status

GONE = Status.SHUTTING_DOWN


def connected(**settings: object) -> ClientBench:
    """Return a client that has a connection and has heard from its broker."""
    bench = ClientBench(eager=True, **settings)  # type: ignore[arg-type]
    bench.advance(0)
    bench.join()
    bench.say(bench.dialect.client_heartbeat(1000))
    return bench


# --- the way there and back -----------------------------------------------------------------------
@requirement("mdp03:client-first")
def test_a_call_connects_sends_and_returns():
    bench = ClientBench()
    assert bench.client.deadline() is None
    bench.submit("a", b"hi", timeout=2.5, key=b"order-17")
    assert (bench.dialling, bench.sent) == (1, [])
    bench.join()
    (sent,) = bench.requests
    request = sent.command
    call_id = ORIGIN + (1).to_bytes(8, "big")
    assert request == ClientRequest(
        b"echo", [b"hi"], request.request_id, 2500, 0, b"order-17", call_id
    )
    bench.advance(0.5)
    bench.answer(sent, b"ho")
    reply = bench.replies["a"]
    assert (reply.body, reply.attempts, reply.elapsed) == (b"ho", 1, 0.5)
    bench.assert_empty()


@pytest.mark.parametrize(("counted", "attempts"), [(0, 1), (1, 1), (3, 3)])
def test_a_reply_tells_how_often_its_request_was_handed_out(counted, attempts):
    bench = connected()
    bench.submit("a")
    bench.answer(bench.requests[0], attempts=counted)
    assert bench.replies["a"].attempts == attempts


def test_an_eager_client_connects_at_its_first_wake():
    bench = ClientBench(eager=True)
    assert bench.client.deadline() == 0.0
    bench.advance(0)
    assert bench.dialling == 1
    assert bench.client.deadline() is None


def test_the_deadline_on_the_wire_is_what_is_left_when_it_is_sent():
    bench = ClientBench()
    bench.submit("a", timeout=2.5)
    bench.advance(1.0)
    bench.join()
    assert bench.requests[0].command.timeout_ms == 1500


def test_a_request_says_that_it_is_not_idempotent():
    bench = connected()
    bench.submit("a", idempotent=False)
    assert bench.requests[0].command.flags == NOT_IDEMPOTENT


@requirement("mdp03:client-id")
def test_many_calls_share_a_connection_and_are_told_apart():
    bench = connected()
    for token in range(10):
        bench.submit(token, b"%d" % token)
    for sent in reversed(bench.requests):
        bench.answer(sent, b"re " + sent.command.body[0])
    assert {token: reply.body for token, reply in bench.replies.items()} == {
        token: b"re %d" % token for token in range(10)
    }
    assert len({sent.command.request_id for sent in bench.requests}) == 10
    assert bench.dialling == 0
    bench.assert_empty()


def test_what_is_fed_in_bulk_has_the_same_effects_as_one_by_one():
    single, bulk = connected(), connected()
    assert isinstance(bulk.client, BulkEngine)
    inputs = [
        Submit("a", "echo", (b"1",), 9.0),
        Submit("b", "echo", (b"2",), 9.0),
        Cancel("a"),
        Submit("c", "echo", (b"3",), 9.0),
    ]
    one_by_one = [effect for each in inputs for effect in single.client.handle(each, 1.0)]
    at_once = list(bulk.client.handle_all(inputs, 1.0))
    assert list(map(repr, at_once)) == list(map(repr, one_by_one))
    assert bulk.client.snapshot() == single.client.snapshot()


def test_several_replies_of_one_read_are_all_delivered():
    bench = connected()
    bench.submit("a")
    bench.submit("b")
    bench.say(*(bench.final(sent) for sent in bench.requests))
    assert bench.replies.keys() == {"a", "b"}


def test_an_empty_body_is_one_empty_frame():
    bench = connected()
    bench.feed(Submit("a", "echo", [], inf))
    assert bench.requests[0].command.body == [b""]


@requirement("mdp03:client-stray")
def test_replies_to_former_uses_of_a_slot_are_ignored():
    bench = connected(slots=1)
    bench.submit("a")
    first = bench.requests[0]
    bench.answer(first)
    bench.submit("b")
    bench.answer(first, b"again")
    bench.say(bench.partial(first, b"again", 0))
    assert "b" not in bench.replies
    bench.answer(bench.requests[1], b"mine")
    assert bench.replies["b"].body == b"mine"
    assert bench.links


# --- partial replies ------------------------------------------------------------------------------
@requirement("mdp03:client-partials")
def test_partials_are_delivered_in_order_before_the_reply():
    bench = connected()
    bench.submit("a", partials=True)
    (sent,) = bench.requests
    bench.say(bench.partial(sent, b"0", 0), bench.partial(sent, b"1", 1))
    bench.answer(sent, b"end")
    assert [partial.body for partial in bench.partials["a"]] == [b"0", b"1"]
    assert bench.replies["a"].frames == [b"end"]


def test_partials_that_nobody_asked_for_are_joined_in_front_of_the_reply():
    bench = connected()
    bench.submit("a")
    (sent,) = bench.requests
    bench.say(bench.partial(sent, b"0", 0), bench.partial(sent, b"1", 1))
    bench.answer(sent, b"end")
    assert bench.replies["a"].frames == [b"0", b"1", b"end"]
    assert not bench.partials["a"]


@pytest.mark.parametrize("index", [0, 2])
def test_a_gap_in_the_partials_is_the_end_of_the_connection(index):
    bench = connected()
    bench.submit("a", partials=True)
    (sent,) = bench.requests
    bench.say(bench.partial(sent, b"0", 0), bench.partial(sent, b"?", index))
    assert "broke the protocol" in bench.disconnected["link-1"]
    error = bench.errors["a"]
    assert isinstance(error, TransportError)
    assert "1 of its partial replies had come" in str(error)


def test_partials_of_a_former_try_are_not_joined_with_those_of_the_next():
    bench = connected()
    bench.submit("a")
    bench.say(bench.partial(bench.requests[0], b"old", 0))
    bench.lose()
    bench.join()
    bench.say(bench.partial(bench.requests[1], b"new", 0))
    bench.answer(bench.requests[1], b"end")
    assert bench.replies["a"].frames == [b"new", b"end"]


# --- slots ----------------------------------------------------------------------------------------
def test_a_call_beyond_the_slots_is_refused():
    bench = connected(slots=2)
    for token in "abc":
        bench.submit(token)
    error = bench.errors["c"]
    assert isinstance(error, Overloaded)
    assert (error.may_have_executed, error.attempts) == (False, 0)
    assert len(bench.requests) == 2


def test_slots_of_calls_whose_deadline_passed_are_reclaimed_when_all_are_taken():
    bench = connected(slots=2)
    bench.submit("a", timeout=1.0)
    bench.submit("b", timeout=9.0)
    bench.now += 2.0  # the wake-up is late
    bench.submit("c")
    assert isinstance(bench.errors["a"], CallTimeout)
    assert bench.bodies() == [b"x"] * 3
    assert bench.client.snapshot().slots_taken == 2


# --- time -----------------------------------------------------------------------------------------
def test_a_call_that_was_never_sent_says_so_when_its_time_is_over():
    bench = ClientBench()
    bench.submit("a", timeout=2.0)
    assert bench.client.deadline() == 102.0
    bench.advance(2.0)
    error = bench.errors["a"]
    assert isinstance(error, CallTimeout)
    assert (error.may_have_executed, error.attempts) == (False, 0)
    assert str(error) == (
        "no reply from 'echo' within 2.000 s;"
        " it was never sent, for want of a connection, and has not run"
    )
    bench.assert_empty()


def test_a_call_that_was_sent_is_cancelled_at_the_broker_when_its_time_is_over():
    bench = connected()
    bench.submit("a", timeout=2.0)
    bench.advance(2.0)
    error = bench.errors["a"]
    assert isinstance(error, CallTimeout)
    assert (error.may_have_executed, error.attempts) == (True, 1)
    assert "it was sent 1 time and may have run" in str(error)
    assert bench.cancels == [bench.requests[0].command.request_id]
    bench.answer(bench.requests[0])  # too late
    assert "a" not in bench.replies


def test_a_deadline_in_the_past_is_not_tried():
    bench = connected()
    bench.submit("a", timeout=0.0)
    assert isinstance(bench.errors["a"], CallTimeout)
    assert not bench.errors["a"].may_have_executed
    assert not bench.requests


def test_deadlines_pass_in_their_order_whatever_the_order_of_the_calls():
    bench = connected()
    for seconds in (5, 1, 3, 2, 4):
        bench.submit(seconds, timeout=float(seconds))
    bench.advance(10.0)
    assert list(bench.errors) == [1, 2, 3, 4, 5]
    assert [round(n.facts["attempts"]) for n in bench.notes if n.kind == "failed"] == [1] * 5


# --- cancel and close -----------------------------------------------------------------------------
def test_a_cancelled_call_fails_once_and_is_cancelled_at_the_broker():
    bench = connected()
    bench.submit("a")
    bench.cancel("a")
    bench.cancel("a")
    assert isinstance(bench.errors["a"], Cancelled)
    assert bench.errors["a"].may_have_executed
    assert bench.cancels == [bench.requests[0].command.request_id]
    bench.assert_empty()


def test_a_call_cancelled_before_it_was_sent_is_never_sent():
    bench = ClientBench()
    bench.submit("a")
    bench.cancel("a")
    assert not bench.errors["a"].may_have_executed
    bench.join()
    assert not bench.sent


def test_a_held_call_whose_deadline_has_passed_unnoticed_is_not_sent():
    """I15: the connection comes in the same turn as a timer that is late."""
    bench = ClientBench()
    bench.submit("late", b"late", timeout=1.0)
    bench.submit("in time", b"in time", timeout=9.0)
    bench.now += 1.5
    bench.join()
    assert bench.bodies() == [b"in time"]


def test_closing_ends_every_call_and_refuses_new_ones():
    bench = connected(retry={"backoff": 5.0})
    for token in ("sent", "resting"):
        bench.submit(token)
    bench.answer(bench.requests[1], b"none", Status.NO_SERVICE, 0)
    bench.drain()
    assert {t: (type(e), e.may_have_executed) for t, e in bench.errors.items()} == {
        "sent": (Cancelled, True),
        "resting": (Cancelled, False),
    }
    assert bench.stopped
    assert bench.links == []
    assert bench.client.deadline() is None
    bench.submit("late")
    assert isinstance(bench.errors["late"], Cancelled)
    bench.assert_empty()


def test_a_connection_that_comes_after_the_end_is_closed():
    bench = ClientBench()
    bench.submit("a")
    bench.drain()
    link = bench.join()
    assert link in bench.disconnected
    assert not bench.sent


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
    """First lost with its worker, then refused: the refusal does not undo what may have been."""
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


# --- the broker is shutting down ------------------------------------------------------------------
@requirement("mdp03:client-drain")
@pytest.mark.parametrize(("idempotent", "attempts"), [(True, 0), (True, 1), (False, 0)])
def test_what_a_broker_gives_back_goes_to_the_next_one(idempotent, attempts):
    bench = connected(retry={"attempts": 1, "budget": 0.0, "budget_burst": 0})
    bench.submit("a", b"a", timeout=10.0, idempotent=idempotent)
    bench.answer(bench.requests[0], b"the broker is shutting down", GONE, attempts)
    assert bench.disconnected == {"link-1": "the broker is shutting down"}
    assert bench.dialling == 0  # there is a pause
    bench.submit("b", b"b", timeout=10.0)
    bench.advance(0.2)
    assert bench.dialling == 1
    bench.join()
    assert bench.bodies() == [b"a", b"a", b"b"]
    for sent in bench.requests[1:]:
        bench.answer(sent)
    assert [bench.replies[token].attempts for token in "ab"] == [1, 1]
    bench.assert_empty()


@requirement("mdp03:client-drain")
def test_what_may_have_run_and_must_not_run_twice_ends_with_its_broker():
    bench = connected()
    bench.submit("a", idempotent=False)
    bench.answer(bench.requests[0], b"the broker is shutting down", GONE, 1)
    error = bench.errors["a"]
    assert isinstance(error, TransportError)
    assert (error.may_have_executed, error.attempts) == (True, 1)
    assert str(error) == (
        "the broker is shutting down; the request may have run, and is not idempotent"
    )
    bench.assert_empty()


def test_a_stream_that_has_begun_ends_with_its_broker():
    bench = connected()
    bench.submit("a", partials=True)
    bench.say(bench.partial(bench.requests[0], b"0", 0))
    bench.answer(bench.requests[0], b"the broker is shutting down", GONE, 1)
    assert isinstance(bench.errors["a"], TransportError)
    assert bench.errors["a"].may_have_executed


@requirement("mdp03:client-drain")
def test_a_broker_that_shuts_down_still_answers_what_it_has():
    bench = connected()
    bench.submit("first", b"first")
    bench.submit("second", b"second")
    first, second = bench.requests
    bench.answer(second, b"bye", GONE, 0)
    bench.submit("third", b"third")
    assert (bench.links, bench.bodies()) == (["link-1"], [b"first", b"second"])
    bench.answer(first, b"done")
    assert bench.replies["first"].body == b"done"
    assert bench.links == []
    bench.advance(0.2)
    bench.join()
    assert bench.bodies()[2:] == [b"second", b"third"]


@pytest.mark.parametrize("how", ["cancel", "deadline"])
def test_it_is_left_as_soon_as_nobody_waits_for_it_any_more(how):
    bench = connected()
    bench.submit("first", timeout=1.0)
    bench.submit("second")
    bench.answer(bench.requests[1], b"bye", GONE, 0)
    if how == "cancel":
        bench.cancel("first")
    bench.advance(0.0 if how == "cancel" else 1.0)
    assert len(bench.cancels) == 1
    assert bench.links == []
    bench.advance(0.2)
    assert bench.dialling == 1


def test_a_broker_that_leaves_first_is_replaced_at_once():
    bench = connected()
    bench.submit("first")
    bench.submit("second")
    bench.answer(bench.requests[1], b"bye", GONE, 0)
    bench.lose()
    assert bench.dialling == 1
    bench.join()
    assert len(bench.requests) == 4
    for sent in bench.requests[2:]:
        bench.answer(sent)
    assert [bench.replies[token].attempts for token in ("first", "second")] == [2, 1]


def test_a_broker_that_goes_on_shutting_down_is_asked_at_growing_intervals_below_a_second():
    bench = connected(retry={"budget": 0.0, "budget_burst": 0})
    bench.submit("a", timeout=20.0)
    pauses = []
    for _ in range(8):
        bench.answer(bench.requests[-1], b"bye", GONE, 0)
        left_at = bench.now
        while not bench.dialling:
            bench.advance(bench.client.deadline() - bench.now)
        pauses.append(bench.now - left_at)
        bench.join()
    assert pauses == pytest.approx([0.075, 0.15, 0.3, 0.6, 0.6, 0.6, 0.6, 0.6])
    bench.answer(bench.requests[-1])
    assert bench.replies["a"].attempts == 1


def test_the_deadline_bounds_the_wait_for_another_broker():
    bench = connected()
    bench.submit("a", timeout=1.0)
    bench.answer(bench.requests[0], b"bye", GONE, 0)
    bench.advance(1.0)
    error = bench.errors["a"]
    assert isinstance(error, CallTimeout)
    assert not error.may_have_executed
    assert str(error) == "no reply from 'echo' within 1.000 s; it was sent 1 time and has not run"


def test_closing_a_client_that_is_leaving_its_broker():
    bench = connected()
    bench.submit("a")
    bench.submit("b")
    bench.answer(bench.requests[1], b"bye", GONE, 0)
    bench.drain()
    assert isinstance(bench.errors["b"], Cancelled)
    assert not bench.errors["b"].may_have_executed
    assert bench.errors["a"].may_have_executed
    assert bench.client.deadline() is None
    bench.assert_empty()


# --- a connection is lost -------------------------------------------------------------------------
@requirement("mdp03:client-resend")
def test_after_a_lost_connection_the_idempotent_is_sent_again_and_the_other_fails():
    bench = connected()
    bench.submit("safe", b"safe", timeout=10.0)
    bench.submit("once", b"once", timeout=10.0, idempotent=False)
    bench.advance(1.0)
    bench.lose()
    error = bench.errors["once"]
    assert isinstance(error, TransportError)
    assert (error.may_have_executed, error.attempts) == (True, 1)
    assert str(error) == (
        "the connection to the broker was lost: reset;"
        " the request may have run, and is not idempotent"
    )
    assert bench.dialling == 1
    bench.advance(1.0)
    bench.join()
    assert bench.bodies() == [b"safe", b"once", b"safe"]
    assert bench.requests[-1].command.timeout_ms == 8000
    bench.answer(bench.requests[-1])
    assert bench.replies["safe"].attempts == 2


def test_what_was_only_waiting_is_not_touched_by_a_lost_connection():
    bench = ClientBench(retry={"attempts": 1})
    bench.submit("a", idempotent=False)
    bench.join()
    bench.lose()
    assert isinstance(bench.errors["a"], TransportError)
    bench.submit("b", idempotent=False)
    bench.advance(1.0)
    bench.join()
    bench.answer(bench.requests[-1])
    assert bench.replies["b"].attempts == 1


def test_calls_go_out_in_the_order_of_submission_the_repeated_ones_first():
    bench = connected()
    for n in range(3):
        bench.submit(n, b"%d" % n)
    bench.answer(bench.requests[0])  # frees the first slot for the next call
    bench.submit(3, b"3")
    bench.lose()
    bench.submit(4, b"4")
    bench.sent.clear()
    bench.join()
    assert bench.bodies() == [b"1", b"2", b"3", b"4"]


def test_an_old_reply_cannot_be_taken_for_that_of_the_repeated_request():
    bench = connected()
    bench.submit("a")
    old = bench.requests[0]
    bench.lose()
    bench.join()
    bench.say(bench.final(old, b"from another life"))
    assert "a" not in bench.replies


def test_a_request_is_not_repeated_for_ever():
    bench = connected(retry={"attempts": 2})
    bench.submit("a")
    bench.lose()
    bench.join()
    bench.lose()
    error = bench.errors["a"]
    assert isinstance(error, TransportError)
    assert "sent 2 times, which is the limit" in str(error)


def test_a_retry_whose_pause_ends_without_a_connection_waits_for_one():
    bench = connected(retry={"backoff": 0.5})
    bench.submit("a")
    bench.answer(bench.requests[0], b"none", Status.NO_SERVICE, 0)
    bench.lose()
    bench.advance(1.0)
    assert len(bench.requests) == 1
    bench.join()
    assert len(bench.requests) == 2


def test_a_connection_that_worked_is_replaced_at_once_and_others_ever_later():
    bench = connected()
    bench.lose()
    assert bench.dialling == 1
    pauses = []
    for _ in range(4):
        bench.join()
        lost_at = bench.now
        bench.lose()
        while not bench.dialling:
            bench.advance(bench.client.deadline() - bench.now)
        pauses.append(round(bench.now - lost_at, 3))
    assert pauses == sorted(pauses)
    assert 0 < pauses[0] < pauses[-1] < 2


def test_a_connection_that_was_quiet_for_long_is_replaced_at_once():
    bench = connected()
    for _ in range(5):
        bench.lose()
        assert bench.dialling == 1
        bench.join()
        bench.advance(60.0)


# --- a broker that misbehaves ---------------------------------------------------------------------
def test_garbage_ends_the_connection_and_the_calls_go_on_over_the_next():
    bench = connected()
    bench.submit("a")
    bench.say([b"what is this"])
    assert bench.warnings[0].kind == "malformed"
    assert "link-1" in bench.disconnected
    bench.join()
    bench.answer(bench.requests[-1])
    assert bench.replies["a"].attempts == 2


def test_what_a_closed_connection_still_brings_is_ignored():
    bench = connected()
    bench.submit("a")
    sent = bench.requests[0]
    bench.say([b"garbage"], bench.final(sent))
    bench.say(bench.final(sent), link="link-1")
    assert "a" not in bench.replies


# --- heartbeats -----------------------------------------------------------------------------------
@requirement("mdp03:client-heartbeat")
def test_a_client_asks_only_while_it_waits():
    bench = connected()
    bench.advance(60.0)
    assert bench.heartbeats == 0
    bench.submit("a")
    for _ in range(5):
        bench.advance(1.0)
        bench.say(bench.dialect.client_heartbeat(1000))
    assert bench.heartbeats == 5
    bench.answer(bench.requests[0])
    bench.advance(60.0)
    assert bench.heartbeats == 5
    assert bench.links == ["link-1"]
    assert bench.client.deadline() is None


@requirement("mdp03:client-heartbeat")
def test_a_broker_that_stays_silent_is_left_and_the_calls_go_to_the_next():
    bench = connected()
    bench.submit("a")
    bench.submit("b", idempotent=False)
    bench.advance(2.9)
    assert bench.links == ["link-1"]
    bench.advance(0.1)
    assert "nothing came from the broker for 3.00 s" in bench.disconnected["link-1"]
    assert isinstance(bench.errors["b"], TransportError)
    bench.join()
    bench.answer(bench.requests[-1])
    assert bench.replies["a"].attempts == 2


def test_who_sends_all_the_time_still_asks_before_it_judges():
    """Requests are not answered until they are done: only a HEARTBEAT asks for a sign of life."""
    bench = connected()
    for n in range(30):
        bench.submit(n)
        bench.advance(0.25)
        if bench.heartbeats and n % 4 == 0:
            bench.say(bench.dialect.client_heartbeat(1000))
    assert bench.heartbeats >= 5
    assert bench.links == ["link-1"]


def test_a_client_that_was_frozen_does_not_blame_the_broker():
    bench = connected()
    bench.submit("a", timeout=100.0)
    bench.advance(0.5)
    bench.freeze(50.0)
    assert bench.links == ["link-1"]
    bench.answer(bench.requests[0])
    assert "a" in bench.replies


def test_silence_before_a_call_is_not_held_against_the_broker():
    bench = connected()
    bench.submit("a")
    bench.answer(bench.requests[0])
    bench.advance(30.0)
    bench.submit("b")
    bench.advance(2.5)
    assert bench.links == ["link-1"]


# --- misuse ---------------------------------------------------------------------------------------
def test_a_token_cannot_be_used_twice_at_a_time():
    bench = connected()
    bench.submit("a")
    with pytest.raises(LocalViolation, match="'a' is still outstanding"):
        bench.submit("a")


@pytest.mark.parametrize("service", ["", "x" * 256, "tab\tbed"])
def test_a_bad_service_name_is_refused(service):
    with pytest.raises(LocalViolation, match="service name"):
        connected().submit("a", service=service)


def test_a_key_that_does_not_fit_is_refused_and_takes_no_slot():
    bench = connected()
    with pytest.raises(LocalViolation, match="255"):
        bench.submit("a", key=b"k" * 256)
    bench.assert_empty()


def test_an_input_of_another_role_is_refused():
    with pytest.raises(LocalViolation, match="no use"):
        connected().feed(Produced("a", [b""]))


def test_a_policy_without_connections_is_refused():
    with pytest.raises(ConfigurationError):
        ClientPolicy(connections_max=0)


def test_back_pressure_changes_nothing():
    bench = connected()
    bench.feed(PeerBlocked("link-1"))
    bench.submit("a")
    bench.feed(PeerWritable("link-1"))
    assert len(bench.requests) == 1


def test_a_second_connection_is_not_kept():
    bench = connected()
    bench.links.append("uninvited")
    bench.feed(PeerJoined("uninvited"))
    assert "uninvited" in bench.disconnected


def test_the_cache_of_service_names_is_bounded():
    bench = connected(slots=3000)
    for n in range(2500):
        bench.submit(n, service=f"s{n}")
        bench.answer(bench.requests[-1])
    assert len(bench.client._names) <= 1024
    assert bench.requests[-1].command.service == b"s2499"


# --- notes ----------------------------------------------------------------------------------------
def test_notes_tell_the_story_of_a_call():
    bench = connected()
    bench.submit("a")
    bench.answer(bench.requests[0], b"none", Status.NO_SERVICE, 0)
    bench.advance(1.0)
    bench.answer(bench.requests[1])
    assert [note.kind for note in bench.notes] == ["sent", "retried", "sent", "replied"]
    assert all(note.facts["token"] == "a" for note in bench.notes)


def test_without_notes_there_are_none():
    bench = connected(notes=False)
    bench.submit("a")
    bench.answer(bench.requests[0])
    bench.submit("b")
    bench.cancel("b")
    assert not bench.notes


def test_no_service_is_the_answer_when_another_wait_would_outlast_the_deadline():
    bench = connected()
    bench.submit("a", timeout=30)
    for number in (0, 1):
        for _ in range(10):
            bench.advance(1)
            bench.say(bench.dialect.client_heartbeat(1000))
        bench.answer(bench.requests[number], b"none", Status.NO_SERVICE, 0)
        bench.advance(0.1)
    error = bench.errors["a"]
    assert isinstance(error, NoService)
    assert not error.may_have_executed
    bench.assert_empty()


@requirement("mdp03:client-slow")
def test_a_broker_that_is_still_taking_a_large_body_is_not_given_up():
    bench = connected()
    bench.submit("a", timeout=60.0)
    (link,) = {sent.link for sent in bench.requests}
    bench.feed(PeerBlocked(link))
    bench.advance(20.0)
    assert not bench.disconnected
    bench.feed(PeerWritable(link))
    bench.advance(20.0)
    assert bench.disconnected
