"""The values of metrics, and the text of Prometheus that has them (version 0.0.4)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

from requite.core.durations import BOUNDS_S
from requite.metrics.catalogue import Described, Kind

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS: Final = (*map(str, BOUNDS_S), "+Inf")
_SAMPLES_PER_TURN: Final = 200  # of the loop, which take about 2 ms to write


class Family(Collector):
    """A metric and its values."""

    def __init__(self, described: Described) -> None:
        labels = described.labels
        self.metric: Metric
        match described.kind:
            case Kind.COUNTER:
                name = described.name.removesuffix("_total")
                self._counter = CounterMetricFamily(name, described.about, labels=labels)
                self.metric = self._counter
            case Kind.GAUGE:
                self._gauge = GaugeMetricFamily(described.name, described.about, labels=labels)
                self.metric = self._gauge
            case Kind.HISTOGRAM:
                self._histogram = HistogramMetricFamily(
                    described.name, described.about, labels=labels
                )
                self.metric = self._histogram
        self._is_counter = described.kind is Kind.COUNTER

    def add(self, value: float, *labels: str) -> None:
        """Add the value of a counter or gauge."""
        (self._counter if self._is_counter else self._gauge).add_metric(labels, value)

    def add_durations(self, counts: Sequence[float], total_s: float, *labels: str) -> None:
        """Add the value of a histogram: `counts` as in `Durations`."""
        buckets = list(zip(_BOUNDS, accumulate(counts), strict=True))
        self._histogram.add_metric(labels, buckets, total_s)

    def collect(self) -> Iterator[Metric]:
        """Yield the metric, for `prometheus_client`."""
        yield self.metric


def singles(*values: tuple[Described, float], labels: Sequence[str] = ()) -> list[Family]:
    """Return metrics that have one value each, all with these values of labels."""
    families = []
    for described, value in values:
        family = Family(described)
        family.add(value, *labels)
        families.append(family)
    return families


class _Part(Collector):
    """Some values of a metric."""

    def __init__(self, whole: Metric, at: int) -> None:
        self._metric = Metric(whole.name, whole.documentation, whole.type)
        self._metric.samples = whole.samples[at : at + _SAMPLES_PER_TURN]

    def collect(self) -> Iterator[Metric]:
        yield self._metric


async def text_of(families: Iterable[Collector]) -> bytes:
    """Return the text of metrics; let the event loop turn in between, since each line takes some
    µs. Metrics without values are left out."""
    text: list[bytes] = []
    for family in families:
        for metric in family.collect():
            for at in range(0, len(metric.samples), _SAMPLES_PER_TURN):
                part = generate_latest(_as_registry(_Part(metric, at)))
                text.append(part.split(b"\n", 2)[2] if at else part)  # one head per metric
                await asyncio.sleep(0)
    return b"".join(text)


def _as_registry(collector: Collector) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return registry
