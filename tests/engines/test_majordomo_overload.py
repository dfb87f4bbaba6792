"""A service that is offered more than its workers can do: which requests they are given."""

from __future__ import annotations

from collections import deque

import pytest
from tests.support.broker import BrokerBench

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
