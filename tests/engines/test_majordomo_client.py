"""The client engine of MDP 0.3: calls, slots, deadlines, cancels, and closing."""

from __future__ import annotations

from math import inf

import pytest
from tests.spec.requirement import requirement
from tests.support.client import ORIGIN, ClientBench, connected

from requite.engine import (
    Cancel,
    Cause,
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
    TransportError,
)
from requite.protocols.majordomo.calls import ClientPolicy
from requite.protocols.majordomo.wire import NOT_IDEMPOTENT, ClientHeartbeat, ClientRequest
from requite.request import Status


# --- calls and replies ----------------------------------------------------------------------------
@requirement("mdp03:client-first")
def test_a_call_connects_sends_and_gets_its_reply():
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
def test_a_reply_carries_the_number_of_attempts(counted, attempts):
    bench = connected()
    bench.submit("a")
    bench.answer(bench.requests[0], attempts=counted)
    assert bench.replies["a"].attempts == attempts


def test_an_error_has_the_id_of_its_request_as_journals_have_it():
    bench = connected()
    bench.submit("a")
    bench.answer(bench.requests[0], status=Status.FAILED, body=b"out of stock")
    bench.submit("b", timeout=1.0)
    bench.advance(1.0)
    ids = [sent.command.call_id.hex() for sent in bench.requests]
    assert [bench.errors[token].request_id for token in ("a", "b")] == ids
    assert all(each.startswith(ORIGIN.hex()) for each in ids)


def test_the_timeout_is_the_remaining_time_when_the_request_is_sent():
    bench = ClientBench()
    bench.submit("a", timeout=2.5)
    bench.advance(1.0)
    bench.join()
    assert bench.requests[0].command.timeout_ms == 1500


def test_hold_back_shortens_the_timeout_sent_to_the_broker():
    bench = ClientBench(hold_back=0.1)
    bench.submit("a", timeout=11.0)
    bench.advance(1.0)
    bench.join()
    assert bench.requests[0].command.timeout_ms == 9000
    bench.advance(0.5)
    bench.answer(bench.requests[0], status=Status.EXPIRED, body=b"queued", attempts=0)
    assert not bench.errors["a"].may_have_executed


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_hold_back_must_be_at_least_0_and_below_1(share):
    with pytest.raises(ConfigurationError, match="a number from 0 to below 1"):
        ClientPolicy(hold_back=share)


def test_a_request_that_is_not_idempotent_is_flagged():
    bench = connected()
    bench.submit("a", idempotent=False)
    assert bench.requests[0].command.flags == NOT_IDEMPOTENT


@requirement("mdp03:client-id")
def test_many_calls_share_a_connection():
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


def test_inputs_in_bulk_have_the_same_effects_as_one_by_one():
    single, bulk = connected(), connected()
    inputs = [
        Submit("a", "echo", (b"1",), 9.0),
        Submit("b", "echo", (b"2",), 9.0),
        Cancel("a"),
        Submit("c", "echo", (b"3",), 9.0),
    ]
    one_by_one = [effect for each in inputs for effect in single.client.handle([each], 1.0)]
    at_once = list(bulk.client.handle(inputs, 1.0))
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
def test_replies_to_a_former_call_of_a_slot_are_ignored():
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


def test_partials_not_asked_for_are_joined_with_the_reply():
    bench = connected()
    bench.submit("a")
    (sent,) = bench.requests
    bench.say(bench.partial(sent, b"0", 0), bench.partial(sent, b"1", 1))
    bench.answer(sent, b"end")
    assert bench.replies["a"].frames == [b"0", b"1", b"end"]
    assert not bench.partials["a"]


@pytest.mark.parametrize("index", [0, 2])
def test_a_gap_in_the_partials_closes_the_connection(index):
    bench = connected()
    bench.submit("a", partials=True)
    (sent,) = bench.requests
    bench.say(bench.partial(sent, b"0", 0), bench.partial(sent, b"?", index))
    assert "broke the protocol" in bench.disconnected["link-1"]
    assert bench.causes["link-1"] is Cause.FAULTY
    error = bench.errors["a"]
    assert isinstance(error, TransportError)
    assert "1 of the request's partial replies had" in str(error)


def test_partials_of_different_attempts_are_not_joined():
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


def test_slots_of_expired_calls_are_reclaimed_when_all_are_taken():
    bench = connected(slots=2)
    bench.submit("a", timeout=1.0)
    bench.submit("b", timeout=9.0)
    bench.now += 2.0  # the timer is late
    bench.submit("c")
    assert isinstance(bench.errors["a"], CallTimeout)
    assert bench.bodies() == [b"x"] * 3
    assert bench.client.snapshot().slots_taken == 2


