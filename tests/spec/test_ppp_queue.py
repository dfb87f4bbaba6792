"""Requirements of 6/PPP and the Guide for the queue of the Paranoid Pirate."""

from __future__ import annotations

from tests.spec.requirement import requirement
from tests.support.pirate_engines import HEARTBEAT, READY, QueueBench

from requite.core.liveness import HeartbeatPolicy
from requite.engine import Cause
from requite.protocols.pirate.policy import QueuePolicy
from requite.protocols.pirate.wire import Pattern

POLICY = QueuePolicy(heartbeat=HeartbeatPolicy(1.0, 3))


def queue() -> QueueBench:
    return QueueBench(Pattern.PARANOID, POLICY)


@requirement("ppp:format:request", "ppp:format:reply", "ppp:one-reply")
def test_a_request_and_its_reply_on_the_wire() -> None:
    bench = queue()
    bench.client("c")
    bench.worker("w")
    bench.say("c", [b"", b"hello", b"", b"world"])
    assert bench.to("w") == [[b"\0\0\0\0\x07", b"", b"hello", b"", b"world"]]
    bench.say("w", [b"\0\0\0\0\x07", b"", b"the", b"reply"])
    assert bench.to("c") == [[b"", b"the", b"reply"]]
    bench.say("w", [b"\0\0\0\0\x07", b"", b"again"])
    assert len(bench.to("c")) == 1
    assert bench.queue.snapshot().dropped == {"stray": 1}


@requirement("ppp:format:request")
def test_a_reply_carries_all_addresses_of_its_request() -> None:
    bench = queue()
    bench.client("device")
    bench.worker("w")
    bench.say("device", [b"first", b"second", b"", b"x"])
    assert bench.to("w")[-1] == [b"\0\0\0\0\x07", b"first", b"second", b"", b"x"]
    bench.answer("w", b"y")
    assert bench.to("device") == [[b"first", b"second", b"", b"y"]]


@requirement("ppp:ready-first", "ppp:format:ready")
def test_a_worker_gets_nothing_before_its_ready() -> None:
    bench = queue()
    bench.client("c")
    bench.newcomer("w")
    bench.ask("c", b"x")
    bench.say("w", [HEARTBEAT])
    bench.say("w", [b"\0\0\0\0\x07", b"", b"made up"])
    assert (bench.to("w"), bench.to("c")) == ([], [])
    assert bench.queue.snapshot().dropped == {"unready": 2}
    bench.say("w", [READY])
    assert bench.requests("w") == [b"x"]


@requirement("ppp:format:ready", "ppp:format:heartbeat", "ppp:heartbeat:sent")
def test_a_worker_gets_heartbeats_in_its_own_format() -> None:
    bench = queue()
    bench.newcomer("guide")
    bench.say("guide", [b"READY"])
    bench.worker("ppp")
    bench.advance(1.0)
    assert bench.to("guide") == [[b"HEARTBEAT"]]
    assert bench.to("ppp") == [[HEARTBEAT]]
    bench.say("guide", [b"HEARTBEAT"])
    assert bench.queue.snapshot().idle == 2


@requirement("ppp:heartbeat:sent")
def test_heartbeats_go_to_idle_and_busy_workers_unless_a_request_was_sent() -> None:
    bench = queue()
    bench.client("c")
    bench.worker("w")
    bench.advance(0.9)
    bench.ask("c", b"x")
    bench.advance(0.9)
    assert bench.beats("w") == 0
    bench.advance(3.0)
    assert bench.beats("w") == 3


@requirement("ppp:heartbeat:gone", "ppp:goal:presence", "ppp:queue:silent-worker")
def test_a_silent_worker_is_disconnected_after_three_intervals() -> None:
    bench = queue()
    bench.client("c")
    bench.worker("w")
    bench.advance(2.9)
    assert "w" in bench.peers
    bench.advance(0.2)
    assert "nothing came" in bench.disconnected["w"]
    assert bench.causes["w"] is Cause.SILENT
    sent = len(bench.to("w"))
    bench.ask("c", b"x")
    bench.advance(5.0)
    assert len(bench.to("w")) == sent
    assert bench.queue.snapshot().waiting == 1


