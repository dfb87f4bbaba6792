"""Requirements of 6/PPP and the Guide for the worker of the Paranoid Pirate."""

from __future__ import annotations

import pytest
from tests.spec.requirement import requirement
from tests.support.pirate_engines import HEARTBEAT, READY, WorkerBench

from requite.core.liveness import HeartbeatPolicy
from requite.engine import Cause, Wake
from requite.protocols.pirate.policy import WorkerPolicy
from requite.protocols.pirate.wire import Pattern

POLICY = WorkerPolicy(heartbeat=HeartbeatPolicy(1.0, 3))
REQUEST = [b"client", b"", b"hello"]


def worker(*, joined: bool = True) -> WorkerBench:
    bench = WorkerBench(Pattern.PARANOID, POLICY)
    bench.feed(Wake())
    assert len(bench.dials) == 1
    if joined:
        bench.join("q")
    return bench


@requirement("ppp:ready-first", "ppp:format:ready")
def test_the_first_message_is_ready() -> None:
    bench = worker()
    assert bench.sent == [("q", [READY])]


@requirement("ppp:format:request", "ppp:format:reply", "ppp:one-reply")
@pytest.mark.parametrize(
    "envelope",
    [[b"client", b""], [b"one", b"two", b""], [b""], []],
    ids=["one address", "two addresses", "no address", "no stack"],
)
def test_the_reply_has_the_envelope_of_its_request(envelope: list[bytes]) -> None:
    bench = worker()
    bench.say("q", [*envelope, b"hello"])
    [job] = bench.jobs
    assert bench.requests[job].frames == [b"hello"]
    bench.finish(job, b"world", b"!")
    assert bench.to("q")[1:] == [[*envelope, b"world", b"!"]]
    bench.finish(job, b"again")
    assert len(bench.to("q")) == 2


@requirement("ppp:format:heartbeat", "ppp:heartbeat:sent")
def test_heartbeats_are_sent_while_a_request_runs() -> None:
    bench = worker()
    bench.say("q", REQUEST)
    bench.advance(5.0)
    assert bench.to("q")[1:] == [[HEARTBEAT]] * 5


@requirement("ppp:heartbeat:sent")
def test_a_reply_replaces_a_heartbeat() -> None:
    bench = worker()
    bench.say("q", REQUEST)
    bench.advance(0.9)
    bench.finish(bench.jobs[0])
    bench.advance(0.9)
    assert [HEARTBEAT] not in bench.to("q")


@requirement(
    "ppp:heartbeat:gone", "ppp:goal:presence", "ppp:worker:anew", "pirate:paranoid:queue-restart"
)
def test_a_worker_reconnects_after_its_queue_times_out() -> None:
    bench = worker()
    bench.advance(2.9)
    assert "q" in bench.peers
    bench.advance(0.2)
    assert "nothing came from the queue" in bench.disconnected["q"]
    assert bench.causes["q"] is Cause.SILENT
    bench.advance(1.0)
    assert len(bench.dials) == 2
    bench.join("q2")
    assert bench.to("q2") == [[READY]]


@requirement("ppp:heartbeat:gone")
@pytest.mark.parametrize("word", [HEARTBEAT, b"HEARTBEAT"])
def test_heartbeats_of_the_queue_keep_the_connection(word: bytes) -> None:
    bench = worker()
    for _ in range(10):
        bench.advance(2.5)
        bench.say("q", [word])
    assert "q" in bench.peers


@requirement("pirate:paranoid:back-off")
def test_the_back_off_doubles_from_1_to_32_s_until_a_message_resets_it() -> None:
    bench = worker(joined=False)
    pauses = []
    for n in range(8):
        name = bench.join(f"q{n}")
        before = len(bench.dials)
        bench.advance(3.0)
        assert name in bench.disconnected
        gone_at = bench.now
        bench.advance(33.0)
        assert len(bench.dials) == before + 1
        pauses.append(bench.dials[-1] - gone_at)
    assert pauses == pytest.approx([1, 2, 4, 8, 16, 32, 32, 32])
    bench.join("good")
    bench.say("good", [HEARTBEAT])
    bench.advance(3.0)
    gone_at = bench.now
    bench.advance(2.0)
    assert bench.dials[-1] - gone_at == pytest.approx(1.0)


@requirement("pirate:heartbeat:no-false-failures")
def test_silence_of_the_queue_does_not_count_while_a_request_runs() -> None:
    bench = worker()
    bench.say("q", REQUEST)
    bench.advance(60.0)
    assert "q" in bench.peers
    bench.finish(bench.jobs[0])
    bench.advance(2.9)
    assert "q" in bench.peers
    bench.advance(0.2)
    assert "q" in bench.disconnected


@requirement("pirate:heartbeat:no-false-failures")
def test_a_pause_of_the_worker_does_not_count_as_silence_of_the_queue() -> None:
    bench = worker()
    bench.advance(0.5)
    bench.freeze(60.0)
    assert "q" in bench.peers


@requirement("ppp:one-reply")
def test_a_second_request_waits_for_the_first() -> None:
    # Queues like the Guide's take a heartbeat of a busy worker for READY, and send another request.
    bench = worker()
    bench.say("q", [b"a", b"", b"1"], [b"b", b"", b"2"])
    assert bench.bodies() == [b"1"]
    bench.finish(bench.jobs[0], b"one")
    assert bench.bodies() == [b"1", b"2"]
    bench.finish(bench.jobs[1], b"two")
    assert bench.to("q")[1:] == [[b"a", b"", b"one"], [b"b", b"", b"two"]]
