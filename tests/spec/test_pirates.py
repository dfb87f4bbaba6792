"""Requirements of the Guide for the Lazy Pirate and the Simple Pirate."""

from __future__ import annotations

import pytest
from tests.spec.requirement import requirement
from tests.support.pirate_engines import ClientBench, QueueBench, ServerBench, WorkerBench

from requite.engine import Wake
from requite.errors import CallTimeout, TransportError
from requite.protocols.pirate.policy import ClientPolicy, ServerPolicy
from requite.protocols.pirate.wire import Pattern
from requite.request import RetryPolicy, Status


# --- Lazy Pirate: the client ----------------------------------------------------------------------
@requirement("pirate:lazy:timeout", "pirate:lazy:new-socket")
def test_a_request_is_resent_on_a_new_connection_after_2_5_s() -> None:
    bench = ClientBench()
    bench.submit(1, b"hi")
    bench.join("a")
    bench.advance(2.4)
    assert bench.to("a") == [[b"hi"]]
    bench.advance(0.2)
    assert "a" in bench.disconnected
    bench.join("b")
    assert bench.to("b") == [[b"hi"]]
    bench.say("a", [b"late"])
    assert not bench.replies
    bench.say("b", [b"ho"])
    assert (bench.replies[1].body, bench.replies[1].attempts) == (b"ho", 2)


@requirement("pirate:lazy:abandon")
def test_a_call_fails_after_three_attempts() -> None:
    bench = ClientBench()
    bench.submit(1, b"hi")
    for name in "abc":
        bench.join(name)
        bench.advance(2.6)
    assert isinstance(bench.errors[1], CallTimeout)
    assert (bench.errors[1].attempts, bench.errors[1].may_have_executed) == (3, True)
    assert "seems to be offline" in str(bench.errors[1])
    assert bench.peers == set()
    bench.advance(100.0)
    assert len(bench.sent) == 3


@requirement("pirate:lazy:abandon")
def test_attempts_and_attempt_timeout_can_be_set() -> None:
    bench = ClientBench(ClientPolicy(retry=RetryPolicy(attempts=2, attempt_timeout=1.0)))
    bench.submit(1, b"hi")
    bench.join("a")
    bench.advance(1.1)
    bench.join("b")
    bench.advance(0.9)
    assert not bench.errors
    bench.advance(0.2)
    assert bench.errors[1].attempts == 2


@requirement("pirate:lazy:lock-step")
def test_each_connection_has_one_request_and_several_calls_have_several() -> None:
    bench = ClientBench(ClientPolicy(connections_max=2))
    for n in (1, 2, 3):
        bench.submit(n, b"%d" % n)
    assert len(bench.dials) == 2
    bench.join("a")
    bench.join("b")
    assert (bench.to("a"), bench.to("b")) == ([[b"1"]], [[b"2"]])
    bench.say("b", [b"two"])
    assert bench.to("b") == [[b"2"], [b"3"]]
    bench.say("a", [b"one"])
    bench.say("b", [b"three"])
    assert [bench.replies[n].body for n in (1, 2, 3)] == [b"one", b"two", b"three"]


@requirement("pirate:lazy:timeout")
def test_a_lost_connection_is_noticed_at_once() -> None:
    bench = ClientBench()
    bench.submit(1, b"hi")
    bench.join("a")
    bench.lose("a")
    assert len(bench.dials) == 2
    bench.join("b")
    assert bench.to("b") == [[b"hi"]]
    bench.lose("b")
    bench.join("c")
    bench.lose("c", "reset")
    assert isinstance(bench.errors[1], TransportError)
    assert "3 times, which is the limit" in str(bench.errors[1])


@requirement("pirate:lazy:abandon")
def test_a_request_that_is_not_idempotent_is_sent_once() -> None:
    bench = ClientBench()
    bench.submit(1, b"hi", idempotent=False, timeout=60.0)
    bench.join("a")
    bench.advance(30.0)
    assert len(bench.sent) == 1
    bench.lose("a")
    assert isinstance(bench.errors[1], TransportError)
    assert "not idempotent" in str(bench.errors[1])


# --- Lazy Pirate: the server ----------------------------------------------------------------------
@requirement("pirate:lazy:server")
def test_a_server_serves_clients_in_turn() -> None:
    bench = ServerBench(ServerPolicy(capacity=1))
    for name in "abc":
        bench.join(name)
    bench.say("a", [b"a1"], [b"a2"])
    bench.say("b", [b"b1"])
    bench.say("c", [b"c1"])
    for n in range(4):
        assert len(bench.jobs) == n + 1
        bench.finish(bench.jobs[n], b"re " + bench.requests[bench.jobs[n]].body)
    assert bench.bodies() == [b"a1", b"b1", b"c1", b"a2"]
    assert bench.to("a") == [[b"re a1"], [b"re a2"]]


