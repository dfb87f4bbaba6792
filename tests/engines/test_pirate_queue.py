"""The queue of the Pirates beyond the Guide, and under random orders of events."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.pirate_engines import HEARTBEAT, READY, QueueBench

from requite.chronicle import MADE_UP, NO_CALL, NO_OUTCOME, Kind, Span
from requite.core.liveness import HeartbeatPolicy
from requite.engine import PeerJoined, Submit
from requite.errors import ConfigurationError, LocalViolation
from requite.protocols.pirate.policy import QueuePolicy
from requite.protocols.pirate.wire import Pattern
from requite.request import Status

PATTERNS = pytest.mark.parametrize("pattern", Pattern)


@PATTERNS
def test_a_malformed_message_disconnects_only_its_peer(pattern: Pattern) -> None:
    bench = QueueBench(pattern)
    bench.client("c")
    bench.client("bad client")
    bench.worker("w")
    bench.newcomer("bad worker")
    bench.say("bad client", [b"no delimiter"])
    bench.say("bad worker", [b"", b"what?"])
    assert set(bench.disconnected) == {"bad client", "bad worker"}
    assert bench.queue.snapshot().dropped == {"malformed": 2}
    bench.ask("c", b"x")
    bench.answer("w", b"y")
    assert bench.to("c") == [[b"", b"y"]]


@PATTERNS
def test_a_malformed_reply_disconnects_its_worker_and_the_client(pattern: Pattern) -> None:
    bench = QueueBench(pattern)
    bench.client("c")
    bench.worker("w")
    bench.ask("c", b"x")
    bench.say("w", [b"", b"no", b"delimiter behind"])
    assert set(bench.disconnected) == {"w", "c"}
    assert bench.queue.snapshot()[:5] == (0, 0, 0, 0, 0)


@PATTERNS
def test_a_reply_to_another_address_is_dropped(pattern: Pattern) -> None:
    bench = QueueBench(pattern)
    bench.client("c")
    bench.client("other")
    bench.worker("w")
    bench.ask("c", b"x")
    outer = [b""] if pattern is Pattern.SIMPLE else []
    bench.say("w", [*outer, b"\0\0\0\0\x08", b"", b"not asked for"])
    assert bench.to("other") == []
    if pattern is Pattern.PARANOID:
        assert "w" in bench.disconnected


def test_a_paranoid_worker_with_a_reply_to_another_request_is_disconnected() -> None:
    bench = QueueBench(Pattern.PARANOID)
    bench.client("c")
    bench.worker("w")
    bench.ask("c", b"x")
    bench.say("w", [HEARTBEAT], [b"\0\0\0\0\x63", b"", b"whose?"], [READY])
    assert set(bench.disconnected) == {"w", "c"}
    assert "a request that it did not have" in bench.disconnected["w"]
    assert [warning.kind for warning in bench.warnings] == ["malformed"]
    assert bench.queue.snapshot()[:5] == (0, 0, 0, 0, 0)
    bench.client("c2")
    bench.worker("w2")
    bench.ask("c2", b"again")
    bench.answer("w2", b"done")
    assert bench.to("c2") == [[b"", b"done"]]


@PATTERNS
def test_a_reply_to_a_lost_client_makes_its_worker_ready(pattern: Pattern) -> None:
    bench = QueueBench(pattern)
    bench.client("c")
    bench.worker("w")
    bench.ask("c", b"x")
    bench.lose("c")
    bench.client("d")
    bench.ask("d", b"y")
    bench.answer("w", b"late")
    assert bench.requests("w") == [b"x", b"y"]
    assert bench.to("d") == []
    assert bench.queue.snapshot().dropped == {"left": 1}


@PATTERNS
def test_a_worker_that_pushes_back_gets_no_request(pattern: Pattern) -> None:
    bench = QueueBench(pattern)
    bench.client("c")
    bench.worker("w")
    bench.block("w")
    bench.ask("c", b"x")
    assert bench.requests("w") == []
    bench.unblock("w")
    assert bench.requests("w") == [b"x"]


def test_requests_of_a_client_that_pushes_back_wait() -> None:
    bench = QueueBench(Pattern.SIMPLE)
    bench.client("c")
    bench.worker("w")
    bench.block("c")
    bench.ask("c", b"x")
    assert bench.requests("w") == []
    bench.unblock("c")
    assert bench.requests("w") == [b"x"]


def test_a_client_over_the_queue_limit_is_paused() -> None:
    bench = QueueBench(Pattern.SIMPLE, QueuePolicy(queue_max=4))
    bench.client("c")
    bench.say("c", *([b"", b"%d" % n] for n in range(4)))
    assert bench.unread == {"c"}
    bench.worker("a")
    assert bench.unread == {"c"}
    bench.worker("b")
    assert bench.unread == set()


@PATTERNS
def test_a_drain_finishes_running_requests_and_disconnects_clients(pattern: Pattern) -> None:
    bench = QueueBench(pattern)
    bench.client("c")
    bench.client("d")
    bench.worker("w")
    bench.ask("c", b"x")
    bench.ask("d", b"y")
    bench.drain()
    assert "d" in bench.disconnected  # so that it retries at another queue
    bench.client("late")
    assert "late" in bench.disconnected
    assert bench.unread == {"c"}
    assert not bench.stopped
    bench.answer("w", b"done")
    assert bench.to("c") == [[b"", b"done"]]
    assert "c" in bench.disconnected
    assert bench.stopped
    assert bench.requests("w") == [b"x"]


def test_a_simple_worker_with_a_stray_reply_is_used_again() -> None:
    bench = QueueBench(Pattern.SIMPLE)
    bench.client("c")
    bench.worker("w")
    bench.ask("c", b"x")
    bench.say("w", [b"", b"nobody", b"", b"done"])
    assert bench.queue.snapshot().dropped == {"stray": 1, "lost": 1}
    assert "c" in bench.disconnected  # so that it retries
    bench.client("c2")
    bench.ask("c2", b"again")
    bench.answer("w", b"done")
    assert bench.to("c2") == [[b"", b"done"]]


def test_a_drain_ends_after_drain_timeout_s() -> None:
    bench = QueueBench(Pattern.PARANOID, QueuePolicy(drain_timeout_s=5.0))
    bench.client("c")
    bench.worker("w")
    bench.ask("c", b"x")
    bench.drain()
    bench.advance(4.9)
    assert not bench.stopped
    assert bench.beats("w") == 4
    bench.advance(0.2)
    assert bench.stopped
    assert bench.engine.deadline() is None


def test_invalid_inputs_and_settings_are_refused() -> None:
    bench = QueueBench(Pattern.SIMPLE)
    with pytest.raises(LocalViolation, match="FRONT or BACK"):
        bench.feed(PeerJoined("x", b"", "roof"))
    with pytest.raises(LocalViolation, match="does not handle the input"):
        bench.feed(Submit(1, "", (b"",), 1.0))
    with pytest.raises(ConfigurationError, match="queue_max"):
        QueuePolicy(queue_max=0)
    with pytest.raises(ConfigurationError, match="negative"):
        QueuePolicy(drain_timeout_s=-1)


class QueueMachine(RuleBasedStateMachine):
    """Arbitrary clients and workers: no table leaks, and no client gets another client's reply."""

    bench: QueueBench

    @initialize(pattern=st.sampled_from(Pattern))
    def begin(self, pattern: Pattern) -> None:
        policy = QueuePolicy(heartbeat=HeartbeatPolicy(1.0, 3), queue_max=3, notes=True)
        self.bench = QueueBench(pattern, policy)
        self.number = 0
        self.asked: dict[bytes, str] = {}
        self.checked = 0

    def new(self, kind: str) -> str:
        self.number += 1
        return f"{kind}{self.number}"

    def some(self, kind: str, data: Any) -> str:
        return str(data.draw(st.sampled_from(sorted(p for p in self.bench.peers if p[0] == kind))))

    def has(self, kind: str) -> bool:
        return any(peer[0] == kind for peer in self.bench.peers)

    @rule()
    def client_joins(self) -> None:
        self.bench.client(self.new("c"))

    @rule(says_ready=st.booleans())
    def worker_joins(self, says_ready: bool) -> None:
        name = self.new("w")
        self.bench.newcomer(name)
        if says_ready:
            self.bench.ready(name)

    @precondition(lambda self: self.has("c"))
    @rule(data=st.data())
    def client_sends(self, data: Any) -> None:
        name = self.some("c", data)
        body = self.new("body").encode()
        self.asked[body] = name
        self.bench.ask(name, body)

    @precondition(lambda self: self.has("w"))
    @rule(data=st.data())
    def worker_replies(self, data: Any) -> None:
        name = self.some("w", data)
        requests = [each for each in self.bench.to(name) if len(each) > 1]
        if requests:
            request = data.draw(st.sampled_from(requests))
            self.bench.say(name, [*request[:-1], b"re " + request[-1]])

    @precondition(lambda self: self.has("w"))
    @rule(data=st.data(), ready=st.booleans())
    def worker_sends_ready_or_heartbeat(self, data: Any, ready: bool) -> None:
        name = self.some("w", data)
        if ready:
            self.bench.ready(name)
        elif self.bench.pattern is Pattern.PARANOID:
            self.bench.say(name, [HEARTBEAT])

    @precondition(lambda self: bool(self.bench.peers))
    @rule(data=st.data(), frames=st.lists(st.binary(max_size=3), min_size=1, max_size=4))
    def peer_sends_garbage(self, data: Any, frames: list[bytes]) -> None:
        self.bench.say(data.draw(st.sampled_from(sorted(self.bench.peers))), frames)

    @precondition(lambda self: bool(self.bench.peers))
    @rule(data=st.data())
    def peer_is_lost(self, data: Any) -> None:
        self.bench.lose(data.draw(st.sampled_from(sorted(self.bench.peers))))

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.5]), stalled=st.booleans())
    def advance(self, seconds: float, stalled: bool) -> None:
        if stalled:
            self.bench.freeze(seconds)
        else:
            self.bench.advance(seconds)

    @invariant()
    def replies_reach_their_clients(self) -> None:
        for peer, message in self.bench.sent[self.checked :]:
            if peer.startswith("c") and message[-1].startswith(b"re body"):
                assert self.asked[message[-1].removeprefix(b"re ")] == peer
        self.checked = len(self.bench.sent)

    @invariant()
    def no_request_goes_to_two_workers(self) -> None:
        bodies = [m[-1] for p, m in self.bench.sent if p.startswith("w") and len(m) > 1]
        ours = [body for body in bodies if body in self.asked]
        assert len(ours) == len(set(ours))

    @invariant()
    def tables_match_the_connected_peers(self) -> None:
        seen = self.bench.queue.snapshot()
        kinds = [peer[0] for peer in self.bench.peers]
        assert seen.clients == kinds.count("c")
        assert seen.unready + seen.idle + seen.busy == kinds.count("w")
        assert not (seen.waiting and seen.idle)  # no peer pushes back in this machine


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


