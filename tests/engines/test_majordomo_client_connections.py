"""The client engine of MDP 0.3: brokers that shut down, are lost, misbehave or are silent."""

from __future__ import annotations

import pytest
from tests.spec.requirement import requirement
from tests.support.client import ClientBench, connected

from requite.engine import Cause
from requite.errors import (
    CallTimeout,
    Cancelled,
    TransportError,
)
from requite.protocols.majordomo.wire import ClientHeartbeat
from requite.request import Status

GONE = Status.SHUTTING_DOWN


# --- the broker is shutting down ------------------------------------------------------------------
@requirement("mdp03:client-drain")
@pytest.mark.parametrize(("idempotent", "attempts"), [(True, 0), (True, 1), (False, 0)])
def test_requests_refused_by_a_broker_that_shuts_down_are_resent_to_the_next(idempotent, attempts):
    bench = connected(retry={"attempts": 1, "budget": 0.0, "budget_burst": 0})
    bench.submit("a", b"a", timeout=10.0, idempotent=idempotent)
    bench.answer(bench.requests[0], b"the broker is shutting down", GONE, attempts)
    assert bench.disconnected == {"link-1": "the broker is shutting down"}
    assert bench.dialling == 0  # the client waits before it dials
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
def test_a_request_that_is_not_idempotent_and_may_have_run_fails_when_its_broker_shuts_down():
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


def test_a_stream_that_has_begun_fails_when_its_broker_shuts_down():
    bench = connected()
    bench.submit("a", partials=True)
    bench.say(bench.partial(bench.requests[0], b"0", 0))
    bench.answer(bench.requests[0], b"the broker is shutting down", GONE, 1)
    assert isinstance(bench.errors["a"], TransportError)
    assert bench.errors["a"].may_have_executed


@requirement("mdp03:client-drain")
def test_the_client_awaits_pending_replies_of_a_broker_that_shuts_down():
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
def test_the_client_disconnects_when_no_pending_call_is_left(how):
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


def test_a_broker_that_disconnects_first_is_replaced_at_once():
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


def test_reconnects_to_a_broker_that_shuts_down_back_off_below_a_second():
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
    assert (
        str(error)
        == "no reply from 'echo' within 1.000 s; the request was sent 1 time and has not run"
    )


def test_closing_while_the_client_leaves_its_broker_cancels_all_calls():
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


# --- lost connections -----------------------------------------------------------------------------
@requirement("mdp03:client-resend")
def test_after_a_lost_connection_only_idempotent_requests_are_resent():
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


def test_an_unsent_call_survives_a_lost_connection():
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


def test_resent_requests_go_first_in_order_of_submission():
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


def test_a_reply_to_a_former_attempt_does_not_match_the_resent_request():
    bench = connected()
    bench.submit("a")
    old = bench.requests[0]
    bench.lose()
    bench.join()
    bench.say(bench.final(old, b"from another life"))
    assert "a" not in bench.replies


def test_a_call_fails_after_its_attempts():
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


def test_a_working_connection_is_replaced_at_once_and_failing_ones_with_back_off():
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


def test_a_connection_that_lasted_long_is_replaced_at_once():
    bench = connected()
    for _ in range(5):
        bench.lose()
        assert bench.dialling == 1
        bench.join()
        bench.advance(60.0)


# --- malformed messages ---------------------------------------------------------------------------
def test_a_malformed_message_closes_the_connection_and_calls_move_to_the_next():
    bench = connected()
    bench.submit("a")
    bench.say([b"what is this"])
    assert bench.warnings[0].kind == "malformed"
    assert "link-1" in bench.disconnected
    bench.join()
    bench.answer(bench.requests[-1])
    assert bench.replies["a"].attempts == 2


def test_messages_of_a_closed_connection_are_ignored():
    bench = connected()
    bench.submit("a")
    sent = bench.requests[0]
    bench.say([b"garbage"], bench.final(sent))
    bench.say(bench.final(sent), link="link-1")
    assert "a" not in bench.replies


