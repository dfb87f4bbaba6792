"""Requirements of the SP draft for a client: REQ, hop by hop and end to end."""

from __future__ import annotations

from collections import Counter
from math import inf

import pytest
from tests.spec.requirement import requirement
from tests.support.sp_engines import ReqBench, Sent, tag

from requite.errors import CallTimeout, Cancelled, Overloaded
from requite.protocols.scalability.policy import PipeOptions, ReqPolicy
from requite.protocols.scalability.wire import IDS


def bodies(bench: ReqBench) -> list[bytes]:
    return [sent.body for sent in bench.sent]


# --- where requests go ----------------------------------------------------------------------------
@requirement("sp:req:one-channel", "sp:req:unmodified", "sp:client:prepend", "sp:format")
@pytest.mark.parametrize("body", [b"", b"Hello", bytes(100_000)])
def test_a_request_goes_to_one_channel_with_its_id_in_front(body: bytes) -> None:
    bench = ReqBench(first_id=823)
    bench.join("a")
    bench.join("b")
    bench.submit(1, body)
    assert bench.sent == [Sent("a", bytes.fromhex("80000337") + body)]


@requirement("sp:req:no-channel", "sp:client:pushback")
def test_a_call_without_a_channel_fails() -> None:
    bench = ReqBench(hold=False)
    bench.submit(1)
    assert isinstance(bench.errors[1], Overloaded)
    assert not bench.errors[1].may_have_executed
    assert "no connection" in str(bench.errors[1])
    assert bench.sent == []
    bench.assert_empty()


@requirement("sp:req:pushback", "sp:client:pushback")
def test_a_call_fails_when_all_channels_push_back() -> None:
    bench = ReqBench(hold=False)
    for peer in "ab":
        bench.join(peer)
        bench.block(peer)
    bench.submit(1)
    assert isinstance(bench.errors[1], Overloaded)
    assert "all 2 peers exert back-pressure" in str(bench.errors[1])
    assert bench.sent == []
    bench.unblock("b")
    bench.submit(2, b"two")
    assert bench.to("b") == [tag(5) + b"two"]  # the first request used no id


@requirement("sp:req:no-channel", "sp:req:pushback", "sp:client:pushback")
def test_a_call_that_may_wait_for_a_channel_fails_at_its_deadline() -> None:
    bench = ReqBench()
    bench.submit(1, timeout=5)
    bench.join("a")
    bench.block("a")
    bench.submit(2, timeout=7)
    assert bench.to("a") == [tag(5) + b"x"]  # request 1, which waited for this channel
    bench.advance(10)
    error = bench.errors[2]
    assert isinstance(error, CallTimeout)
    assert not error.may_have_executed
    assert "never sent" in str(error)


@requirement("sp:req:pushback")
def test_only_channels_that_do_not_push_back_are_used() -> None:
    bench = ReqBench()
    for peer in "abc":
        bench.join(peer)
    bench.block("b")
    for token in range(4):
        bench.submit(token)
    assert [sent.peer for sent in bench.sent] == ["a", "c", "a", "c"]


@requirement("sp:req:always-available")
def test_a_channel_without_push_back_takes_any_number_of_requests() -> None:
    bench = ReqBench(slots=5000)
    bench.join("a")
    for token in range(5000):
        bench.submit(token)
    assert len(bench.sent) == 5000


@requirement("sp:req:equal-by-default")
def test_channels_have_equal_weight_by_default() -> None:
    bench = ReqBench()
    bench._join("told nothing", None)
    bench._join("told the defaults", PipeOptions())
    assert PipeOptions() == PipeOptions("", 1, 1)
    for token in range(10):
        bench.submit(token)
    assert Counter(sent.peer for sent in bench.sent) == dict.fromkeys(bench.peers, 5)


@requirement("sp:req:explicit-priority", "sp:req:priorities")
def test_a_channel_with_a_higher_priority_is_preferred() -> None:
    bench = ReqBench()
    bench.join("far", priority=2)
    bench.join("near", priority=1)
    bench.submit(1)
    bench.block("near")
    bench.submit(2)
    bench.unblock("near")
    bench.submit(3)
    assert [sent.peer for sent in bench.sent] == ["near", "far", "near"]


@requirement("sp:req:priorities")
def test_requests_are_distributed_by_weight() -> None:
    bench = ReqBench()
    bench.join("a", weight=20)
    bench.join("b", weight=80)
    for token in range(500):
        bench.submit(token)
    assert Counter(sent.peer for sent in bench.sent) == {"a": 100, "b": 400}


