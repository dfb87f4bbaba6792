"""The REP server for Lazy Pirates, beyond the Guide."""

from __future__ import annotations

import pytest
from tests.support.pirate_engines import ServerBench

from requite.chronicle import Kind
from requite.engine import Produced, Progressed, Started, Submit
from requite.errors import ConfigurationError, LocalViolation
from requite.protocols.pirate.policy import ServerPolicy
from requite.request import Status


def test_handlers_run_concurrently_one_per_connection() -> None:
    bench = ServerBench(ServerPolicy(capacity=2))
    for name in "abc":
        bench.join(name)
    bench.say("a", [b"a1"], [b"a2"])
    bench.say("b", [b"b1"])
    bench.say("c", [b"c1"])
    assert bench.bodies() == [b"a1", b"b1"]
    counts = {"clients": 3, "waiting": 2, "running": 2}
    assert {k: v for k, v in vars(bench.server.snapshot()).items() if v} == counts
    bench.finish(bench.jobs[1])
    assert bench.bodies() == [b"a1", b"b1", b"c1"]  # a's first request is still running


def test_partial_replies_are_joined() -> None:
    bench = ServerBench()
    bench.join("a")
    bench.say("a", [b"x"])
    [job] = bench.jobs
    bench.feed(Started(job))
    bench.feed(Produced(job, (b"1",)))
    bench.feed(Progressed(job))
    bench.feed(Produced(job, (b"2", b"3")))
    bench.finish(job, b"4")
    assert bench.to("a") == [[b"1", b"2", b"3", b"4"]]
    bench.feed(Produced(job, (b"late",)))


def test_partial_replies_over_the_size_limit_are_abandoned() -> None:
    bench = ServerBench(ServerPolicy(reply_size_max=10))
    bench.join("a")
    bench.say("a", [b"x"])
    [job] = bench.jobs
    bench.feed(Produced(job, (b"12345678901",)))
    assert "more than 10 bytes" in bench.abandoned[job]
    assert "a" in bench.disconnected
    bench.finish(job)
    assert bench.sent == []
    assert not any(vars(bench.server.snapshot()).values())


def test_a_client_over_the_queue_limit_is_paused() -> None:
    bench = ServerBench(ServerPolicy(capacity=1, queue_max=4))
    bench.join("a")
    bench.say("a", *([b"%d" % n] for n in range(6)))
    assert bench.unread == {"a"}
    for n in range(6):
        assert ("a" in bench.unread) == (5 - n > 2)  # until half of the limit is left
        bench.finish(bench.jobs[n])
    assert bench.bodies() == [b"%d" % n for n in range(6)]


def test_requests_of_a_client_that_pushes_back_wait() -> None:
    bench = ServerBench(ServerPolicy(capacity=1))
    bench.join("a")
    bench.say("a", [b"1"])
    bench.block("a")
    bench.say("a", [b"2"])
    bench.finish(bench.jobs[0], b"one")
    assert bench.bodies() == [b"1"]
    bench.unblock("a")
    assert bench.bodies() == [b"1", b"2"]


def test_a_drain_finishes_running_requests_and_disconnects_clients() -> None:
    bench = ServerBench(ServerPolicy(capacity=1))
    bench.join("a")
    bench.join("b")
    bench.say("a", [b"1"])
    bench.say("b", [b"2"])
    bench.join("idle")
    bench.drain()
    assert bench.unread == {"a"}
    assert {"b", "idle"} <= set(bench.disconnected)  # so that they retry at another server
    bench.say("a", [b"3"])
    bench.join("late")
    assert "late" in bench.disconnected
    assert not bench.stopped
    bench.finish(bench.jobs[0], b"one")
    assert bench.to("a") == [[b"one"]]
    assert "a" in bench.disconnected
    assert bench.stopped
    assert bench.bodies() == [b"1"]


def test_invalid_inputs_and_settings_are_refused() -> None:
    with pytest.raises(LocalViolation, match="does not handle the input"):
        ServerBench().feed(Submit(1, "", (b"",), 1.0))
    with pytest.raises(ConfigurationError, match="capacity must be at least 1"):
        ServerPolicy(capacity=0)


def test_the_journal_has_spans_failures_and_abandoned_requests() -> None:
    bench = ServerBench(journal=True)
    assert bench.chronicle is not None
    for name in "abc":
        bench.join(name)
        bench.say(name, [b"x"])
        bench.feed(Started(bench.jobs[-1]))
    bench.finish(bench.jobs[0], b"fine")
    assert len(bench.chronicle.spans) == 1
    bench.finish(bench.jobs[1], b"why", status=Status.FAILED)
    bench.lose("c")
    bench.finish(bench.jobs[2], status=Status.CANCELLED)
    kinds = [each.kind for each in bench.chronicle.event_rows]
    begun = [Kind.DELIVERED, Kind.STARTED]
    assert kinds == [*begun, Kind.FINISHED, *begun, Kind.ABANDONED, Kind.FINISHED]
    assert bench.chronicle.event_rows[2].reason == "why"