# --- heartbeats -----------------------------------------------------------------------------------
@requirement("mdp03:client-heartbeat")
def test_a_client_sends_heartbeats_only_while_calls_are_pending():
    bench = connected()
    bench.advance(60.0)
    assert bench.heartbeats == 0
    bench.submit("a")
    for _ in range(5):
        bench.advance(1.0)
        bench.say(bench.dialect.encode(ClientHeartbeat(1000)))
    assert bench.heartbeats == 5
    bench.answer(bench.requests[0])
    bench.advance(60.0)
    assert bench.heartbeats == 5
    assert bench.links == ["link-1"]
    assert bench.client.deadline() is None


@requirement("mdp03:client-heartbeat")
def test_calls_move_to_another_connection_after_the_broker_times_out():
    bench = connected()
    bench.submit("a")
    bench.submit("b", idempotent=False)
    bench.advance(2.9)
    assert bench.links == ["link-1"]
    bench.advance(0.1)
    assert "nothing came from the broker for 3.00 s" in bench.disconnected["link-1"]
    assert bench.causes["link-1"] is Cause.SILENT
    assert isinstance(bench.errors["b"], TransportError)
    bench.join()
    bench.answer(bench.requests[-1])
    assert bench.replies["a"].attempts == 2


HINT = "if it supports only 0.2 (RFC 18) or 0.1 (RFC 7), set that dialect: --dialect"


def test_errors_suggest_another_dialect_for_a_broker_that_never_sent_a_message():
    bench = ClientBench()
    bench.submit("a", timeout=4.5)
    bench.submit("b", idempotent=False)
    bench.join()
    bench.advance(3.0)  # now the broker has timed out
    bench.advance(1.0)
    bench.join()
    bench.advance(0.5)
    assert isinstance(bench.errors["a"], CallTimeout)
    assert isinstance(bench.errors["b"], TransportError)
    bench.submit("c", timeout=0.5)
    bench.advance(0.5)
    assert sorted(bench.errors) == ["a", "b", "c"]
    for error in bench.errors.values():
        assert error.may_have_executed
        assert error.says_what_to_do
        assert HINT in str(error)


@pytest.mark.parametrize("timeout", [0.9, 1.5, 2.9])
def test_another_dialect_is_not_suspected_before_the_broker_times_out(timeout):
    bench = ClientBench()
    bench.submit("a", timeout=timeout)
    bench.join()
    bench.advance(timeout)
    assert "dialect" not in str(bench.errors["a"])
    assert not bench.errors["a"].says_what_to_do


def test_another_dialect_is_not_suspected_after_a_lost_connection():
    bench = ClientBench()
    bench.submit("a", timeout=6.0)
    bench.join()
    for _ in range(2):
        bench.advance(1.5)
        bench.lose()
        bench.advance(0.5)
        bench.join()
    bench.advance(2.0)
    assert isinstance(bench.errors["a"], CallTimeout)
    assert "dialect" not in str(bench.errors["a"])


def test_another_dialect_is_not_suspected_once_the_broker_has_sent_a_message():
    bench = ClientBench()
    bench.submit("a")
    bench.join()
    bench.answer(bench.requests[0])
    bench.submit("b", timeout=3.5)
    bench.submit("c", idempotent=False)
    bench.advance(3.0)
    bench.join()  # the broker has sent messages on an earlier connection
    bench.advance(0.5)
    assert sorted(bench.errors) == ["b", "c"]
    assert not any("dialect" in str(error) for error in bench.errors.values())


def test_heartbeats_are_sent_also_while_requests_are_sent():
    """The broker answers a request only when it is done, so only a HEARTBEAT checks liveness."""
    bench = connected()
    for n in range(30):
        bench.submit(n)
        bench.advance(0.25)
        if bench.heartbeats and n % 4 == 0:
            bench.say(bench.dialect.encode(ClientHeartbeat(1000)))
    assert bench.heartbeats >= 5
    assert bench.links == ["link-1"]


def test_a_pause_of_the_client_does_not_count_as_silence_of_the_broker():
    bench = connected()
    bench.submit("a", timeout=100.0)
    bench.advance(0.5)
    bench.freeze(50.0)
    assert bench.links == ["link-1"]
    bench.answer(bench.requests[0])
    assert "a" in bench.replies


def test_silence_before_a_call_does_not_count():
    bench = connected()
    bench.submit("a")
    bench.answer(bench.requests[0])
    bench.advance(30.0)
    bench.submit("b")
    bench.advance(2.5)
    assert bench.links == ["link-1"]