@requirement("sp:req:round-robin")
def test_equal_channels_take_turns() -> None:
    bench = ReqBench()
    for peer in "abc":
        bench.join(peer)
    for token in range(9):
        bench.submit(token)
    assert [sent.peer for sent in bench.sent] == list("abcabcabc")


@requirement("sp:req:round-robin-changes")
def test_round_robin_stays_fair_while_channels_open_and_close() -> None:
    """`tests/engines/test_scalability_channels.py` tests arbitrary sequences of such changes."""
    bench = ReqBench()
    for peer in "abc":
        bench.join(peer)
    for token in range(300):
        if token % 7 == 0:
            bench.join(f"new {token}")
        if token % 7 == 4:
            bench.lose(f"new {token - 4}")
        bench.submit(token)
    served = Counter(sent.peer for sent in bench.sent)
    assert max(served[peer] for peer in "abc") - min(served[peer] for peer in "abc") <= 1


# --- ids ------------------------------------------------------------------------------------------
@requirement("sp:client:request-ids", "sp:client:next-id")
def test_request_ids_count_up_and_wrap_around_to_0() -> None:
    bench = ReqBench(first_id=IDS - 2)
    bench.join()
    for token in range(4):
        bench.submit(token)
    assert [sent.tag.hex() for sent in bench.sent] == [
        "fffffffe",
        "ffffffff",
        "80000000",
        "80000001",
    ]


@requirement("sp:client:request-ids")
def test_an_id_in_use_is_skipped() -> None:
    bench = ReqBench(first_id=0)
    bench.join()
    bench.submit("old")
    bench.client._next_id = IDS - 1  # after 2^31 - 2 other ids
    bench.submit("a")
    bench.submit("b")
    assert [sent.tag for sent in bench.sent] == [tag(0), tag(IDS - 1), tag(1)]
    for sent in bench.sent:
        bench.answer(sent, sent.tag)
    assert bench.replies["old"].body == tag(0)
    assert bench.replies["b"].body == tag(1)


# --- resending ------------------------------------------------------------------------------------
@requirement("sp:client:timeout-default", "sp:client:resend")
def test_a_request_is_resent_after_a_minute() -> None:
    assert ReqPolicy().retry.attempt_timeout == 60
    bench = ReqBench()
    bench.join("a")
    bench.submit(1, b"hi")
    bench.advance(59.9)
    assert len(bench.sent) == 1
    bench.advance(0.2)
    assert bench.sent == [Sent("a", tag(5) + b"hi")] * 2
    bench.advance(60)
    assert len(bench.sent) == 3


@requirement("sp:client:timeout", "sp:client:resend")
def test_the_resend_interval_can_be_set() -> None:
    bench = ReqBench(attempt_timeout=2.5)
    bench.join()
    bench.submit(1)
    bench.advance(2.4)
    assert len(bench.sent) == 1
    bench.advance(0.2)
    assert len(bench.sent) == 2


@requirement("sp:client:timeout")
def test_every_request_may_have_its_own_resend_interval() -> None:
    bench = ReqBench()
    bench.join()
    bench.ask(1, b"fast", resend_s=1.0)
    bench.ask(2, b"slow", resend_s=3.0)
    bench.ask(3, b"never", resend_s=None)
    bench.advance(3.5)
    assert Counter(bodies(bench)) == {b"fast": 4, b"slow": 2, b"never": 1}


@requirement("sp:client:timeout")
def test_resending_can_be_turned_off() -> None:
    bench = ReqBench(attempt_timeout=None)
    bench.join()
    bench.submit(1)
    bench.advance(100_000)
    assert len(bench.sent) == 1


@requirement("sp:guarantee", "sp:guarantee:stateless", "sp:client:resend")
def test_a_request_is_resent_until_one_service_replies() -> None:
    bench = ReqBench()
    bench.join("a")
    bench.submit(1, b"task")
    bench.lose("a")  # the request was lost with the channel, or has been processed
    bench.join("b")
    bench.join("c")
    bench.advance(61)  # "b" does not reply either
    assert bench.sent == [Sent(peer, tag(5) + b"task") for peer in "abc"]
    bench.answer(bench.sent[-1], b"done")
    assert bench.replies[1].body == b"done"
    assert bench.replies[1].attempts == 3


