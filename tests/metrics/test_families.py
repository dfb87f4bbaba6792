"""The text of metrics: read back by the parser of `prometheus_client`."""

from __future__ import annotations

from tests.metrics.scrape import Scraped

from requite.core.durations import BOUNDS_S, Durations
from requite.metrics import catalogue
from requite.metrics.catalogue import GROUPS, Described, Kind
from requite.metrics.families import Family, singles, text_of
from requite.metrics.process import LoopLag, Process, of_process


async def scraped(*families: Family) -> Scraped:
    return Scraped((await text_of(families)).decode())


async def test_a_histogram_is_cumulative_and_has_its_sum() -> None:
    durations, family = Durations(), Family(catalogue.TOOK)
    for took_s in (0.0004, 0.0005, 0.3, 99.0):
        durations.add(took_s)
    family.add_durations(durations.counts, durations.total_s, "echo")
    seen = await scraped(family)
    name = "requite_request_duration_seconds"
    buckets = [seen.value(f"{name}_bucket", service="echo", le=str(each)) for each in BOUNDS_S]
    assert buckets == [2.0] * 9 + [3.0] * 6
    assert seen.value(f"{name}_bucket", service="echo", le="+Inf") == 4
    assert seen.value(f"{name}_count", service="echo") == 4
    assert abs((seen.value(f"{name}_sum", service="echo") or 0) - 99.3009) < 1e-9


async def test_labels_of_any_text_are_read_back() -> None:
    family = Family(catalogue.QUEUED)
    names = ['a"b', "a\\b", "a\nb", "ä", "a}b", ""]
    for number, name in enumerate(names):
        family.add(number, name)
    seen = await scraped(family)
    assert [seen.value("requite_requests_queued", service=name) for name in names] == [
        0.0, 1.0, 2.0, 3.0, 4.0, 5.0,
    ]  # fmt: skip


async def test_a_large_metric_is_written_in_parts_under_one_head() -> None:
    family = Family(catalogue.QUEUED)
    for number in range(1000):
        family.add(number, f"service-{number}")
    seen = await scraped(family)
    assert seen.text.count("# TYPE") == seen.text.count("# HELP") == 1
    assert len(seen.samples) == 1000


async def test_metrics_without_values_are_left_out() -> None:
    assert await text_of([Family(catalogue.DENIED)]) == b""


async def test_every_process_has_its_version_and_its_use_of_the_system() -> None:
    lag = LoopLag()
    lag.late.add(0.002)
    seen = Scraped(
        (await text_of(of_process(Process("1.2", "pure", "broker"), lag, is_ready=True))).decode()
    )
    [info] = [dict(labels) for name, labels in seen.samples if name == "requite_info"]
    assert info["command"] == "broker"
    assert seen.value("requite_ready") == 1
    assert seen.value("requite_loop_lag_seconds_count") == 1
    assert (seen.value("process_cpu_seconds_total") or 0) > 0


def test_names_follow_the_conventions() -> None:
    described = [each for group in GROUPS.values() for each in group]
    names = [each.name for each in described]
    assert len(set(names)) == len(names)
    in_catalogue = [each.name for each in vars(catalogue).values() if isinstance(each, Described)]
    assert sorted(in_catalogue) == sorted(names)
    for each in described:
        assert each.name.startswith("requite_")
        assert each.name.endswith("_total") == (each.kind is Kind.COUNTER)
        assert each.about.endswith(".")
        if each.kind is Kind.HISTOGRAM:
            assert each.name.endswith("_seconds")


async def test_single_values() -> None:
    seen = await scraped(*singles((catalogue.PENDING, 3), (catalogue.SERVICES, 2)))
    assert seen.value("requite_broker_pending_requests") == 3
    assert seen.value("requite_broker_services") == 2
