"""Which traces are sampled, and what becomes of the others."""

from __future__ import annotations

from itertools import count
from typing import Any, Final

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_ON,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import SpanKind
from tests.e2e.cluster import Cluster, until
from tests.tracing.conftest import MakeSpans, again, echo, parent_of

import requite
from requite.trace_context import decode_traceparent, is_sampled
from requite.worker import service

SHARE: Final = 0.25
CALLS: Final = 100
RANDOM: Final = 2  # the flag of trace contexts


class Counting(IdGenerator):
    """A generator of ids that begin with a number, as some that begin with the time do."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._random = RandomIdGenerator()

    def generate_trace_id(self) -> int:
        return next(self._numbers) << 96 | self._random.generate_trace_id() >> 32

    def generate_span_id(self) -> int:
        return self._random.generate_span_id()


async def test_a_trace_that_is_not_sampled_makes_no_spans_and_goes_on(
    make_spans: MakeSpans, cluster: Cluster
) -> None:
    spans = make_spans(0.0)
    await again(cluster)
    seen: list[str] = []
    inner = await cluster.client("inner")

    @service("outer")
    async def outer(request: requite.Request) -> bytes:
        seen.append(request.traceparent)
        return (await inner.call(request.body)).body

    @service("inner")
    async def noting(request: requite.Request) -> bytes:
        seen.append(request.traceparent)
        return b""

    await cluster.worker(outer)
    await cluster.worker(noting)
    await (await cluster.client("outer")).call(b"hello")
    assert spans.ended == []
    assert not any(is_sampled(decode_traceparent(each)) for each in seen)
    assert all(seen)
    assert seen[0][:35] == seen[1][:35]  # version and trace id


@pytest.mark.parametrize("ids", [RandomIdGenerator(), Counting()])
async def test_a_share_of_the_traces_that_begin_is_sampled(
    make_spans: MakeSpans, cluster: Cluster, ids: IdGenerator
) -> None:
    spans = make_spans(SHARE)
    spans.provider.id_generator = ids
    await again(cluster)
    seen: list[bytes] = []

    @service("it")
    async def noting(request: requite.Request) -> bytes:
        seen.append(request.trace)
        return b""

    await cluster.worker(noting)
    client = await cluster.client()
    for _ in range(CALLS):
        await client.call(b"hello")
    sampled = {trace[:16] for trace in seen if is_sampled(trace)}
    in_the_share = {trace[:16] for trace in seen if int.from_bytes(trace[8:16]) < SHARE * 2**64}
    assert len({trace[:16] for trace in seen}) == CALLS
    assert 0 < len(sampled) < CALLS
    assert sampled == in_the_share
    await until(lambda: len(spans.of(SpanKind.SERVER)) == len(sampled))
    calls = spans.of(SpanKind.CLIENT)
    assert {call.context.trace_id.to_bytes(16) for call in calls} == sampled
    assert len(calls) == len(sampled)
    assert all(parent_of(call) == 0 for call in calls)
    assert {bool(trace[24] & RANDOM) for trace in seen} == {ids.is_trace_id_random()}


class HighBits(TraceIdRatioBased):
    """A sampler with the description of the SDK's that decides by other bits."""

    def should_sample(self, parent_context: Any, trace_id: int, *_: Any, **__: Any) -> Any:
        return super().should_sample(parent_context, trace_id >> 64, "")


@pytest.mark.parametrize("sampler", [HighBits(SHARE), ParentBased(HighBits(SHARE))])
async def test_a_sampler_that_decides_by_other_bits_is_asked(
    make_spans: MakeSpans, cluster: Cluster, sampler: Sampler
) -> None:
    spans = make_spans(SHARE)
    spans.provider.sampler = sampler
    await again(cluster)
    await cluster.worker(echo)
    client = await cluster.client()
    for _ in range(CALLS):
        await client.call(b"hello")
    calls = spans.of(SpanKind.CLIENT)
    assert 0 < len(calls) < CALLS
    assert all(call.context.trace_id >> 64 < SHARE * 2**64 for call in calls)


async def test_a_worker_begins_traces_in_the_share_only(
    make_spans: MakeSpans, cluster: Cluster
) -> None:
    client = await cluster.client()  # without an SDK
    spans = make_spans(SHARE)
    spans.provider.sampler = ParentBased(
        TraceIdRatioBased(SHARE), remote_parent_not_sampled=ALWAYS_ON
    )
    await cluster.worker(echo)
    for _ in range(CALLS):
        await client.call(b"hello")
    handlers = spans.of(SpanKind.SERVER)
    assert 0 < len(handlers) < CALLS
    assert all(parent_of(span) == 0 for span in handlers)


class Anyone(Sampler):
    """A sampler that samples what the caller's did not, and says nothing of parents."""

    def should_sample(self, *_args: Any, **_options: Any) -> SamplingResult:
        return SamplingResult(Decision.RECORD_AND_SAMPLE)

    def get_description(self) -> str:
        return "Anyone"


async def test_a_sampler_that_does_not_follow_parents_is_asked(
    make_spans: MakeSpans, cluster: Cluster
) -> None:
    leaves_out = make_spans(0.0)
    client = await cluster.client()
    spans = make_spans(0.0)
    spans.provider.sampler = Anyone()
    await cluster.worker(echo)
    await client.call(b"hello")
    await until(lambda: len(spans.of(SpanKind.SERVER)) == 1)
    assert leaves_out.ended == []


class OtherTracer(trace.Tracer):
    """The tracer of another SDK, with a sampler and a generator of ids of its own."""

    sampler: Final = object()
    id_generator: Final = object()

    def __init__(self, inner: trace.Tracer) -> None:
        self._inner = inner
        self.asked = 0

    def start_span(self, *args: Any, **options: Any) -> Any:
        self.asked += 1
        return self._inner.start_span(*args, **options)

    start_as_current_span: Any = None


class OtherProvider(trace.TracerProvider):
    """Another SDK, which makes its spans by OpenTelemetry's."""

    def __init__(self, inner: TracerProvider) -> None:
        self.tracer = OtherTracer(inner.get_tracer("other"))

    def get_tracer(self, *_args: Any, **_options: Any) -> OtherTracer:
        return self.tracer


async def test_another_sdk_is_asked_for_each_trace(
    make_spans: MakeSpans, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await cluster.client()  # without an SDK
    spans = make_spans(SHARE)
    other = OtherProvider(spans.provider)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: other)
    await cluster.worker(echo)
    for _ in range(CALLS):
        await client.call(b"hello")
    assert other.tracer.asked == CALLS
    assert 0 < len(spans.of(SpanKind.SERVER)) < CALLS


async def test_a_disabled_sdk_makes_no_spans_and_calls_go_on(
    make_spans: MakeSpans, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    spans = make_spans(SHARE)
    await again(cluster)
    seen: list[bytes] = []

    @service("it")
    async def noting(request: requite.Request) -> bytes:
        seen.append(request.trace)
        return request.body

    await cluster.worker(noting)
    client = await cluster.client()
    for _ in range(CALLS):
        assert (await client.call(b"hello")).body == b"hello"
    assert spans.ended == []
    assert not any(is_sampled(each) for each in seen)
