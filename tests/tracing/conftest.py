"""Fixtures of the tests of traces: OpenTelemetry's SDK in memory, a cluster, processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from tests.e2e.cluster import Cluster
from tests.e2e.conftest import cluster, processes

import requite
from requite.worker import service

__all__ = ["cluster", "processes"]


class Spans:
    """The spans that have ended, and the durations that were recorded, in this test."""

    def __init__(self, provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
        self.provider = provider
        self._exporter = exporter
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    @property
    def ended(self) -> list[ReadableSpan]:
        """The spans, in the order of their ends."""
        return list(self._exporter.get_finished_spans())

    def of(self, kind: trace.SpanKind, name: str = "") -> list[ReadableSpan]:
        """The spans of one kind, and with a name if one is given."""
        return [s for s in self.ended if s.kind is kind and name in ("", s.name)]

    def span(self, name: str) -> Any:
        """Return a context manager within which a span of the test is current."""
        return self.provider.get_tracer("tests").start_as_current_span(name)

    def durations(self) -> dict[str, dict[tuple[str, str], int]]:
        """Return the number of durations per metric, by service and by `error.type`."""
        data = self.reader.get_metrics_data()
        counts: dict[str, dict[tuple[str, str], int]] = {}
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        told: Any = point.attributes
                        key = (told["rpc.method"], told.get("error.type", ""))
                        counts.setdefault(metric.name, {})[key] = point.count  # type: ignore[union-attr]
        return counts


MakeSpans = Callable[[float], Spans]
"""Sets up the SDK, with a share of traces that are sampled, until the end of the test."""


@pytest.fixture
def make_spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeSpans]:
    """OpenTelemetry's SDK behind its API, for clients, workers and brokers that a test makes."""
    made: list[Spans] = []

    def make(share: float) -> Spans:
        exporter = InMemorySpanExporter()
        provider = TracerProvider(ParentBasedTraceIdRatio(share), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        spans = Spans(provider, exporter)
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
        monkeypatch.setattr(metrics, "get_meter_provider", lambda: spans.meters)
        made.append(spans)
        return spans

    yield make
    for each in made:
        each.provider.shutdown()
        each.meters.shutdown()


@pytest.fixture
def spans(make_spans: MakeSpans) -> Spans:
    """The SDK, with all traces sampled."""
    return make_spans(1.0)


@service("it")
async def echo(request: requite.Request) -> bytes:
    return request.body


async def again(cluster: Cluster, **policy: object) -> Cluster:
    """Open a new broker, which the SDK of the test traces; `policy` overrides its policy."""
    await cluster.stack.aclose()
    await cluster.open(**policy)
    return cluster


def parent_of(span: ReadableSpan) -> int:
    """Return the id of the parent of a span; 0 for none."""
    return 0 if span.parent is None else span.parent.span_id
