"""Requirements of the SP draft for devices, and for REP hop by hop, which devices show."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.spec.requirement import requirement
from tests.support.sp_engines import DeviceBench, Sent, tag, way

from requite.engine import PeerJoined, Received, Send
from requite.protocols.scalability.device import ScalabilityDevice
from requite.protocols.scalability.policy import BACK, FRONT, DevicePolicy, PipeOptions
from requite.protocols.scalability.wire import IDS


def device(**policy: object) -> DeviceBench:
    """Return a device with one client and one service."""
    bench = DeviceBench(**policy)
    bench.front("client")
    bench.back("service")
    return bench


# --- forwarding -----------------------------------------------------------------------------------
@requirement("sp:device", "sp:rep:prepend", "sp:rep:strip")
@pytest.mark.parametrize("body", [b"", b"Hello", bytes(100_000)])
def test_requests_gain_a_tag_and_replies_lose_it(body: bytes) -> None:
    bench = device()
    bench.say("client", tag(823) + body)
    assert bench.sent == [Sent("service", way(446) + tag(823) + body)]
    bench.say("service", way(446) + tag(823) + b"World")
    assert bench.sent[1:] == [Sent("client", tag(823) + b"World")]


@requirement("sp:format:example", "sp:format:order", "sp:format")
def test_the_example_of_the_document() -> None:
    near_client, near_service = DeviceBench(first_id=299), DeviceBench(first_id=446)
    for bench in (near_client, near_service):
        bench.front("in")
        bench.back("out")
    near_client.say("in", tag(823) + b"Hello")
    near_service.say("in", near_client.sent[-1].payload)
    hello = near_service.sent[-1].payload
    assert hello.hex() == "000001be" + "0000012b" + "80000337" + b"Hello".hex()
    near_service.say("out", hello[:12] + b"World")
    near_client.say("out", near_service.sent[-1].payload)
    assert near_client.sent[-1] == Sent("in", bytes.fromhex("80000337") + b"World")


# --- ids of channels ------------------------------------------------------------------------------
@requirement("sp:rep:channel-ids", "sp:rep:next-id")
def test_channel_ids_count_up_and_wrap_around_to_0() -> None:
    bench = DeviceBench(first_id=IDS - 2)
    bench.back("service")
    bench.front(*"abcd")
    for peer in "abcd":
        bench.say(peer, tag(1))
    assert [sent.payload[:4].hex() for sent in bench.sent] == [
        "7ffffffe",
        "7fffffff",
        "00000000",
        "00000001",
    ]


@requirement("sp:rep:channel-ids")
def test_an_id_in_use_is_skipped() -> None:
    bench = DeviceBench(first_id=0)
    bench.back("service")
    bench.front("old", "older")
    bench.device._paths._next_id = IDS - 1  # after 2^31 - 3 other ids
    bench.front("a", "b")
    for peer in ("old", "older", "a", "b"):
        bench.say(peer, tag(1))
    ids = [int.from_bytes(sent.payload[:4], "big") for sent in bench.sent]
    assert ids == [0, 1, IDS - 1, 2]


# --- replies that cannot be forwarded -------------------------------------------------------------
@requirement("sp:rep:short")
@pytest.mark.parametrize("reply", [b"", b"\0\0\1", way(446), way(446) + b"\x80\0\0"])
def test_a_short_reply_is_ignored(reply: bytes) -> None:
    bench = device()
    bench.say("service", reply)
    assert bench.sent == []
    assert bench.device.snapshot().dropped == {"malformed": 1}


@requirement("sp:rep:top-bit")
def test_a_reply_that_begins_with_a_request_id_is_ignored() -> None:
    bench = device(first_id=5)
    bench.say("service", tag(5) + way(5) + tag(1) + b"y")
    assert bench.sent == []
    assert bench.device.snapshot().dropped == {"malformed": 1}


@requirement("sp:rep:unknown-channel")
def test_a_reply_to_an_unknown_channel_is_dropped() -> None:
    bench = device()
    bench.say("client", tag(1))
    bench.lose("client")
    bench.front("other")
    bench.say("service", way(446) + tag(1) + b"y", way(99) + tag(1) + b"y")
    assert [sent.peer for sent in bench.sent] == ["service"]
    assert bench.device.snapshot().dropped == {"stray": 2}


@requirement("sp:rep:pushback", "sp:rep:never-waits")
def test_a_reply_to_a_channel_that_pushes_back_is_dropped() -> None:
    bench = device(backlog_size_max=0)
    bench.front("other")
    bench.block("client")
    bench.say("service", way(446) + tag(1) + b"lost", way(447) + tag(2) + b"not")
    assert bench.sent == [Sent("other", tag(2) + b"not")]
    assert bench.device.snapshot().dropped == {"pushback": 1}


# --- requests without an available service --------------------------------------------------------
@requirement("sp:req:pushback", "sp:req:no-channel")
@pytest.mark.parametrize("there", [True, False])
def test_push_back_is_propagated_to_the_client(there: bool) -> None:
    bench = device()
    if there:
        bench.block("service")
    else:
        bench.lose("service")
    bench.say("client", tag(1) + b"a", tag(2) + b"b")
    assert bench.sent == []
    assert bench.unread == {"client"}
    if there:
        bench.unblock("service")
    else:
        bench.back("service")
    assert [sent.payload for sent in bench.sent] == [
        way(446) + tag(1) + b"a",
        way(446) + tag(2) + b"b",
    ]
    assert bench.unread == set()


@requirement("sp:rep:fair-queue", "sp:rep:fair-queue-changes")
def test_channels_take_turns_with_one_request_each() -> None:
    bench = device()
    bench.front("other", "gone")
    bench.block("service")
    bench.say("client", *(tag(i) for i in range(4)))
    bench.say("gone", tag(0), tag(0))
    bench.say("other", *(tag(i) for i in range(2)))
    bench.lose("gone")
    bench.front("late")
    bench.say("late", tag(9))
    bench.unblock("service")
    ids = [int.from_bytes(sent.payload[:4], "big") - 446 for sent in bench.sent]
    assert ids == [0, 1, 3, 0, 1, 0, 0]


@requirement("sp:req:fair-queue", "sp:req:fair-queue-changes")
def test_replies_of_all_services_are_forwarded_at_once() -> None:
    bench = device()
    bench.back("false")
    bench.say("false", *[way(1) + tag(77) + b"y"] * 5000)
    bench.back("later")
    bench.say("service", way(446) + tag(1) + b"true")
    bench.lose("false")
    bench.say("later", way(446) + tag(2) + b"true as well")
    assert bench.to("client") == [tag(1) + b"true", tag(2) + b"true as well"]


@requirement("sp:req:round-robin", "sp:req:unmodified", "sp:req:reply-unmodified")
def test_services_get_requests_in_turn() -> None:
    bench = device()
    bench.back("second")
    bench.say("client", *(tag(i) + b"\0\xff" for i in range(6)))
    assert [sent.peer for sent in bench.sent] == ["service", "second"] * 3
    assert [sent.payload[4:] for sent in bench.sent] == [tag(i) + b"\0\xff" for i in range(6)]


# --- loops ----------------------------------------------------------------------------------------
@requirement("sp:loop:depth", "sp:loop:threshold")
@pytest.mark.parametrize(("hops", "limit"), [(None, 8), (2, 2), (15, 15)])
def test_a_request_with_too_many_tags_is_not_forwarded(hops: int | None, limit: int) -> None:
    assert DevicePolicy().hops == 8
    bench = device() if hops is None else device(hops=hops)
    deepest = way(*range(limit - 2)) + tag(1)
    bench.say("client", way(9) + deepest, deepest)
    assert [sent.payload for sent in bench.sent] == [way(446) + deepest]
    assert bench.device.snapshot().dropped == {"hops": 1}


@requirement("sp:loop:settles", "sp:loop:depth")
def test_a_loop_of_two_devices_terminates() -> None:
    """The devices forward a request until it has eight tags. Afterwards neither has any state of
    it."""
    one, two = ScalabilityDevice(first_id=100), ScalabilityDevice(first_id=200)
    for each in (one, two):
        each.handle([PeerJoined("in", b"", PipeOptions(FRONT))], 0.0)
        each.handle([PeerJoined("out", b"", PipeOptions(BACK))], 0.0)
    seen = [tag(1) + b"round and round"]
    turn = [one, two]
    while effects := list(turn[0].handle([Received("in", [[seen[-1]]])], 0.0)):
        ((peer, pieces),) = [(e.peer, e.message) for e in effects if isinstance(e, Send)]
        assert peer == "out"
        seen.append(b"".join(pieces))
        turn.reverse()
    assert len(seen) == 8
    assert all(len(after) == len(before) + 4 for before, after in pairwise(seen))
    for each in (one, two):
        assert each.snapshot().held == 0
        assert each.deadline() is None
    dropped = [dict(each.snapshot().dropped) for each in (one, two)]
    assert sorted(dropped, key=str) == [{"hops": 1}, {}]
