"""The worker of the scalability protocols, beyond the draft (see tests/spec for the draft)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.spec.requirement import requirement
from tests.support.sp_engines import RepBench, tag

from requite.engine import Connect, Finished, Progressed, Received, Started
from requite.errors import ConfigurationError, LocalViolation
from requite.protocols.scalability.policy import RepPolicy
from requite.request import Status


def send_batch(bench: RepBench, peer: str, n: int, size: int = 1) -> None:
    """Send n requests of a peer in one read."""
    bench.say(peer, *(tag(number) + bytes(size) for number in range(n)))


# --- capacity and queue limits --------------------------------------------------------------------
def test_the_number_of_running_requests_is_the_capacity() -> None:
    bench = RepBench(capacity=3)
    bench.join()
    send_batch(bench, "c", 5)
    assert len(bench.running) == 3
    assert bench.worker.snapshot().waiting == 2
    bench.finish(bench.running[1])
    assert len(bench.running) == 3
    while bench.running:
        bench.finish(bench.running[0])
    assert len(bench.sent) == 5
    bench.assert_empty()


def test_a_channel_over_the_queue_limit_is_paused() -> None:
    bench = RepBench(capacity=1, queue_max=10)
    bench.join("a")
    bench.join("b")
    send_batch(bench, "a", 11)
    assert bench.unread == set()
    send_batch(bench, "a", 1)
    assert bench.unread == {"a"}
    send_batch(bench, "a", 5)  # read before the pause
    send_batch(bench, "b", 1)
    assert bench.unread == {"a"}
    while bench.worker.snapshot().waiting > 5 + 1:
        assert bench.unread == {"a"}
        bench.finish(bench.running[0])
    bench.finish(bench.running[0])
    assert bench.unread == set()


def test_the_queue_limit_applies_to_bytes() -> None:
    bench = RepBench(capacity=1, queue_size_max=1000)
    bench.join()
    send_batch(bench, "c", 1)
    send_batch(bench, "c", 2, 400)
    assert bench.unread == set()
    send_batch(bench, "c", 1, 400)
    assert bench.unread == {"c"}
    bench.finish(bench.running[0])
    assert bench.unread == {"c"}
    bench.finish(bench.running[0])
    assert bench.unread == set()


# --- channels that push back ----------------------------------------------------------------------
def test_replies_to_a_channel_that_pushes_back_are_sent_up_to_a_limit() -> None:
    bench = RepBench(backlog_size_max=130)
    bench.join()
    send_batch(bench, "c", 4)
    bench.block("c")
    for _ in range(3):
        bench.finish(bench.running[0], bytes(60))
    assert len(bench.sent) == 2
    assert bench.worker.snapshot().dropped == {"pushback": 1}
    assert [warning.kind for warning in bench.warnings] == ["unread reply"]
    bench.unblock("c")
    bench.finish(bench.running[0], bytes(60))
    assert len(bench.sent) == 3


def test_requests_of_a_channel_that_pushes_back_are_not_started() -> None:
    bench = RepBench(capacity=1)
    bench.join("deaf")
    bench.join("good")
    bench.block("deaf")
    send_batch(bench, "deaf", 3)
    assert bench.running == []
    send_batch(bench, "good", 2)
    bench.finish(bench.running[0])
    bench.finish(bench.running[0])
    assert len(bench.requests) == 2
    assert bench.worker.snapshot().waiting == 3
    bench.unblock("deaf")
    assert len(bench.requests) == 3


def test_a_channel_skipped_for_push_back_is_next() -> None:
    bench = RepBench(capacity=1)
    for peer in "abc":
        bench.join(peer)
    bench.say("a", tag(1) + b"a", tag(1) + b"a")
    bench.say("b", tag(2) + b"b")
    bench.say("c", tag(3) + b"c", tag(3) + b"c", tag(3) + b"c")
    bench.block("b")
    bench.finish(bench.running[0])  # a's request; then b is skipped
    bench.finish(bench.running[0])
    bench.unblock("b")
    for _ in range(4):
        bench.finish(bench.running[0])
    assert b"".join(bench.bodies()) == b"aacbcc"


# --- lost channels --------------------------------------------------------------------------------
def test_waiting_requests_of_a_lost_channel_never_start() -> None:
    bench = RepBench(capacity=1)
    bench.join("a")
    bench.join("b")
    send_batch(bench, "a", 3)
    send_batch(bench, "b", 1)
    bench.lose("a")
    assert list(bench.abandoned.values()) == ["reset"]
    assert bench.worker.snapshot().dropped == {"lost": 2}
    bench.finish(bench.running[0], status=Status.CANCELLED)
    assert len(bench.requests) == 2
    bench.finish(bench.running[0])
    assert [sent.peer for sent in bench.sent] == ["b"]
    bench.assert_empty()


def test_an_abandoned_handler_occupies_its_slot_until_it_has_ended() -> None:
    bench = RepBench(capacity=1)
    bench.join("a")
    bench.join("b")
    abandoned = bench.request("a")
    bench.lose("a")
    send_batch(bench, "b", 1)
    assert len(bench.requests) == 1
    snapshot = bench.worker.snapshot()
    assert (snapshot.running, snapshot.abandoned, snapshot.waiting) == (0, 1, 1)
    bench.produce(abandoned, b"unheard")
    bench.finish(abandoned)
    assert len(bench.requests) == 2


@requirement("sp:rep:unknown-channel")
@pytest.mark.parametrize("newcomer", ["a", "b"])
def test_a_reply_to_a_lost_channel_is_dropped(newcomer: str) -> None:
    bench = RepBench()
    bench.join("a")
    job = bench.request("a")
    bench.lose("a")
    assert bench.abandoned == {job: "reset"}
    bench.join(newcomer)
    bench.finish(job, b"too late")
    assert bench.sent == []
    bench.assert_empty()


def test_messages_of_unknown_peers_are_ignored() -> None:
    bench = RepBench()
    bench.feed(Received("stranger", [[tag(1)]]))
    assert bench.requests == {}


# --- handlers -------------------------------------------------------------------------------------
def test_partial_replies_are_joined() -> None:
    bench = RepBench()
    bench.join()
    job = bench.request("c", tag(9))
    bench.produce(job, b"one,")
    bench.produce(job, b"two", b",")
    bench.finish(job, b"three")
    assert bench.to("c") == [tag(9) + b"one,two,three"]


def test_partial_replies_over_the_size_limit_are_abandoned() -> None:
    bench = RepBench(reply_size_max=10)
    bench.join()
    job = bench.request()
    bench.produce(job, bytes(10))
    assert bench.abandoned == {}
    bench.produce(job, b"x")
    assert list(bench.abandoned) == [job]
    assert [warning.kind for warning in bench.warnings] == ["reply too large"]
    bench.produce(job, b"more")
    bench.finish(job)
    assert bench.sent == []
    bench.assert_empty()


def test_a_failed_request_causes_a_warning_and_no_reply() -> None:
    bench = RepBench()
    bench.join()
    bench.finish(bench.request(), b"ValueError: what now?", status=Status.FAILED)
    assert "ValueError: what now?" in bench.warnings[0].text
    assert bench.sent == []


def test_progress_and_starts_change_nothing() -> None:
    bench = RepBench()
    bench.join()
    job = bench.request()
    bench.feed(Started(job))
    bench.feed(Progressed(job, 5.0))
    bench.finish(job)
    assert len(bench.sent) == 1
    assert bench.worker.deadline() is None


# --- draining -------------------------------------------------------------------------------------
def test_a_draining_worker_finishes_the_requests_that_it_has_read() -> None:
    bench = RepBench(capacity=1)
    bench.join("a")
    bench.join("b")
    send_batch(bench, "a", 2)
    bench.drain()
    assert bench.unread == {"a", "b"}
    assert not bench.stopped
    bench.join("late")
    assert "late" in bench.disconnected
    bench.finish(bench.running[0])
    assert not bench.stopped
    bench.finish(bench.running[0])
    assert bench.stopped
    assert bench.unread == {"a", "b"}
    send_batch(bench, "a", 1)
    assert len(bench.requests) == 2
    bench.drain()


def test_a_draining_worker_does_not_wait_for_channels_that_push_back() -> None:
    bench = RepBench()
    bench.join()
    bench.block("c")
    send_batch(bench, "c", 1)
    bench.drain()
    assert bench.stopped


def test_invalid_inputs_raise_a_local_violation() -> None:
    bench = RepBench()
    bench.join()
    job = bench.request()
    for event in (Connect(), Finished(job, [b""], Status.EXPIRED)):
        with pytest.raises(LocalViolation):
            bench.feed(event)
    bench.finish(job)
    assert len(bench.sent) == 1


@pytest.mark.parametrize(
    "policy",
    [
        {"capacity": 0},
        {"hops": 0},
        {"hops": 256},
        {"queue_max": 0},
        {"queue_size_max": 0},
        {"reply_size_max": 0},
        {"backlog_size_max": -1},
    ],
)
def test_invalid_settings_are_refused(policy: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        RepPolicy(**policy)


def test_notes_are_emitted_for_each_step_of_a_request() -> None:
    bench = RepBench()
    bench.join("a")
    bench.join("b")
    bench.finish(bench.request("a"))
    bench.request("b")
    bench.say("b", b"?")
    bench.lose("b")
    kinds = [note.kind for note in bench.notes]
    assert kinds == ["delivered", "finished", "delivered", "dropped", "abandoned"]
