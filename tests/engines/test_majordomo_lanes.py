"""The client engine of MDP 0.1 and 0.2: one request per connection, and the Lazy Pirate."""

from __future__ import annotations

import pytest
from tests.spec.requirement import requirement
from tests.support.client import ClientBench

from requite.errors import CallTimeout, Cancelled, TransportError
from requite.protocols.majordomo.wire import ClientFinal, ClientRequest

pytestmark = pytest.mark.parametrize("version", ["0.1", "0.2"])


def connected(version: str, lanes: int = 1, **settings: object) -> ClientBench:
    """Return a client with this many idle connections, each of which has carried a call."""
    bench = ClientBench(version, connections_max=lanes, **settings)  # type: ignore[arg-type]
    for n in range(lanes):
        bench.submit(f"warm-{n}")
    for _ in range(lanes):
        bench.join()
    for sent in bench.requests:
        bench.answer(sent)
    bench.sent.clear()
    bench.replies.clear()
    return bench


def test_a_call_gets_its_reply(version):
    bench = ClientBench(version)
    bench.submit("a", b"hi", timeout=2.5)
    bench.join()
    assert bench.requests[0].command == ClientRequest(b"echo", [b"hi"])
    bench.answer(bench.requests[0], b"ho")
    assert bench.replies["a"].body == b"ho"
    bench.assert_empty()
    assert bench.links == ["link-1"]


def test_calls_wait_for_a_free_connection(version):
    bench = ClientBench(version, connections_max=2)
    for n in range(5):
        bench.submit(n, b"%d" % n)
    assert bench.dialling == 2
    bench.join()
    bench.join()
    assert bench.bodies() == [b"0", b"1"]
    bench.answer(bench.requests[1], b"re 1")
    assert bench.bodies() == [b"0", b"1", b"2"]
    assert bench.requests[2].link == "link-2"
    for n in (0, 2, 3, 4):
        sent = next(s for s in bench.requests if s.command.body == [b"%d" % n])
        bench.answer(sent, b"re %d" % n)
    assert {n: bench.replies[n].body for n in range(5)} == {n: b"re %d" % n for n in range(5)}
    assert bench.dialling == 0
    bench.assert_empty()


def test_no_more_connections_are_opened_than_calls_need(version):
    bench = ClientBench(version, connections_max=8)
    bench.submit("a")
    bench.submit("b")
    assert bench.dialling == 2
    bench.join()
    bench.join()
    bench.answer(bench.requests[0])
    bench.submit("c")
    assert bench.dialling == 0


def test_an_attempt_that_times_out_closes_its_connection(version):
    """Lazy Pirate: close the connection, reconnect and resend; a late reply is dropped."""
    bench = connected(version, retry={"attempt_timeout": 1.0, "backoff": 0.25})
    bench.submit("a", timeout=10.0)
    late = bench.requests[0]
    bench.advance(1.0)
    assert late.link in bench.disconnected
    assert bench.dialling == 1
    bench.join()
    bench.advance(0.25)
    assert len(bench.requests) == 2
    bench.say(bench.final(late, b"late"), link=late.link)
    assert "a" not in bench.replies
    bench.answer(bench.requests[1], b"in time")
    assert (bench.replies["a"].body, bench.replies["a"].attempts) == (b"in time", 2)


def test_without_an_attempt_timeout_a_request_is_sent_once(version):
    bench = connected(version)
    bench.submit("a", timeout=60.0)
    bench.advance(60.0)
    assert len(bench.requests) == 1
    assert isinstance(bench.errors["a"], CallTimeout)
    assert "link-1" in bench.disconnected
    bench.assert_empty()


def test_a_cancelled_request_closes_its_connection(version):
    bench = connected(version)
    bench.submit("a")
    bench.submit("b")
    bench.cancel("a")
    assert isinstance(bench.errors["a"], Cancelled)
    assert "link-1" in bench.disconnected
    bench.join()
    bench.answer(bench.requests[-1], b"for b")
    assert bench.replies["b"].body == b"for b"


def test_cancelling_a_waiting_call_closes_no_connection(version):
    bench = connected(version)
    bench.submit("a")
    bench.submit("b")
    bench.cancel("b")
    bench.answer(bench.requests[0])
    assert len(bench.requests) == 1
    assert bench.links == ["link-1"]
    bench.assert_empty()
    assert not bench.client._waiting


