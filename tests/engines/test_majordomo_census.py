"""The numbers of a broker: what it counts of each service, and of itself."""

from __future__ import annotations

from math import inf

from tests.support.broker import BrokerBench

from requite.core.durations import BOUNDS_S
from requite.principal import Principal, Rights
from requite.protocols.majordomo import census as at
from requite.protocols.majordomo.census import NO_TALLY, Traffic, traffic_of
from requite.protocols.majordomo.wire import ClientCancel, ClientRequest, DrainNotice
from requite.request import Status

GUEST = Principal("guest", Rights(call=("echo",)))


def traffic(bench: BrokerBench, name: bytes = b"echo") -> Traffic:
    return traffic_of(bench.broker.services[name])


def ended(bench: BrokerBench) -> dict[str, int]:
    """Return how many requests ended, by status."""
    counts = zip(Status, traffic(bench).tally[at.ENDED], strict=True)
    return {status.name: count for status, count in counts if count}


def test_a_reply_is_counted_with_its_bytes_and_duration():
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1, b"12345")
    bench.advance(0.03)
    bench.final("w", b"123")
    seen = traffic(bench)
    assert seen.tally[at.ACCEPTED] == 1
    assert (seen.tally[at.RECEIVED], seen.tally[at.SENT]) == (5, 3)
    assert ended(bench) == {"OK": 1}
    took = seen.tally[at.TOOK]
    assert [bound for bound, count in zip(BOUNDS_S, took, strict=False) if count] == [0.05]
    assert abs(seen.tally[at.TOOK_NS] - 30_000_000) < 1000


def test_a_duration_beyond_all_bounds_has_a_count_of_its_own():
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1)
    bench.keep_alive(40, "w")
    bench.final("w")
    assert traffic(bench).tally[at.TOOK] == (0,) * len(BOUNDS_S) + (1,)


def test_each_status_is_counted():
    bench = BrokerBench(attempts_max=1, queue_max=1, service_grace_s=1.0)
    bench.worker("w", capacity=1)
    bench.request("c", 1)
    bench.final("w", b"no", Status.FAILED)
    bench.request("c", 2, timeout_ms=100)
    bench.advance(0.2)
    bench.final("w")  # stale: the request has expired
    bench.request("c", 3)
    bench.request("c", 4)
    bench.request("c", 5)  # the queue is full
    bench.say("c", ClientCancel, 4)
    bench.lose("w")  # with request 3
    bench.request("c", 6)
    bench.advance(2)
    assert ended(bench) == {
        "FAILED": 1,
        "EXPIRED": 1,
        "OVERLOADED": 1,
        "CANCELLED": 1,
        "POISONED": 1,
        "NO_SERVICE": 1,
    }
    state = bench.broker.snapshot().services[0]
    assert (state.accepted, state.replied, state.failed) == (6, 0, 4)
    assert (state.expired, state.cancelled, state.refused) == (1, 1, 1)


def test_a_redelivered_request_is_one_more_attempt():
    bench = BrokerBench()
    bench.worker("w1")
    bench.request("c", 1)
    bench.lose("w1")
    assert traffic(bench).tally[at.REDELIVERED] == 1


def test_the_oldest_queued_request_is_found_among_clients_and_returned_ones():
    bench = BrokerBench()
    assert traffic_of_new(bench).oldest_at == inf
    bench.worker("w")
    bench.request("a", 1)
    began = bench.now
    bench.advance(1)
    bench.request("b", 1)
    bench.advance(1)
    bench.request("a", 2)
    assert (traffic(bench).queued, traffic(bench).in_progress) == (2, 1)
    assert traffic(bench).oldest_at == began + 1
    bench.lose("w")
    assert traffic(bench).oldest_at == began
    assert (traffic(bench).queued, traffic(bench).in_progress) == (3, 0)


def traffic_of_new(bench: BrokerBench) -> Traffic:
    bench.worker("other", b"other")
    return traffic(bench, b"other")


def test_workers_are_counted_by_state():
    bench = BrokerBench()
    for name in ("busy", "drains", "blocked", "idle"):
        bench.worker(name)
    bench.request("c", 1)
    bench.say("drains", DrainNotice)
    bench.block("blocked")
    seen = traffic(bench)
    assert (seen.busy, seen.draining, seen.blocked, seen.idle) == (1, 1, 1, 1)


def test_what_a_removed_service_had_counted_is_kept():
    bench = BrokerBench(service_grace_s=1.0)
    bench.request("c", 1, b"12", service=b"unknown")
    assert bench.broker.census().forgotten == NO_TALLY
    number = traffic(bench, b"unknown").number
    bench.advance(2)
    assert b"unknown" not in bench.broker.services
    forgotten = bench.broker.census().forgotten
    assert (forgotten[at.ACCEPTED], forgotten[at.RECEIVED]) == (1, 2)
    assert forgotten[at.ENDED][Status.NO_SERVICE] == 1
    bench.request("c", 2, service=b"unknown")
    assert traffic(bench, b"unknown").number > number
    assert traffic(bench, b"unknown").tally[at.ACCEPTED] == 1


def test_denied_and_refused_requests_are_counted():
    bench = BrokerBench(client_pending_max=1)
    bench.worker("w")
    bench.client("guest", principal=GUEST)
    bench.say("guest", ClientRequest, b"secret", [b""], 1)
    bench.say("guest", ClientRequest, b"mmi.drain", [b""], 2)
    bench.request("c", 1)
    bench.request("c", 2)
    census = bench.broker.census()
    assert census.denied == {"call": 1, "admin": 1}
    assert census.refused[Status.DENIED] == 2
    assert census.refused[Status.OVERLOADED] == 1


def test_the_broker_counts_its_peers_and_memory():
    bench = BrokerBench(pending_bytes_max=1 << 20, services_max=7)
    bench.worker("w")
    bench.join("newcomer")
    bench.request("c", 1, b"x" * 1000)
    census = bench.broker.census()
    assert (census.clients, census.workers, census.newcomers) == (1, 1, 1)
    assert (census.pending, census.pending_size_max, census.services_max) == (1, 1 << 20, 7)
    assert census.pending_size > 1000
    assert not census.draining
    bench.drain()
    assert bench.broker.census().draining
