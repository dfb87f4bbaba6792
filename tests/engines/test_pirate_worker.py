"""A worker at a queue of the Pirates, beyond the Guide."""

from __future__ import annotations

import pytest
from tests.support.pirate_engines import HEARTBEAT, READY, WorkerBench

from requite.chronicle import Kind
from requite.engine import Cause, Produced, Progressed, Started, Submit, Wake
from requite.errors import ConfigurationError, LocalViolation
from requite.protocols.pirate.policy import WorkerPolicy
from requite.protocols.pirate.wire import Pattern
from requite.request import Status

REQUEST = [b"client", b"", b"hello"]


def worker(
    pattern: Pattern = Pattern.PARANOID,
    policy: WorkerPolicy | None = None,
    *,
    journal: bool = False,
) -> WorkerBench:
    bench = WorkerBench(pattern, policy, journal=journal)
    bench.feed(Wake())
    bench.join("q")
    return bench


@pytest.mark.parametrize("pattern", Pattern)
def test_a_lost_queue_is_dialled_again_after_the_handler_has_ended(
    pattern: Pattern,
) -> None:
    bench = worker(pattern)
    bench.say("q", REQUEST)
    bench.lose("q", "restarted")
    assert bench.abandoned == {bench.jobs[0]: "restarted"}
    assert bench.engine.deadline() is None
    assert len(bench.dials) == 1  # a new request would have to wait for the running handler
    bench.finish(bench.jobs[0], b"late")
    assert len(bench.dials) == 2
    bench.join("q2")
    assert bench.sent[-1][0] == "q2"
    assert len(bench.to("q2")) == 1
    assert [k for k, v in vars(bench.worker.snapshot()).items() if v] == ["connected"]


@pytest.mark.parametrize("pattern", Pattern)
def test_a_queue_that_closes_all_connections_is_dialled_with_back_off(
    pattern: Pattern,
) -> None:
    bench = worker(pattern)
    pauses = []
    queue = "q"
    for following in ("r", "s", "t", "u"):
        lost_at = bench.now
        bench.lose(queue)
        bench.advance(40.0)
        pauses.append(bench.dials[-1] - lost_at)
        queue = bench.join(following)
    assert pauses == pytest.approx([1, 2, 4, 8])


@pytest.mark.parametrize("pattern", Pattern)
def test_any_message_of_a_paranoid_queue_counts_as_an_answer(pattern: Pattern) -> None:
    bench = worker(pattern)
    assert bench.worker.is_answered == (pattern is Pattern.SIMPLE)  # SIMPLE has no heartbeats
    bench.say("q", [HEARTBEAT] if pattern is Pattern.PARANOID else REQUEST)
    assert bench.worker.is_answered
    bench.lose("q")
    assert not bench.worker.is_answered


def test_a_connection_that_lasted_is_replaced_at_once() -> None:
    bench = worker(Pattern.SIMPLE)
    bench.advance(1.0)
    bench.lose("q")
    assert len(bench.dials) == 2


@pytest.mark.parametrize("pattern", Pattern)
@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED])
def test_a_failed_request_closes_the_connection(pattern: Pattern, status: Status) -> None:
    bench = worker(pattern)
    said = len(bench.sent)
    bench.say("q", REQUEST)
    bench.finish(bench.jobs[0], b"no", status=status)
    assert "no" in bench.disconnected["q"]
    assert len(bench.sent) == said
    assert len(bench.dials) == 2
    bench.join("q2")
    assert len(bench.to("q2")) == 1


@pytest.mark.parametrize("frames", [[b"c", b""], [b""]])
def test_a_malformed_message_closes_the_connection(frames: list[bytes]) -> None:
    bench = worker()
    bench.say("q", frames)
    assert "broke the protocol" in bench.disconnected["q"]
    assert bench.causes["q"] is Cause.FAULTY
    assert [each.kind for each in bench.warnings] == ["malformed"]


def test_the_number_of_requests_waiting_for_a_running_one_is_limited() -> None:
    bench = worker(policy=WorkerPolicy(backlog_max=2))
    bench.say("q", *([b"c", b"", b"%d" % n] for n in range(5)))
    assert bench.worker.snapshot().waiting == 2
    assert [each.kind for each in bench.warnings] == ["backlog"] * 2
    for n in range(3):
        bench.finish(bench.jobs[n])
    assert bench.bodies() == [b"0", b"1", b"2"]


def test_partial_replies_are_joined_and_bounded() -> None:
    bench = worker(policy=WorkerPolicy(reply_size_max=4))
    bench.say("q", REQUEST)
    bench.feed(Produced(bench.jobs[0], (b"12",)))
    bench.feed(Progressed(bench.jobs[0]))
    bench.finish(bench.jobs[0], b"34")
    assert bench.to("q")[-1] == [b"client", b"", b"12", b"34"]
    bench.say("q", REQUEST)
    bench.feed(Produced(bench.jobs[1], (b"12345",)))
    assert "more than 4 bytes" in bench.disconnected["q"]
    bench.feed(Produced(bench.jobs[1], (b"6",)))


@pytest.mark.parametrize("pattern", Pattern)
def test_a_drain_finishes_the_running_request_and_disconnects(pattern: Pattern) -> None:
    bench = worker(pattern)
    bench.say("q", REQUEST)
    bench.drain()
    assert not bench.stopped
    bench.finish(bench.jobs[0], b"world")
    assert bench.to("q")[-1] == [b"client", b"", b"world"]
    assert bench.disconnected["q"] == "the worker has drained"
    assert bench.stopped
    assert bench.engine.deadline() is None
    bench.join("late")
    assert "late" in bench.disconnected


def test_a_drain_without_a_queue_ends_when_handlers_have_ended() -> None:
    bench = worker()
    bench.say("q", REQUEST)
    bench.lose("q")
    bench.drain()
    assert not bench.stopped
    bench.finish(bench.jobs[0], status=Status.CANCELLED)
    assert bench.stopped


def test_messages_of_a_lost_queue_are_ignored() -> None:
    bench = worker()
    bench.say("q", [HEARTBEAT])
    bench.lose("q")
    bench.join("q2")
    bench.say("q", REQUEST)
    assert bench.jobs == []
    assert bench.to("q2") == [[READY]]


def test_invalid_inputs_and_settings_are_refused() -> None:
    with pytest.raises(LocalViolation, match="does not handle the input"):
        worker().feed(Submit(1, "", (b"",), 1.0))
    with pytest.raises(ConfigurationError, match="pause_first_s"):
        WorkerPolicy(pause_first_s=0.0)


def test_the_journal_has_spans_failures_and_abandoned_requests() -> None:
    bench = worker(journal=True)
    assert bench.chronicle is not None
    bench.say("q", REQUEST)
    bench.feed(Started(bench.jobs[0]))
    bench.finish(bench.jobs[0], b"fine")
    assert len(bench.chronicle.spans) == 1
    bench.say("q", REQUEST)
    bench.advance(0.2)
    bench.lose("q")
    bench.finish(bench.jobs[1], status=Status.CANCELLED)
    kinds = [each.kind for each in bench.chronicle.event_rows]
    assert kinds == [Kind.DELIVERED, Kind.ABANDONED, Kind.FINISHED]
