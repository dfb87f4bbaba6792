"""The device of the scalability protocols, beyond the draft (see tests/spec for the draft)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.sp_engines import DeviceBench, Sent, tag, way

from requite.engine import Finished, PeerJoined, Received
from requite.errors import ConfigurationError, LocalViolation
from requite.protocols.scalability.channels import PORTION_SIZE
from requite.protocols.scalability.policy import DevicePolicy, PipeOptions


def device(**policy: Any) -> DeviceBench:
    """Return a device with two clients and one service."""
    bench = DeviceBench(**policy)
    bench.front("a", "b")
    bench.back("s")
    return bench


def send_batch(bench: DeviceBench, peer: str, n: int, size: int = 1) -> None:
    """Send n requests of a peer in one read."""
    bench.say(peer, *(tag(number) + bytes(size) for number in range(n)))


# --- requests without an available service --------------------------------------------------------
def test_a_client_is_paused_while_no_service_accepts_requests() -> None:
    bench = device()
    bench.block("s")
    send_batch(bench, "a", 1)
    assert bench.unread == {"a"}
    send_batch(bench, "a", 2)  # read before the pause
    assert bench.device.snapshot().held == 3
    bench.back("t")
    assert [sent.peer for sent in bench.sent] == ["t"] * 3
    assert bench.unread == set()
    bench.assert_empty()


def test_waiting_requests_are_sent_in_portions() -> None:
    bench = device()
    bench.block("s")
    send_batch(bench, "a", 4, PORTION_SIZE // 2)
    bench.unblock("s")
    assert len(bench.sent) == 2
    assert bench.device.deadline() == bench.now
    send_batch(bench, "b", 1)  # gets a turn like all others, and no more
    assert len(bench.sent) == 2
    bench.advance(0)
    assert [sent.payload[:4] for sent in bench.sent[2:4]] == [way(446), way(447)]
    bench.advance(0)
    assert len(bench.sent) == 5
    assert bench.unread == set()
    assert bench.device.deadline() is None


def test_waiting_requests_of_a_lost_client_are_dropped() -> None:
    bench = device()
    bench.block("s")
    send_batch(bench, "a", 2)
    send_batch(bench, "b", 1)
    bench.lose("a")
    bench.unblock("s")
    assert [sent.payload[:4] for sent in bench.sent] == [way(447)]
    assert bench.device.snapshot().dropped == {"lost": 2}


def test_waiting_requests_are_dropped_after_hold_s_without_progress() -> None:
    """Two devices in a loop may each wait for the other to read."""
    bench = device(hold_s=5)
    bench.block("s")
    send_batch(bench, "a", 2)
    bench.advance(4.9)
    assert bench.unread == {"a"}
    bench.advance(0.2)
    assert bench.unread == set()
    assert bench.device.snapshot().dropped == {"stuck": 2}
    assert bench.sent == []
    assert bench.device.deadline() is None


def test_nothing_is_dropped_while_requests_make_progress() -> None:
    bench = device(hold_s=5)
    for _ in range(5):
        bench.block("s")
        send_batch(bench, "a", 3, PORTION_SIZE // 2)
        bench.advance(4)
        bench.unblock("s")
    bench.advance(100)
    assert len(bench.sent) == 15
    assert bench.device.snapshot().dropped == {}


def test_requests_wait_without_limit_while_no_service_is_connected() -> None:
    bench = device(hold_s=5)
    bench.block("s")
    send_batch(bench, "a", 1)
    bench.advance(3)
    bench.lose("s")
    bench.advance(1000)
    assert bench.unread == {"a"}
    bench.back("t")
    assert [sent.peer for sent in bench.sent] == ["t"]


# --- clients that push back -----------------------------------------------------------------------
def test_replies_to_a_client_that_pushes_back_are_sent_up_to_a_limit() -> None:
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


def test_requests_of_a_client_that_pushes_back_wait() -> None:
    bench = device()
    bench.block("a")
    send_batch(bench, "a", 2)
    send_batch(bench, "b", 1)
    assert [sent.payload[:4] for sent in bench.sent] == [way(447)]
    assert bench.unread == {"a"}
    bench.unblock("a")
    assert [sent.payload[:4] for sent in bench.sent[1:]] == [way(446)] * 2
    assert bench.unread == set()


# --- front and back -------------------------------------------------------------------------------
@pytest.mark.parametrize("place", [None, PipeOptions(), PipeOptions("left"), "front"])
def test_a_peer_without_front_or_back_is_refused(place: object) -> None:
    bench = DeviceBench()
    with pytest.raises(LocalViolation, match="FRONT or BACK"):
        bench.feed(PeerJoined("x", b"", place))


def test_messages_of_unknown_peers_are_ignored() -> None:
    bench = device()
    bench.feed(Received("x", [[tag(1)], [way(446) + tag(1)]]))
    assert bench.sent == []
    assert bench.device.snapshot().dropped == {}


def test_priorities_and_weights_apply_to_services() -> None:
    bench = DeviceBench()
    bench.front("a")
    bench.back("far", priority=3)
    bench.back("near", weight=2)
    bench.back("beside")
    send_batch(bench, "a", 6)
    bench.lose("near")
    bench.lose("beside")
    send_batch(bench, "a", 1)
    peers = [sent.peer for sent in bench.sent]
    assert sorted(peers[:6]) == ["beside"] * 2 + ["near"] * 4
    assert peers[6:] == ["far"]


# --- draining -------------------------------------------------------------------------------------
def test_a_draining_device_forwards_replies_for_linger_s() -> None:
    bench = device(linger_s=2)
    send_batch(bench, "a", 1)
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


def test_a_draining_device_sends_waiting_requests() -> None:
    bench = device(linger_s=2)
    bench.block("s")
    send_batch(bench, "a", 1)
    bench.drain()
    bench.unblock("s")
    assert len(bench.sent) == 1
    assert bench.unread == {"a", "b"}


def test_a_drained_device_without_clients_stops_at_once() -> None:
    bench = DeviceBench()
    bench.back("s")
    bench.drain()
    assert bench.stopped


def test_a_foreign_input_raises_a_local_violation() -> None:
    with pytest.raises(LocalViolation):
        device().feed(Finished(1, [b""]))


@pytest.mark.parametrize(
    "policy",
    [{"hops": 1}, {"hops": 256}, {"hold_s": 0}, {"linger_s": -1}, {"backlog_size_max": -1}],
)
def test_invalid_settings_are_refused(policy: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        DevicePolicy(**policy)


def test_notes_and_counters_show_dropped_messages() -> None:
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