# --- the journal ----------------------------------------------------------------------------------
def request_events(bench: QueueBench) -> list[tuple[str, int]]:
    """Return kinds and outcomes of the request events in the journal."""
    assert bench.chronicle is not None
    return [
        (Kind(each.kind).name, each.outcome)
        for each in bench.chronicle.event_rows
        if each.call_id != NO_CALL
    ]


def test_the_journal_has_one_span_for_a_request_without_incidents() -> None:
    bench = QueueBench(Pattern.PARANOID, journal=True)
    bench.client("c")
    bench.worker("w")
    bench.ask("c", b"four")
    bench.answer("w", b"twelve bytes")
    assert bench.chronicle is not None
    [span] = map(Span._make, bench.chronicle.spans)
    assert (span.request_size, span.reply_size, span.deadline) == (4, 12, inf)
    assert span.call_id[0] & MADE_UP
    [joined] = bench.chronicle.event_rows
    assert (joined.kind, joined.worker, joined.capacity) == (Kind.WORKER_JOINED, span.worker, 1)


@PATTERNS
def test_the_journal_records_how_each_request_ended(pattern: Pattern) -> None:
    bench = QueueBench(pattern, journal=True)
    for peer in ("lost", "leaves", "waits", "leaves early"):
        bench.client(peer)
    bench.worker("v")
    bench.ask("lost", b"x")
    bench.lose("v")
    bench.worker("w")
    bench.ask("leaves", b"x")
    bench.ask("leaves early", b"x")
    bench.ask("waits", b"x")
    bench.lose("leaves early")
    bench.lose("leaves")
    bench.drain()
    bench.answer("w", b"late")
    given = [("ACCEPTED", NO_OUTCOME), ("DISPATCHED", NO_OUTCOME)]
    queued = [("ACCEPTED", NO_OUTCOME), ("QUEUED", NO_OUTCOME)]
    assert request_events(bench) == [
        *given,
        ("ANSWERED", Status.WORKER_LOST),
        *queued,
        ("CANCELLED", Status.CANCELLED),
        *given,
        ("CANCELLED", Status.CANCELLED),
        *queued,
        ("ANSWERED", Status.SHUTTING_DOWN),
    ]