# --- deadlines ------------------------------------------------------------------------------------
def test_an_unsent_call_that_expires_has_not_run():
    bench = ClientBench()
    bench.submit("a", timeout=2.0)
    assert bench.client.deadline() == 102.0
    bench.advance(2.0)
    error = bench.errors["a"]
    assert isinstance(error, CallTimeout)
    assert (error.may_have_executed, error.attempts) == (False, 0)
    assert str(error) == (
        "no reply from 'echo' within 2.000 s;"
        " the request was never sent, because there was no connection, and has not run"
    )
    bench.assert_empty()


def test_a_sent_call_that_expires_is_cancelled_at_the_broker():
    bench = connected()
    bench.submit("a", timeout=2.0)
    bench.advance(2.0)
    error = bench.errors["a"]
    assert isinstance(error, CallTimeout)
    assert (error.may_have_executed, error.attempts) == (True, 1)
    assert "the request was sent 1 time and may have run" in str(error)
    assert bench.cancels == [bench.requests[0].command.request_id]
    bench.answer(bench.requests[0])  # too late
    assert "a" not in bench.replies


def test_a_call_whose_deadline_has_passed_is_not_sent():
    bench = connected()
    bench.submit("a", timeout=0.0)
    assert isinstance(bench.errors["a"], CallTimeout)
    assert not bench.errors["a"].may_have_executed
    assert not bench.requests


def test_calls_expire_in_the_order_of_their_deadlines():
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


def test_a_call_cancelled_before_sending_is_not_sent():
    bench = ClientBench()
    bench.submit("a")
    bench.cancel("a")
    assert not bench.errors["a"].may_have_executed
    bench.join()
    assert not bench.sent


def test_a_waiting_call_that_has_expired_is_not_sent():
    """I15: the connection is established in the same turn as the late timer."""
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


def test_a_connection_established_after_closing_is_closed():
    bench = ClientBench()
    bench.submit("a")
    bench.drain()
    link = bench.join()
    assert link in bench.disconnected
    assert not bench.sent


# --- misuse ---------------------------------------------------------------------------------------
def test_a_token_in_use_is_refused():
    bench = connected()
    bench.submit("a")
    with pytest.raises(LocalViolation, match="'a' belongs to a call"):
        bench.submit("a")


@pytest.mark.parametrize("service", ["", "x" * 256, "tab\tbed"])
def test_an_invalid_service_name_is_refused(service):
    with pytest.raises(LocalViolation, match="service name"):
        connected().submit("a", service=service)


def test_a_key_over_255_bytes_is_refused_and_takes_no_slot():
    bench = connected()
    with pytest.raises(LocalViolation, match="255"):
        bench.submit("a", key=b"k" * 256)
    bench.assert_empty()


def test_an_input_of_another_role_is_refused():
    with pytest.raises(LocalViolation, match="does not handle the input"):
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


def test_a_second_connection_is_closed():
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
def test_notes_are_emitted_for_each_step_of_a_call():
    bench = connected()
    bench.submit("a")
    bench.answer(bench.requests[0], b"none", Status.NO_SERVICE, 0)
    bench.advance(1.0)
    bench.answer(bench.requests[1])
    assert [note.kind for note in bench.notes] == ["sent", "retried", "sent", "replied"]
    assert all(note.facts["token"] == "a" for note in bench.notes)


def test_notes_can_be_turned_off():
    bench = connected(notes=False)
    bench.submit("a")
    bench.answer(bench.requests[0])
    bench.submit("b")
    bench.cancel("b")
    assert not bench.notes


def test_a_call_fails_with_no_service_if_a_retry_would_outlast_the_deadline():
    bench = connected()
    bench.submit("a", timeout=30)
    for number in (0, 1):
        for _ in range(10):
            bench.advance(1)
            bench.say(bench.dialect.encode(ClientHeartbeat(1000)))
        bench.answer(bench.requests[number], b"none", Status.NO_SERVICE, 0)
        bench.advance(0.1)
    error = bench.errors["a"]
    assert isinstance(error, NoService)
    assert not error.may_have_executed
    bench.assert_empty()


@requirement("mdp03:client-slow")
def test_a_broker_that_still_receives_a_large_body_does_not_time_out():
    bench = connected()
    bench.submit("a", timeout=60.0)
    (link,) = {sent.link for sent in bench.requests}
    bench.feed(PeerBlocked(link))
    bench.advance(20.0)
    assert not bench.disconnected
    bench.feed(PeerWritable(link))
    bench.advance(20.0)
    assert bench.disconnected
