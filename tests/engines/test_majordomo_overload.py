"""A service that is offered more than its workers can do: which requests they are given."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tests.spec.requirement import requirement
from tests.support.broker import BrokerBench

from requite.engine import Received
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.wire import ClientHeartbeat, ClientRequest
from requite.request import Status

_TIMEOUT_MS = 1000


def _goodput(work_s: float, load: float, seconds: float) -> float:
    """Return the share of the work of a worker that was answered in time, under a load that is
    relative to its capacity. It ignores cancellations."""
    bench = BrokerBench()
    bench.worker("w")
    begins_at = bench.now
    working: deque[float] = deque()  # when the worker answers
    made = seen = 0
    while bench.now < begins_at + seconds:
        next_at = begins_at + made * work_s / load
        if working and working[0] <= next_at:
            bench.advance(working.popleft() - bench.now)
            bench.final("w")
        else:
            bench.advance(next_at - bench.now)
            made += 1
            bench.request("c", made, timeout_ms=_TIMEOUT_MS)
        for _ in range(len(bench.requests("w")) - seen):
            working.append(bench.now + work_s)
            seen += 1
    good = sum(final.status == Status.OK for final in bench.finals("c"))
    return good * work_s / seconds


@pytest.mark.parametrize("work_s", [0.02, 0.1, 0.4])
@pytest.mark.parametrize("load", [1.0, 2.0, 5.0])
def test_workers_work_for_replies_in_time_under_any_load(work_s: float, load: float) -> None:
    assert _goodput(work_s, load, 30.0) >= 0.9


def test_a_request_with_too_little_time_left_gives_way_to_others() -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1, b"first")
    bench.request("c", 2, b"late", timeout_ms=350)
    bench.request("c", 3, b"in time", timeout_ms=2000)
    bench.advance(0.34)
    bench.final("w")
    assert bench.requests("w")[-1].body == [b"in time"]


def test_a_request_with_little_time_left_is_tried_if_no_other_one_waits() -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1, b"first")
    bench.request("c", 2, b"late", timeout_ms=350)
    bench.advance(0.34)
    bench.final("w")
    assert bench.requests("w")[-1].body == [b"late"]


def test_a_request_that_was_put_off_expires_at_its_deadline() -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1, b"first")
    bench.request("c", 2, b"late", timeout_ms=350)
    bench.request("c", 3, b"in time", timeout_ms=2000)
    bench.advance(0.34)
    bench.final("w")
    bench.advance(0.009)
    assert [final.request_id for final in bench.finals("c")] == [1]
    bench.advance(0.002)
    last = bench.finals("c")[-1]
    assert (last.request_id, last.status, last.attempts) == (2, Status.EXPIRED, 0)


def test_the_service_is_learned_again_after_its_workers_have_become_slower() -> None:
    bench = BrokerBench()
    bench.worker("w")
    for number in range(40):
        bench.request("c", number, timeout_ms=1000)
    for _ in range(20):  # the time at the worker is learned while others are queued
        bench.advance(0.01)
        bench.final("w")
    service = bench.broker.services[b"echo"]
    assert 0.005 < service.takes_s < 0.015
    bench.advance(1.0)  # the request at the worker expires
    bench.final("w")
    assert bench.requests("w")[-1].attempt == 1
    assert service.takes_s > 0.03


# --- requests of clients that are behind ----------------------------------------------------------
def _read_late(bench: BrokerBench, timeout_ms: int, behind_s: float) -> None:
    """Feed a request of a client that is behind."""
    request = ClientRequest(b"echo", [b"waited"], 7, timeout_ms)
    message = list(by_version("0.3").encode(request))
    bench.feed(Received("c", [message], behind_s))


def test_clients_are_read_in_turn_and_workers_are_not() -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1)
    assert [*bench.in_turn] == ["c"]


@requirement("mdp03:client-behind")
@pytest.mark.parametrize("keeps_notes", [True, False])
def test_a_request_of_a_client_that_has_long_been_behind_is_refused(keeps_notes: bool) -> None:
    bench = BrokerBench(notes=keeps_notes)
    bench.worker("w")
    bench.request("c", 1)
    _read_late(bench, timeout_ms=1000, behind_s=0.5)
    [refusal] = bench.finals("c")
    assert (refusal.request_id, refusal.status, refusal.attempts) == (7, Status.OVERLOADED, 0)
    assert bench.refused == {"c": 1}
    assert bench.broker.load.count == 1


@requirement("mdp03:client-behind")
@given(st.integers(0, 100_000), st.floats(0.0, 100.0))
@example(1000, 0.499)
@example(100, 0.099)
@example(0, 60.0)
def test_a_request_of_a_client_that_was_up_to_date_is_accepted(
    timeout_ms: int, behind_s: float
) -> None:
    assume(not timeout_ms or behind_s < max(0.1, timeout_ms / 2000))
    bench = BrokerBench()
    bench.worker("w", capacity=2)
    bench.request("c", 1)
    _read_late(bench, timeout_ms, behind_s)
    assert bench.requests("w")[-1].body == [b"waited"]
    assert not bench.refused


def test_requests_of_one_read_are_refused_and_accepted_in_order() -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=9)
    bench.request("c", 1)
    encode = by_version("0.3").encode
    timeouts_ms = [1000, 9000, 1000, 1000, 9000]
    messages = [
        list(encode(ClientRequest(b"echo", [b"x"], 10 + number, timeout_ms)))
        for number, timeout_ms in enumerate(timeouts_ms)
    ]
    bench.feed(Received("c", messages, 1.0))
    ends = [note for note in bench.notes if note.kind in ("refused", "accepted")]
    assert [note.facts["request_id"] for note in ends] == [1, 10, 11, 12, 13, 14]
    assert [final.request_id for final in bench.finals("c")] == [10, 12, 13]
    assert bench.refused == {"c": 3}


def test_a_draining_broker_reads_from_all_clients() -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1)
    bench.drain()
    bench.request("d", 1)
    bench.feed(Received("c", [by_version("0.3").encode(ClientHeartbeat(300))]))
    assert not bench.in_turn


@requirement("mdp03:client-slow")
@pytest.mark.parametrize(("interval_ms", "every_s"), [(300, 0.3), (5000, 5.0), (10, 0.1)])
def test_a_client_that_waits_is_sent_heartbeats_as_often_as_its_own(
    interval_ms: int, every_s: float
) -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1)
    assert bench.in_turn == {"c": pytest.approx(0.5)}  # half of the broker's own
    bench.feed(Received("c", [by_version("0.3").encode(ClientHeartbeat(interval_ms))]))
    report_s = bench.in_turn["c"]
    assert report_s == pytest.approx(every_s / 2)
    bench.commands["c"].clear()
    for _ in range(20):
        bench.advance(report_s * 1.001)
        bench.feed(Received("c", ()))
    assert 9 <= sum(isinstance(each, ClientHeartbeat) for each in bench.commands["c"]) <= 11


@requirement("mdp03:client-drain")
def test_a_draining_broker_tells_a_client_that_is_behind_so() -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1)
    bench.drain()
    _read_late(bench, timeout_ms=1000, behind_s=5.0)
    assert bench.finals("c")[-1].status == Status.SHUTTING_DOWN


def test_garbage_of_a_client_that_is_behind_drops_it() -> None:
    bench = BrokerBench()
    bench.request("c", 1)
    bench.feed(Received("c", [[b"MDPC03\x01"]], 5.0))
    assert "c" in bench.disconnected