@requirement("pirate:heartbeat:no-false-failures")
def test_a_worker_that_sends_heartbeats_stays_connected() -> None:
    bench = queue()
    bench.worker("w")
    for _ in range(20):
        bench.advance(2.5)
        bench.say("w", [HEARTBEAT])
    assert "w" in bench.peers


@requirement("pirate:heartbeat:no-false-failures")
def test_a_pause_of_the_queue_does_not_count_as_silence_of_its_workers() -> None:
    bench = queue()
    bench.worker("w")
    bench.advance(0.5)
    bench.freeze(60.0)
    assert "w" in bench.peers
    bench.say("w", [HEARTBEAT])
    bench.advance(2.9)
    assert "w" in bench.peers


@requirement("ppp:heartbeat:gone", "ppp:heartbeat:sent")
def test_a_worker_that_is_ready_late_does_not_excuse_the_silence_of_another() -> None:
    bench = queue()
    bench.worker("silent")
    bench.newcomer("late")
    bench.advance(2.5)
    bench.ready("late")
    bench.advance(0.6)
    assert "silent" in bench.disconnected
    assert bench.beats("late") == 1


@requirement("pirate:paranoid:idle-only")
def test_a_busy_worker_does_not_time_out() -> None:
    bench = queue()
    bench.client("c")
    bench.worker("w")
    bench.ask("c", b"x")
    bench.advance(3600.0)
    bench.answer("w", b"at last")
    assert bench.to("c") == [[b"", b"at last"]]
    bench.advance(3.1)
    assert "w" in bench.disconnected  # idle since its reply


@requirement("ppp:goal:lru")
def test_requests_go_to_the_worker_that_was_used_least_recently() -> None:
    bench = queue()
    for name in "abc":
        bench.worker(name)
        bench.client(f"client of {name}")
    for n in range(9):
        bench.ask("client of a", b"%d" % n)
        bench.answer("abc"[n % 3], b"done")
    assert [bench.requests(name) for name in "abc"] == [
        [b"0", b"3", b"6"], [b"1", b"4", b"7"], [b"2", b"5", b"8"],
    ]  # fmt: skip


@requirement("ppp:goal:lru")
def test_a_second_ready_moves_a_worker_to_the_end_of_the_queue() -> None:
    bench = queue()
    bench.client("c")
    bench.worker("a")
    bench.worker("b")
    bench.ready("a")
    bench.ask("c", b"x")
    assert bench.requests("b") == [b"x"]


@requirement("ppp:goal:recovery", "pirate:simple:client-recovers")
def test_the_client_of_a_lost_worker_is_disconnected_and_retries_with_another() -> None:
    bench = queue()
    bench.client("c")
    bench.worker("a")
    bench.worker("b")
    bench.ask("c", b"x")
    bench.lose("a")
    assert bench.requests("b") == []
    assert "its request was lost" in bench.disconnected["c"]  # so that the client retries at once
    bench.client("c again")
    bench.ask("c again", b"x")
    assert bench.requests("b") == [b"x"]


@requirement("ppp:goal:recovery")
def test_a_client_with_other_pending_requests_stays_connected() -> None:
    bench = queue()
    bench.client("dealer")
    bench.worker("a")
    bench.worker("b")
    bench.say("dealer", [b"", b"1"], [b"", b"2"])
    bench.lose("a")
    assert "dealer" in bench.peers
    bench.answer("b", b"two")
    assert bench.to("dealer") == [[b"", b"two"]]


@requirement("ppp:worker:anew")
def test_ready_of_a_busy_worker_drops_its_request() -> None:
    bench = queue()
    bench.client("c")
    bench.worker("w")
    bench.ask("c", b"x")
    bench.ready("w")
    assert "its request was lost" in bench.disconnected["c"]
    bench.answer("w", b"of the former conversation")
    assert bench.queue.snapshot().dropped == {"lost": 1, "stray": 1}
    assert bench.queue.snapshot().idle == 1
