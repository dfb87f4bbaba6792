"""Requirements of the SP draft for a worker: REP, hop by hop and end to end."""

from __future__ import annotations

import pytest
from tests.spec.requirement import requirement
from tests.support.sp_engines import RepBench, tag, way

from requite.engine import Finished
from requite.protocols.scalability.wire import request_tag
from requite.request import Status


# --- one request ----------------------------------------------------------------------------------
@requirement("sp:worker:split", "sp:worker:reply", "sp:format")
@pytest.mark.parametrize("body", [b"", b"Hello", b"\x80\0\0\0more", bytes(100_000)])
@pytest.mark.parametrize("channels", [(), (7,), (1, 2, 3, 4, 5, 6, 7)])
def test_the_reply_carries_the_tags_of_its_request(body: bytes, channels: tuple[int, ...]) -> None:
    bench = RepBench()
    bench.join("c")
    stack = way(*channels) + tag(823)
    job = bench.request("c", stack, body)
    assert bench.requests[job].frames == (body,)
    assert bench.requests[job].service == "echo"
    bench.finish(job, b"World")
    assert bench.to("c") == [stack + b"World"]


@requirement("sp:worker:forget")
def test_a_reply_removes_all_state_of_its_request() -> None:
    bench = RepBench()
    bench.join("c")
    job = bench.request("c")
    bench.finish(job)
    bench.assert_empty()
    bench.feed(Finished(job, (b"again",)))
    assert len(bench.sent) == 1


@requirement("sp:worker:no-bottom")
@pytest.mark.parametrize(
    "payload", [b"", b"\x80", b"\x80\0\0", way(1), way(1, 2, 3) + b"\x80\0\0", bytes(20)]
)
def test_a_request_without_a_last_tag_is_ignored(payload: bytes) -> None:
    bench = RepBench()
    bench.join("c")
    bench.say("c", payload, tag(1) + b"good")
    assert bench.bodies() == [b"good"]
    assert bench.worker.snapshot().dropped == {"malformed": 1}
    assert "c" in bench.peers


@requirement("sp:worker:cancel")
@pytest.mark.parametrize("status", [Status.CANCELLED, Status.FAILED])
def test_a_cancelled_request_has_no_reply(status: Status) -> None:
    bench = RepBench()
    bench.join("c")
    job = bench.request("c")
    bench.finish(job, b"why", status=status)
    assert bench.sent == []
    bench.assert_empty()
    assert [warning.kind for warning in bench.warnings] == (
        ["failed request"] if status is Status.FAILED else []
    )
    bench.feed(Finished(job, (b"changed my mind",)))
    assert bench.sent == []


# --- many channels --------------------------------------------------------------------------------
@requirement("sp:rep:fair-queue")
def test_channels_take_turns_with_one_request_each() -> None:
    bench = RepBench(capacity=1)
    for peer in "abc":
        bench.join(peer)
    for peer, n in (("a", 5), ("b", 2), ("c", 3)):
        bench.say(peer, *(tag(i) + b"%s%d" % (peer.encode(), i) for i in range(n)))
    while bench.running:
        bench.finish(bench.running[0])
    first = b"a0"
    turns = [b"a1", b"b0", b"c0", b"a2", b"b1", b"c1", b"a3", b"c2", b"a4"]
    assert bench.bodies() == [first, *turns]


@requirement("sp:rep:fair-queue")
def test_a_flood_from_one_client_does_not_starve_others() -> None:
    bench = RepBench(capacity=1, queue_max=10)
    bench.join("greedy")
    bench.join("modest")
    bench.say("greedy", *[tag(i) + b"g" for i in range(1000)])
    bench.say("modest", tag(1) + b"m")
    assert bench.unread == {"greedy"}
    for _ in range(3):
        bench.finish(bench.running[0])
    assert b"m" in bench.bodies()


@requirement("sp:rep:fair-queue-changes")
def test_turns_stay_fair_while_channels_open_and_close() -> None:
    bench = RepBench(capacity=1)
    served = {"a": 0, "b": 0}
    for peer in served:
        bench.join(peer)
        bench.say(peer, *[tag(i) + peer.encode() for i in range(200)])
    bench.finish(bench.running[0])  # the first request was started before the others arrived
    for turn in range(300):
        if turn % 3 == 0:
            bench.join(f"new {turn}")
            bench.say(f"new {turn}", tag(1) + b"new")
        if turn % 3 == 2:
            bench.lose(f"new {turn - 2}")
        body = bench.requests[bench.running[0]].body.decode()
        if body in served:
            served[body] += 1
        bench.finish(bench.running[0])
        assert abs(served["a"] - served["b"]) <= 1


@requirement("sp:rep:never-waits", "sp:rep:pushback")
def test_a_channel_that_takes_no_replies_does_not_delay_others() -> None:
    bench = RepBench(backlog_size_max=0, capacity=2)
    bench.join("deaf")
    bench.join("good")
    deaf = bench.request("deaf", tag(1))
    good = bench.request("good", tag(2))
    bench.block("deaf")
    bench.finish(deaf)
    bench.finish(good)
    assert bench.to("deaf") == []
    assert bench.to("good") == [tag(2) + b"y"]
    assert bench.worker.snapshot().dropped == {"pushback": 1}


@requirement("sp:loop:depth", "sp:loop:threshold")
@pytest.mark.parametrize(("hops", "taken"), [(None, 8), (1, 1), (3, 3), (15, 15)])
def test_a_request_with_too_many_tags_is_dropped(hops: int | None, taken: int) -> None:
    """The limit is 8 by default; as in implementations, it counts the request id."""
    bench = RepBench() if hops is None else RepBench(hops=hops)
    bench.join("c")
    deepest = way(*range(taken - 1)) + request_tag(1)
    bench.say("c", way(99) + deepest + b"too deep", deepest + b"deep")
    assert bench.bodies() == [b"deep"]
    assert bench.worker.snapshot().dropped == {"hops": 1}
    assert "c" in bench.peers
