"""What happened between two readings: rates, and percentiles of durations."""

from __future__ import annotations

from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.broker import BrokerBench

from requite.core.durations import BOUNDS_S, Durations
from requite.metrics.figures import BrokerFigures, figures_of, percentile
from requite.protocols.majordomo.census import traffic_of
from requite.protocols.majordomo.reading import Reading, reading_of
from requite.request import Status


def read(bench: BrokerBench) -> Reading:
    census = bench.broker.census()
    return reading_of(census, map(traffic_of, census.services), bench.now, None)


def between(before: Reading, now: Reading) -> BrokerFigures:
    found = figures_of(before, now)
    assert found is not None
    return found


def test_rates_are_those_of_the_interval() -> None:
    bench = BrokerBench()
    bench.worker("w", b"echo", capacity=10)
    bench.request("c", 1, b"before")
    bench.final("w", b"")
    before = read(bench)
    for number in range(2, 8):
        bench.request("c", number, b"x" * 50)
    bench.now += 0.02
    for nth in range(1, 4):
        bench.final("w", b"y" * 10, nth=nth)
    bench.final("w", b"", status=Status.FAILED, nth=4)
    bench.now += 1.98
    found = between(before, read(bench))
    [service] = found.services
    assert service.happened == found.happened
    happened = found.happened
    assert found.interval_s == pytest.approx(2)
    assert (happened.accepted, happened.answered) == pytest.approx((3, 1.5))
    assert happened.failed == {"failed": pytest.approx(0.5)}
    assert (happened.received, happened.sent) == pytest.approx((150, 15))
    assert happened.mean_s == pytest.approx(0.02)
    assert 0.01 < happened.p50_s <= happened.p99_s <= 0.025
    assert (service.seen.in_progress, service.seen.queued, service.oldest_s) == (2, 0, 0)


def test_the_oldest_request_of_a_service_waits() -> None:
    bench = BrokerBench()
    before = read(bench)
    bench.request("c", 1, service=b"nobody")
    bench.now += 2.5
    [service] = between(before, read(bench)).services
    assert service.oldest_s == pytest.approx(2.5)
    assert isnan(service.happened.p99_s)


def test_a_service_that_is_new_counts_from_its_first_request() -> None:
    bench = BrokerBench()
    before = read(bench)
    bench.worker("w", b"echo")
    for number in range(1, 5):
        bench.request("c", number)
    bench.now += 2
    [service] = between(before, read(bench)).services
    assert service.happened.accepted == pytest.approx(2)


def test_two_brokers_have_no_figures_together() -> None:
    first, second = BrokerBench(), BrokerBench()
    for bench in (first, second):
        bench.worker("w", b"echo")
    first.request("c", 1)
    first.final("w", b"")
    second.now += 5
    assert figures_of(read(first), read(second)) is None
    assert figures_of(read(second), read(second)) is None


def test_a_restarted_broker_has_no_figures_with_the_earlier_one() -> None:
    """Not even if it has done nothing yet, or more than the earlier one had."""
    before = read(BrokerBench())
    later = before._replace(at=before.at + 1)
    assert figures_of(before, later) is not None
    assert figures_of(before, later._replace(broker="another")) is None


def test_refusals_and_denials_have_rates() -> None:
    before = read(BrokerBench())
    now = before._replace(at=before.at + 4, refused={"overloaded": 8}, denied={"call": 2})
    found = between(before, now)
    assert (found.refused, found.denied) == ({"overloaded": 2}, {"call": 0.5})


@given(st.lists(st.floats(0, 60), min_size=1), st.floats(0, 1))
def test_a_percentile_is_in_the_interval_of_the_true_one(took: list[float], share: float) -> None:
    durations = Durations()
    for each in took:
        durations.add(each)
    true = sorted(took)[max(0, -int(-share * len(took) // 1) - 1)]
    found = percentile(durations.counts, share)
    bounds = (0.0, *BOUNDS_S)
    low = max(bound for bound in bounds if bound < true or bound == 0)
    high = next((bound for bound in BOUNDS_S if bound >= true), BOUNDS_S[-1])
    assert min(low, BOUNDS_S[-1]) <= found <= high


def test_there_is_no_percentile_of_nothing() -> None:
    assert isnan(percentile(Durations().counts, 0.5))