def test_the_journal_records_pending_requests_and_workers() -> None:
    bench = QueueBench(Pattern.PARANOID, QueuePolicy(drain_timeout_s=1.0), journal=True)
    bench.client("c")
    bench.worker("w")
    bench.ask("c", b"x")
    bench.advance(0.2)
    assert [kind for kind, _ in request_events(bench)] == ["ACCEPTED", "DISPATCHED"]
    bench.advance(1.0)
    bench.say("w", [b"\0\0\0\0\x63", b"", b"whose?"])
    bench.client("d")
    bench.ask("d", b"y")
    bench.advance(0.2)
    bench.worker("w2")
    bench.drain()
    bench.advance(1.1)
    assert bench.stopped
    ends = [("ANSWERED", Status.WORKER_LOST), ("ANSWERED", Status.SHUTTING_DOWN)]
    assert [each for each in request_events(bench) if each[1] != NO_OUTCOME] == ends
    assert bench.chronicle is not None
    assert [
        each.kind for each in bench.chronicle.event_rows if each.worker and not each.attempt
    ] == [
        Kind.WORKER_JOINED,
        Kind.HEARTBEAT,
        Kind.WORKER_LOST,
        Kind.WORKER_JOINED,
        Kind.HEARTBEAT,
    ]
    assert any("malformed" in each.reason for each in bench.chronicle.event_rows)
    assert bench.engine.deadline() is None
