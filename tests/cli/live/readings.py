"""Figures of a broker engine with made-up services, for tests of what `requite top` shows."""

from __future__ import annotations

from tests.support.broker import BrokerBench

from requite.metrics.figures import BrokerFigures, figures_of
from requite.protocols.majordomo.census import traffic_of
from requite.protocols.majordomo.reading import Reading, reading_of
from requite.request import Status

WORKER = {
    "service": "orders",
    "worker": "00aa",
    "instance": "3ea1",
    "principal": "ann",
    "dialect": "0.3",
    "capacity": 16,
    "holding": 3,
    "served": 1000,
    "draining": False,
    "heartbeat_ms": 2000,
}
"""A worker as `mmi.workers` answers it."""


def read(bench: BrokerBench) -> Reading:
    """Return a reading of a broker."""
    census = bench.broker.census()
    return reading_of(census, map(traffic_of, census.services), bench.now, None)


def figures(**changes: object) -> BrokerFigures:
    """Return figures of two seconds: `orders` answers and fails, nobody serves `nobody`."""
    bench = BrokerBench()
    bench.worker("w1", b"orders", capacity=10)
    bench.worker("w2", b"idle")
    before = read(bench)
    for number in range(1, 9):
        bench.request("c", number, b"x" * 512, service=b"orders")
    bench.request("c", 9, service=b"nobody")
    bench.now += 0.02
    for nth in range(1, 5):
        bench.final("w1", b"y" * 100, nth=nth)
    bench.final("w1", b"", status=Status.FAILED, nth=5)
    bench.now += 1.98
    found = figures_of(before, read(bench)._replace(**changes))  # type: ignore[arg-type]
    assert found is not None
    return found
