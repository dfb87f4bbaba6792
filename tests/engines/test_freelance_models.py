"""Models one (failover: servers in turn) and two (shotgun: all servers at once)."""

from __future__ import annotations

import pytest
from tests.support.freelance_engines import ClientBench

from requite.engine import PeerBlocked, PeerLost, PeerWritable, Submit
from requite.errors import CallTimeout, Cancelled, LocalViolation, TransportError
from requite.protocols.freelance.failover import FailoverClient
from requite.protocols.freelance.shotgun import ShotgunClient


def failover(servers: int = 2, **policy: object) -> ClientBench:
    tries = 3 if servers == 1 else servers
    return ClientBench(
        FailoverClient, **{"servers": servers, "attempts": tries, "attempt_timeout": 1.0, **policy}
    )


def shotgun(servers: int = 3, **policy: object) -> ClientBench:
    return ClientBench(ShotgunClient, servers=servers, **policy)


# --- model one ------------------------------------------------------------------------------------
def test_all_calls_go_to_the_first_server() -> None:
    b = failover()
    b.join("a")
    b.join("b")
    for token in range(3):
        b.submit(token, b"hi", b"there")
        b.answer("a", b"ho")
    assert b.to("a") == [[b"hi", b"there"]] * 3
    assert b.to("b") == []
    assert b.replies[0].body == b"ho"
    b.assert_empty()


def test_after_a_timeout_the_call_moves_on_and_the_connection_is_closed() -> None:
    b = failover()
    b.join("a")
    b.join("b")
    b.submit(1)
    b.advance(1.1)
    assert "given up" in b.disconnected["a"]
    assert len(b.to("b")) == 1
    b.answer("b")
    assert b.replies[1].attempts == 2


def test_later_calls_skip_a_server_that_timed_out() -> None:
    b = failover()
    b.join("a")
    b.join("b")
    b.submit(1)
    b.advance(1.1)
    b.answer("b")
    b.join("a2", place="a")
    b.submit(2)
    assert len(b.to("b")) == 2
    assert b.to("a2") == []


def test_each_of_several_servers_is_tried_once() -> None:
    b = failover()
    b.join("a")
    b.join("a2", place="a")
    b.join("b")
    b.submit(1)
    b.advance(1.05)
    assert len(b.to("a")) + len(b.to("a2")) == 1
    b.advance(1.0)
    assert isinstance(b.errors[1], CallTimeout)
    assert b.errors[1].attempts == 2
    assert "sent 2 times" in str(b.errors[1])
    b.assert_empty()


def test_a_single_server_gets_three_attempts() -> None:
    b = failover(servers=1)
    b.submit(1)
    for tries in range(3):
        b.join(f"a{tries}", place="a")
        assert len(b.to(f"a{tries}")) == 1
        b.advance(1.01)
        if tries < 2:
            assert not b.errors
    assert b.errors[1].attempts == 3


def test_an_attempt_waits_for_a_disconnected_server_until_its_timeout() -> None:
    b = failover()
    b.join("a")
    b.submit(1)
    b.advance(1.5)
    assert b.client.snapshot().held == 1
    b.join("b")
    assert len(b.to("b")) == 1
    b.lose("b")
    assert isinstance(b.errors[1], TransportError)  # both servers were tried


def test_a_call_waits_for_its_only_server_until_its_deadline() -> None:
    b = failover(servers=1)
    b.join("a")
    b.submit(1, timeout=10.0)
    b.lose("a")
    b.advance(7.0)
    assert b.client.snapshot().held == 1
    assert not b.errors
    b.join("a2", place="a")
    b.answer("a2")
    assert b.replies[1].attempts == 2
    b.submit(2, timeout=3.0)
    b.lose("a2")
    b.advance(2.9)
    assert not b.errors
    b.advance(0.2)
    assert isinstance(b.errors[2], CallTimeout)
    assert "the last server was lost" in str(b.errors[2])
    b.assert_empty()


def test_a_call_returns_to_the_first_server_if_the_next_does_not_connect() -> None:
    b = failover(servers=2)
    b.join("a")
    b.submit(1, timeout=10.0)
    b.lose("a")
    b.advance(0.5)
    b.join("a2", place="a")
    assert b.to("a2") == []  # the other server is next
    b.advance(0.6)
    assert len(b.to("a2")) == 1
    b.answer("a2")
    assert b.replies[1].attempts == 2


def test_each_connection_carries_one_request_at_a_time() -> None:
    b = failover(servers=1)
    b.join("a1", place="a")
    b.join("a2", place="a")
    for token in range(4):
        b.submit(token, b"%d" % token)
    assert b.client.snapshot().held == 2
    assert (len(b.to("a1")), len(b.to("a2"))) == (1, 1)
    b.answer("a1")
    b.answer("a2")
    assert b.client.snapshot().held == 0
    assert (len(b.to("a1")), len(b.to("a2"))) == (2, 2)


def test_an_extra_reply_does_not_answer_the_next_call() -> None:
    b = failover(servers=1)
    b.join("a")
    b.submit(1)
    b.submit(2)
    b.say("a", [b"first"], [b"a stray one"])
    assert b.replies[1].body == b"first"
    assert 2 not in b.replies
    assert b.client.snapshot().stray == 1
    b.join("a", place="a")
    b.answer("a", b"second")
    assert b.replies[2].body == b"second"


def test_an_extra_reply_closes_its_connection() -> None:
    b = failover(servers=1)
    b.join("a1", place="a")
    b.submit(1)
    b.answer("a1")
    b.say("a1", [b"once more"])
    assert "a1" in b.disconnected
    b.submit(2)
    assert b.to("a1") == [[b"x"]]  # only the first request
    b.join("a2", place="a")
    b.answer("a2", b"second")
    assert b.replies[2].body == b"second"