def test_after_a_lost_connection_only_idempotent_requests_are_resent(version):
    bench = connected(version, lanes=2)
    bench.submit("safe", b"safe")
    bench.submit("once", b"once", idempotent=False)
    for link in list(bench.links):
        bench.lose(link)
    assert isinstance(bench.errors["once"], TransportError)
    bench.advance(1.0)
    bench.join()
    bench.answer(bench.requests[-1])
    assert bench.replies["safe"].attempts == 2


def test_resent_requests_go_before_later_calls(version):
    bench = connected(version, lanes=1)
    bench.submit("a", b"a")
    bench.submit("b", b"b")
    bench.lose()
    bench.join()
    assert bench.bodies() == [b"a", b"a"]


def test_all_lost_lanes_are_dialled_again_soon(version):
    bench = connected(version, lanes=8)
    for link in list(bench.links):
        bench.lose(link)
    for n in range(8):
        bench.submit(n)
    bench.advance(0.2)
    assert bench.dialling == 8


def test_an_idle_client_keeps_one_connection(version):
    bench = connected(version, lanes=2)
    for link in list(bench.links):
        bench.lose(link)
    bench.advance(1.0)
    assert bench.dialling == 1


def test_a_stray_reply_is_dropped_with_a_warning(version):
    bench = connected(version)
    bench.say(bench.dialect.encode(ClientFinal(b"echo", [b"?"], 0, 0, 1)))
    assert bench.warnings[0].kind == "stray reply"
    bench.submit("a")
    assert "a" not in bench.replies


def test_a_reply_of_another_service_is_dropped_with_a_warning(version):
    bench = connected(version)
    bench.submit("a")
    bench.say(bench.dialect.encode(ClientFinal(b"other", [b"?"], 0, 0, 1)))
    assert bench.warnings[0].kind == "stray reply"
    bench.answer(bench.requests[0])
    assert "a" in bench.replies


def test_a_second_reply_in_the_same_read_does_not_answer_the_next_call(version):
    bench = connected(version)
    bench.submit("a")
    bench.submit("b")
    final = bench.final(bench.requests[0], b"for a")
    bench.say(final, final)
    assert bench.replies.keys() == {"a"}
    assert bench.warnings[0].kind == "stray reply"
    bench.answer(bench.requests[1], b"for b")
    assert bench.replies["b"].body == b"for b"


def test_a_malformed_message_closes_the_lane_and_the_call_is_resent(version):
    bench = connected(version)
    bench.submit("a")
    bench.say([b"", b"", b""], [b"more"])
    assert "link-1" in bench.disconnected
    bench.join()
    bench.answer(bench.requests[-1])
    assert bench.replies["a"].attempts == 2


def test_closing_closes_every_lane(version):
    bench = connected(version, lanes=2)
    bench.submit("sent")
    bench.submit("also sent")
    bench.submit("waiting")
    bench.drain()
    assert {t: e.may_have_executed for t, e in bench.errors.items()} == {
        "sent": True,
        "also sent": True,
        "waiting": False,
    }
    assert bench.links == []
    assert bench.stopped
    bench.assert_empty()


@requirement("mdp02:client:partials")
def test_partials_are_matched_to_the_lane(version):
    if version == "0.1":
        pytest.skip("MDP 0.1 has no partial replies")
    bench = connected(version, lanes=2)
    bench.submit("a", partials=True)
    bench.submit("b", partials=False)
    a, b = bench.requests
    bench.say(bench.partial(a, b"a0", 0), bench.partial(a, b"a1", 1), link=a.link)
    bench.say(bench.partial(b, b"b0", 0), link=b.link)
    bench.answer(a, b"a end")
    bench.answer(b, b"b end")
    assert [p.body for p in bench.partials["a"]] == [b"a0", b"a1"]
    assert bench.replies["a"].frames == [b"a end"]
    assert bench.replies["b"].frames == [b"b0", b"b end"]


def test_no_heartbeats_are_sent(version):
    bench = connected(version)
    bench.submit("a")
    bench.advance(600.0)
    assert bench.heartbeats == 0
    assert bench.links == ["link-1"]
    assert bench.client.snapshot().sent == 1


def test_a_waiting_call_that_has_expired_is_not_sent(version):
    """I15: the connection is established in the same turn as the late timer."""
    bench = ClientBench(version, connections_max=1)
    bench.submit("late", b"late", timeout=1.0)
    bench.submit("in time", b"in time", timeout=9.0)
    bench.now += 1.5
    bench.join()
    assert bench.bodies() == [b"in time"]
    bench.freeze(0.0)
    assert isinstance(bench.errors["late"], CallTimeout)
    assert not bench.errors["late"].may_have_executed
