"""The device of the scalability protocols, beyond the draft (see tests/spec for that)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.sp_engines import DeviceBench, Sent, tag, way

from requite.engine import Finished, PeerJoined, Received
from requite.errors import ConfigurationError, LocalViolation
from requite.protocols.scalability.channels import PORTION_SIZE
from requite.protocols.scalability.policy import DevicePolicy, PipeOptions


def device(**policy: Any) -> DeviceBench:
    """A device between two clients and a service."""
    bench = DeviceBench(**policy)
    bench.front("a", "b")
    bench.back("s")
    return bench


def burst(bench: DeviceBench, peer: str, n: int, size: int = 1) -> None:
    """Feed n requests in one read."""
    bench.say(peer, *(tag(number) + bytes(size) for number in range(n)))


# --- when nobody takes requests -------------------------------------------------------------------
def test_whoever_asks_is_not_read_from_while_nobody_takes_its_requests() -> None:
    bench = device()
    bench.block("s")
    burst(bench, "a", 1)
    assert bench.unread == {"a"}
    burst(bench, "a", 2)  # what had been read already
    assert bench.device.snapshot().held == 3
    bench.back("t")
    assert [sent.peer for sent in bench.sent] == ["t"] * 3
    assert bench.unread == set()
    bench.assert_empty()


def test_what_waits_leaves_in_portions() -> None:
    bench = device()
    bench.block("s")
    burst(bench, "a", 4, PORTION_SIZE // 2)
    bench.unblock("s")
    assert len(bench.sent) == 2
    assert bench.device.deadline() == bench.now
    burst(bench, "b", 1)  # has its turn as all others, and no more than that
    assert len(bench.sent) == 2
    bench.advance(0)
    assert [sent.payload[:4] for sent in bench.sent[2:4]] == [way(446), way(447)]
    bench.advance(0)
    assert len(bench.sent) == 5
    assert bench.unread == set()
    assert bench.device.deadline() is None


def test_what_waits_when_its_channel_is_lost_is_dropped() -> None:
    bench = device()
    bench.block("s")
    burst(bench, "a", 2)
    burst(bench, "b", 1)
    bench.lose("a")
    bench.unblock("s")
    assert [sent.payload[:4] for sent in bench.sent] == [way(447)]
    assert bench.device.snapshot().dropped == {"lost": 2}


def test_when_nothing_moves_for_too_long_what_waits_is_dropped() -> None:
    """Two devices in a loop may each wait for the other to read."""
    bench = device(hold_s=5)
    bench.block("s")
    burst(bench, "a", 2)
    bench.advance(4.9)
    assert bench.unread == {"a"}
    bench.advance(0.2)
    assert bench.unread == set()
    assert bench.device.snapshot().dropped == {"stuck": 2}
    assert bench.sent == []
    assert bench.device.deadline() is None


def test_as_long_as_something_moves_nothing_is_dropped() -> None:
    bench = device(hold_s=5)
    for _ in range(5):
        bench.block("s")
        burst(bench, "a", 3, PORTION_SIZE // 2)
        bench.advance(4)
        bench.unblock("s")
    bench.advance(100)
    assert len(bench.sent) == 15
    assert bench.device.snapshot().dropped == {}


def test_without_any_channel_to_the_back_requests_wait_for_ever() -> None:
    bench = device(hold_s=5)
    bench.block("s")
    burst(bench, "a", 1)
    bench.advance(3)
    bench.lose("s")
    bench.advance(1000)
    assert bench.unread == {"a"}
    bench.back("t")
    assert [sent.peer for sent in bench.sent] == ["t"]


# --- channels in front that push back -------------------------------------------------------------
def test_replies_to_a_channel_that_pushes_back_are_sent_up_to_a_bound() -> None:
    bench = device(backlog_size_max=130)
    bench.block("a")
    for _ in range(3):
        bench.say("s", way(446) + tag(1) + bytes(52))
    assert len(bench.sent) == 2
    assert bench.device.snapshot().dropped == {"pushback": 1}
    assert [warning.kind for warning in bench.warnings] == ["unread reply"]
    bench.unblock("a")
    bench.say("s", way(446) + tag(1) + b"y")
    assert bench.sent[-1] == Sent("a", tag(1) + b"y")


def test_whoever_takes_no_replies_asks_nothing_either() -> None:
    bench = device()
    bench.block("a")
    burst(bench, "a", 2)
    burst(bench, "b", 1)
    assert [sent.payload[:4] for sent in bench.sent] == [way(447)]
    assert bench.unread == {"a"}
    bench.unblock("a")
    assert [sent.payload[:4] for sent in bench.sent[1:]] == [way(446)] * 2
    assert bench.unread == set()


# --- who is where ---------------------------------------------------------------------------------
@pytest.mark.parametrize("place", [None, PipeOptions(), PipeOptions("left"), "front"])
def test_every_peer_is_in_front_or_behind(place: object) -> None:
    bench = DeviceBench()
    with pytest.raises(LocalViolation, match="FRONT or BACK"):
        bench.feed(PeerJoined("x", b"", place))


def test_what_comes_from_strangers_is_ignored() -> None:
    bench = device()
    bench.feed(Received("x", [[tag(1)], [way(446) + tag(1)]]))
    assert bench.sent == []
    assert bench.device.snapshot().dropped == {}


def test_priorities_and_weights_hold_for_the_back() -> None:
    bench = DeviceBench()
    bench.front("a")
    bench.back("far", priority=3)
    bench.back("near", weight=2)
    bench.back("beside")
    burst(bench, "a", 6)
    bench.lose("near")
    bench.lose("beside")
    burst(bench, "a", 1)
    peers = [sent.peer for sent in bench.sent]
    assert sorted(peers[:6]) == ["beside"] * 2 + ["near"] * 4
    assert peers[6:] == ["far"]


# --- the end --------------------------------------------------------------------------------------
def test_a_draining_device_passes_replies_on_for_a_while() -> None:
    bench = device(linger_s=2)
    burst(bench, "a", 1)
    bench.drain()
    assert bench.unread == {"a", "b"}
    bench.advance(1)
    bench.say("s", way(446) + tag(0) + b"y")
    assert bench.sent[-1] == Sent("a", tag(0) + b"y")
    for join in (bench.front, bench.back):
        join("late")
        assert "late" in bench.disconnected
        bench.backs.discard("late")
    assert not bench.stopped
    bench.advance(1.1)
    assert bench.stopped
    bench.say("s", way(446) + tag(0) + b"y")
    assert len(bench.sent) == 2
    bench.drain()
    assert bench.device.deadline() is None


def test_what_waits_in_a_draining_device_may_still_leave() -> None:
    bench = device(linger_s=2)
    bench.block("s")
    burst(bench, "a", 1)
    bench.drain()
    bench.unblock("s")
    assert len(bench.sent) == 1
    assert bench.unread == {"a", "b"}


def test_a_device_that_nobody_asks_stops_at_once() -> None:
    bench = DeviceBench()
    bench.back("s")
    bench.drain()
    assert bench.stopped


def test_what_makes_no_sense_is_a_local_violation() -> None:
    with pytest.raises(LocalViolation):
        device().feed(Finished(1, [b""]))


@pytest.mark.parametrize(
    "policy",
    [{"hops": 1}, {"hops": 256}, {"hold_s": 0}, {"linger_s": -1}, {"backlog_size_max": -1}],
)
def test_settings_that_cannot_work_are_refused(policy: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        DevicePolicy(**policy)


def test_notes_and_counters_tell_what_was_dropped() -> None:
    bench = device()
    bench.say("a", b"?", tag(1), way(*range(9)) + tag(1))
    bench.say("s", way(1) + tag(1), way(446) + tag(1))
    assert [note.facts for note in bench.notes] == [
        {"why": "malformed", "count": 1},
        {"why": "hops", "count": 1},
        {"why": "stray", "count": 1},
    ]
    snapshot = bench.device.snapshot()
    assert (snapshot.requests, snapshot.replies) == (1, 1)
    assert snapshot.dropped == {"malformed": 1, "hops": 1, "stray": 1}