def test_the_connection_of_a_cancelled_or_expired_call_is_closed() -> None:
    b = failover()
    b.join("a")
    b.join("b")
    b.submit(1)
    b.cancel(1)
    assert isinstance(b.errors[1], Cancelled)
    assert "a" in b.disconnected
    b.submit(2, timeout=0.5)
    b.advance(0.6)
    assert "b" in b.disconnected
    b.say("b", [b"late"])
    assert b.replies == {}


def test_a_request_that_is_not_idempotent_is_sent_once() -> None:
    b = failover()
    b.join("a")
    b.join("b")
    b.submit(1, idempotent=False, timeout=5.0)
    b.advance(3.0)
    assert b.to("b") == []
    b.lose("a")
    assert isinstance(b.errors[1], TransportError)


def test_a_lost_connection_moves_the_call_at_once() -> None:
    b = failover()
    b.join("a")
    b.join("b")
    b.submit(1)
    b.lose("a")
    assert len(b.to("b")) == 1
    for event in (PeerLost("a"), PeerBlocked("b"), PeerWritable("b")):
        b.feed(event)
    b.answer("b")
    assert b.replies[1].attempts == 2


def test_a_drain_fails_all_calls() -> None:
    b = failover()
    b.join("a")
    b.submit(1)
    b.submit(2)
    b.drain()
    assert b.stopped
    assert set(b.errors) == {1, 2}
    assert (b.errors[1].may_have_executed, b.errors[2].may_have_executed) == (True, False)
    b.assert_empty()


# --- model two ------------------------------------------------------------------------------------
def test_a_request_goes_to_all_servers_and_the_first_reply_is_delivered() -> None:
    b = shotgun()
    for peer in "abc":
        b.join(peer)
    b.submit(1, b"hi", b"there")
    assert b.sent == [(peer, [b"", b"1", b"hi", b"there"]) for peer in "abc"]
    b.answer("b", b"first")
    b.answer("a", b"second")
    assert b.replies[1].body == b"first"
    assert b.replies[1].attempts == 1
    assert b.client.snapshot().stray == 1
    b.assert_empty()


def test_replies_are_matched_by_their_ids() -> None:
    b = shotgun()
    b.join("a")
    b.submit(1)
    b.submit(2)
    b.say("a", [b"", b"2", b"two"], [b"", b"3", b"three"], [b"", b"1", b"one"])
    assert (b.replies[1].body, b.replies[2].body) == (b"one", b"two")
    assert b.client.snapshot().stray == 1


def test_a_server_that_connects_later_gets_pending_requests() -> None:
    b = shotgun()
    b.submit(1)
    b.join("a")
    b.join("b")
    assert (len(b.to("a")), len(b.to("b"))) == (1, 1)
    b.answer("b")
    assert 1 in b.replies


def test_a_call_continues_while_one_server_has_its_request() -> None:
    b = shotgun()
    for peer in "abc":
        b.join(peer)
    b.submit(1)
    b.lose("a")
    b.lose("b")
    assert not b.errors
    b.answer("c")
    assert b.replies[1].attempts == 1


def test_a_call_that_has_lost_all_servers_waits_for_another() -> None:
    b = shotgun(servers=1)
    b.join("a")
    b.submit(1)
    b.lose("a")
    assert b.client.snapshot().held == 1
    b.join("a")
    b.answer("a")
    assert b.replies[1].attempts == 2


def test_a_request_that_kills_its_servers_fails_after_its_attempts() -> None:
    b = shotgun(servers=2, attempts=3)
    b.submit(1)
    for _ in range(3):
        b.join("a")
        b.join("b")
        b.lose("a")
        b.lose("b", "it died")
    assert isinstance(b.errors[1], TransportError)
    assert b.errors[1].attempts == 6
    b.assert_empty()


def test_servers_that_push_back_are_skipped() -> None:
    b = shotgun(servers=2)
    b.join("a")
    b.join("b")
    b.block("a")
    b.submit(1)
    assert (len(b.to("a")), len(b.to("b"))) == (0, 1)
    b.answer("b")
    b.block("b")
    b.submit(2)
    assert b.client.snapshot().held == 1
    assert b.client.snapshot().blocked == 2
    b.unblock("a")
    b.answer("a")
    assert set(b.replies) == {1, 2}


def test_model_two_accepts_only_idempotent_calls() -> None:
    b = shotgun()
    b.join("a")
    with pytest.raises(LocalViolation, match="idempotent"):
        b.feed(Submit(1, "", (b"x",), b.now + 1.0, False))
    b.submit(1)  # the refused call has left no state
    b.answer("a")
    assert 1 in b.replies


def test_calls_wait_while_all_servers_are_lost() -> None:
    b = shotgun(servers=2)
    b.join("a")
    b.join("b")
    b.lose("a")
    b.lose("b")
    b.submit(1, timeout=2.0)
    b.submit(2, timeout=2.0, idempotent=True)
    assert b.client.snapshot().held == 2
    b.join("a")
    assert b.client.snapshot().held == 0
    b.answer("a")
    b.block("a")
    b.lose("a")  # it held the second call
    assert b.client.snapshot().held == 1
    b.join("b")
    b.answer("b")
    assert set(b.replies) == {1, 2}


@pytest.mark.parametrize("message", [[b""], [b"x", b"1", b"y"], [b"", b"1"], [b"PONG"]])
def test_malformed_replies_of_model_two_are_counted(message: list[bytes]) -> None:
    b = shotgun()
    b.join("a")
    b.submit(1, timeout=1.0)
    b.say("a", message)
    assert b.client.snapshot().malformed == 1
    b.advance(1.1)
    assert isinstance(b.errors[1], CallTimeout)
    assert b.errors[1].may_have_executed