# --- replies --------------------------------------------------------------------------------------
@requirement("sp:client:deliver", "sp:req:reply-unmodified")
@pytest.mark.parametrize("body", [b"", b"World", b"\x80\0\0\5", bytes(100_000)])
def test_a_reply_is_delivered_without_its_tag(body: bytes) -> None:
    bench = ReqBench()
    bench.join()
    bench.submit(1)
    bench.say("a", tag(5) + body)
    assert bench.replies[1].frames == (body,)


@requirement("sp:client:parallel")
def test_replies_may_arrive_in_any_order() -> None:
    bench = ReqBench()
    bench.join()
    for token in range(50):
        bench.submit(token, b"%d" % token)
    bench.say("a", *(sent.tag + sent.body for sent in reversed(bench.sent)))
    assert [bench.replies[token].body for token in range(50)] == [b"%d" % n for n in range(50)]


@requirement("sp:client:short")
@pytest.mark.parametrize("reply", [b"", b"\x80", b"\x80\0\0"])
def test_a_reply_of_less_than_32_bits_is_ignored(reply: bytes) -> None:
    bench = ReqBench(first_id=0)
    bench.join()
    bench.submit(1)
    bench.say("a", reply)
    assert bench.replies == {}
    assert bench.client.snapshot().malformed == 1
    assert "a" in bench.peers
    bench.answer(bench.sent[0])
    assert 1 in bench.replies


@requirement("sp:client:top-bit")
def test_a_reply_that_begins_with_a_channel_id_is_ignored() -> None:
    bench = ReqBench(first_id=5)
    bench.join()
    bench.submit(1)
    bench.say("a", bytes.fromhex("00000005") + b"y", bytes.fromhex("00000005") + tag(5) + b"y")
    assert bench.replies == {}
    assert bench.client.snapshot().malformed == 2


@requirement("sp:client:unknown-id")
def test_a_reply_with_an_unknown_id_is_ignored() -> None:
    bench = ReqBench()
    bench.join()
    bench.submit(1)
    bench.say("a", tag(4) + b"y", tag(6) + b"y")
    assert bench.replies == {}
    assert bench.client.snapshot().stray == 2


@requirement("sp:client:unknown-id", "sp:client:forget")
def test_a_second_reply_is_ignored() -> None:
    bench = ReqBench()
    bench.join()
    bench.submit(1)
    bench.say("a", tag(5) + b"one", tag(5) + b"two")
    assert bench.replies[1].body == b"one"
    assert bench.client.snapshot().stray == 1


@requirement("sp:client:unknown-id")
def test_a_reply_to_an_unsent_request_is_ignored() -> None:
    bench = ReqBench()
    bench.join("a")
    bench.block("a")
    bench.submit(1)
    bench.say("a", tag(5) + b"y")
    assert bench.replies == {}


@requirement("sp:client:forget")
def test_a_reply_removes_all_state_of_its_request() -> None:
    bench = ReqBench()
    bench.join()
    bench.submit(1)
    bench.answer(bench.sent[0])
    bench.assert_empty()
    bench.advance(1000)
    assert len(bench.sent) == 1


@requirement("sp:req:fair-queue")
def test_a_flood_of_stray_replies_does_not_delay_valid_ones() -> None:
    """A read returns a limited number of bytes, and channels are read in turn. The engine processes
    each read completely, so replies are never queued."""
    bench = ReqBench()
    bench.join("false")
    bench.join("true")
    bench.submit(1)
    bench.submit(2)
    for _ in range(3):
        bench.say("false", *[tag(77) + b"y"] * 5000)
        if 2 not in bench.replies:
            bench.say("true", tag(6) + b"y")
    assert bench.replies[2].body == b"y"
    assert bench.client.snapshot().stray == 15_000
    assert bench.client._out == []


@requirement("sp:client:cancel")
def test_a_cancelled_request_is_forgotten_and_its_reply_discarded() -> None:
    bench = ReqBench()
    bench.join()
    bench.submit(1)
    bench.cancel(1)
    assert isinstance(bench.errors[1], Cancelled)
    assert bench.errors[1].may_have_executed
    bench.assert_empty()
    bench.answer(bench.sent[0])
    assert bench.replies == {}
    bench.advance(1000)
    assert len(bench.sent) == 1


@requirement("sp:client:cancel")
def test_users_can_set_a_deadline() -> None:
    bench = ReqBench()
    bench.join()
    bench.submit(1, timeout=3)
    bench.advance(4)
    error = bench.errors[1]
    assert isinstance(error, CallTimeout)
    assert error.may_have_executed
    bench.answer(bench.sent[0])
    assert bench.replies == {}
    assert bench.client.deadline() in (None, inf)