@requirement("pirate:lazy:server")
def test_a_request_of_a_lost_client_never_starts() -> None:
    bench = ServerBench(ServerPolicy(capacity=1))
    bench.join("a")
    bench.join("b")
    bench.say("a", [b"a"])
    bench.say("b", [b"b"])
    bench.lose("b")
    bench.lose("a", "gave up")
    assert bench.abandoned == {bench.jobs[0]: "gave up"}
    bench.finish(bench.jobs[0], b"late")
    assert (bench.bodies(), bench.sent) == ([b"a"], [])


@requirement("pirate:lazy:server")
@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED])
def test_a_failed_handler_closes_the_clients_connection(status: Status) -> None:
    bench = ServerBench()
    bench.join("a")
    bench.say("a", [b"x"])
    bench.finish(bench.jobs[0], b"no", status=status)
    assert "no" in bench.disconnected["a"]
    assert bench.sent == []


# --- Simple Pirate --------------------------------------------------------------------------------
@requirement("pirate:simple:ready", "pirate:simple:envelope")
@pytest.mark.parametrize("word", [b"READY", b"\x01"])
def test_a_req_worker_on_the_wire(word: bytes) -> None:
    bench = QueueBench(Pattern.SIMPLE)
    bench.client("c")
    bench.newcomer("w")
    bench.say("w", [b"", word])
    bench.say("c", [b"", b"hello"])
    assert bench.to("w") == [[b"", b"\0\0\0\0\x07", b"", b"hello"]]
    bench.say("w", [b"", b"\0\0\0\0\x07", b"", b"world"])
    assert bench.to("c") == [[b"", b"world"]]
    bench.say("c", [b"", b"next"])  # the worker's reply counts as READY
    assert bench.requests("w") == [b"hello", b"next"]


@requirement("pirate:simple:ready", "pirate:simple:envelope")
def test_our_worker_sends_ready_and_returns_the_envelope() -> None:
    bench = WorkerBench(Pattern.SIMPLE)
    bench.feed(Wake())
    bench.join("q")
    bench.say("q", [b"client", b"", b"hello"])
    bench.finish(bench.jobs[0], b"world")
    assert bench.to("q") == [[b"READY"], [b"client", b"", b"world"]]
    bench.advance(3600.0)
    assert len(bench.sent) == 2  # no heartbeats


@requirement("pirate:simple:ready")
def test_a_late_reply_to_a_former_queue_registers_the_worker() -> None:
    bench = QueueBench(Pattern.SIMPLE)
    bench.client("c")
    bench.newcomer("w")
    bench.say("w", [b"", b"\0\0\0\0\x07", b"", b"to a client of the former queue"])
    assert bench.to("c") == []
    bench.ask("c", b"x")
    assert bench.requests("w") == [b"x"]


@requirement("pirate:simple:lru")
def test_requests_go_to_workers_in_turn() -> None:
    bench = QueueBench(Pattern.SIMPLE)
    bench.client("c")
    for name in "xyz":
        bench.worker(name)
    for n in range(6):
        bench.ask("c", b"%d" % n)
        bench.answer("xyz"[n % 3], b"done")
    assert [bench.requests(name) for name in "xyz"] == [[b"0", b"3"], [b"1", b"4"], [b"2", b"5"]]


@requirement("pirate:simple:no-workers")
def test_requests_wait_for_workers_and_clients_take_turns() -> None:
    bench = QueueBench(Pattern.SIMPLE)
    bench.client("greedy")
    bench.client("modest")
    bench.say("greedy", [b"", b"g1"], [b"", b"g2"], [b"", b"g3"])
    bench.ask("modest", b"m1")
    bench.worker("w")
    for _ in range(3):
        bench.answer("w", b"done")
    assert bench.requests("w") == [b"g1", b"m1", b"g2", b"g3"]


@requirement("pirate:simple:client-recovers")
def test_the_queue_does_not_redeliver_a_request() -> None:
    bench = QueueBench(Pattern.SIMPLE)
    bench.client("c")
    bench.worker("a")
    bench.worker("b")
    bench.ask("c", b"x")
    bench.lose("a")
    bench.advance(60.0)
    assert bench.requests("b") == []


@requirement("pirate:simple:client-recovers")
def test_a_request_of_a_lost_client_is_not_dispatched() -> None:
    bench = QueueBench(Pattern.SIMPLE)
    bench.client("c")
    bench.ask("c", b"x")
    bench.lose("c")
    bench.worker("w")
    assert bench.requests("w") == []
    assert bench.queue.snapshot().dropped == {"lost": 1}
