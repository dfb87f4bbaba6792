"""Trace contexts of stored requests, after restarts and compaction, and at a replica."""

from __future__ import annotations

from tests.titanic.life import SMALL, LocalTitanic
from tests.titanic.pairs import pair

from requite.errors import RemoteFailure
from requite.protocols.titanic.inputs import Answered, Asked
from requite.protocols.titanic.policy import Replicate
from requite.protocols.titanic.wire import PROMOTE, REQUEST
from requite.storage import MemoryFolder

TRACE = bytes.fromhex("4bf92f3577b34da6a3ce929d0e0e473600f067aa0ba902b701")


def submit_traced(life: LocalTitanic, body: bytes = b"hi") -> None:
    """Submit a request with a trace context."""
    life.feed([Asked(object(), REQUEST, [b"echo", body], b"", b"", TRACE)])


def test_each_attempt_of_a_stored_request_has_its_trace() -> None:
    life = LocalTitanic(MemoryFolder(), attempts_max=3, backoff_s=1.0)
    life.serves = False
    submit_traced(life)
    life.feed([Answered(life.submits[-1].token, RemoteFailure("boom"))])
    life.wait(5.0)
    assert [call.trace for call in life.submits] == [TRACE, TRACE]


def test_a_trace_survives_a_restart_with_requests_without_one() -> None:
    life = LocalTitanic(MemoryFolder())
    life.serves = False
    submit_traced(life)
    life.submit(b"plain", owner=b"ann")
    life.close()
    again = LocalTitanic(life.store._log._folder, SMALL, now=life.now, seed=1)
    again.serves = False
    again.wait(0.0)
    assert {call.frames[-1]: call.trace for call in again.submits} == {b"hi": TRACE, b"plain": b""}


def test_a_replica_has_the_trace() -> None:
    primary, replica = pair(Replicate.SYNC)
    primary.serves = replica.serves = False
    submit_traced(primary)
    primary.wait(5.0)
    assert replica.ask(PROMOTE) == [b"200"]
    replica.wait(5.0)
    assert [call.trace for call in replica.submits] == [TRACE]
