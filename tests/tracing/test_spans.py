"""Spans of clients, brokers and handlers, by OpenTelemetry's SDK in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from tests.e2e.cluster import Cluster, until
from tests.tracing.conftest import Spans, again, echo, parent_of

import requite
from requite.client import Client
from requite.errors import CallTimeout, Cancelled, NoService, RemoteFailure
from requite.tracing.calls import call_spans
from requite.worker import service
from requite.worker.spans import in_spans

GRACE_S: Final = 0.2  # how long a request waits for a service without workers


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_one_trace_has_the_caller_the_call_the_broker_and_the_handler(
    spans: Spans, cluster: Cluster
) -> None:
    cluster = await again(cluster)
    await cluster.worker(echo)
    client = await cluster.client()
    with spans.span("the caller") as caller:
        reply = await client.call(b"hello")
    await until(lambda: len(spans.ended) == 4)
    [call] = spans.of(SpanKind.CLIENT)
    [handler] = spans.of(SpanKind.SERVER)
    [broker] = spans.of(SpanKind.INTERNAL, "broker it")
    assert {s.context.trace_id for s in (call, handler, broker)} == {
        caller.get_span_context().trace_id
    }
    assert parent_of(call) == caller.get_span_context().span_id
    assert parent_of(handler) == parent_of(broker) == call.context.span_id
    assert call.name == handler.name == "it"
    told = facts(call)
    assert len(told.pop("requite.request_id")) == 32
    assert told == {
        "rpc.system.name": "requite",
        "rpc.method": "it",
        "rpc.response.status_code": "OK",
        "requite.attempts": reply.attempts,
    }
    assert [event.name for event in broker.events] == ["dispatched"]
    assert facts(broker)["rpc.response.status_code"] == "OK"
    assert spans.durations() == {
        "rpc.client.call.duration": {("it", ""): 1},
        "rpc.server.call.duration": {("it", ""): 1},
    }


async def test_calls_of_a_handler_continue_the_trace(spans: Spans, cluster: Cluster) -> None:
    await again(cluster)
    inner = await cluster.client("inner")

    @service("outer")
    async def outer(request: requite.Request) -> bytes:
        return (await inner.call(request.body)).body

    await cluster.worker(outer)
    await cluster.worker(service("inner")(echo.handler))
    client = await cluster.client("outer")
    await client.call(b"hello")
    await until(lambda: len(spans.of(SpanKind.SERVER)) == 2)
    first, second = (spans.of(SpanKind.CLIENT, name)[0] for name in ("outer", "inner"))
    [handler] = spans.of(SpanKind.SERVER, "outer")
    assert parent_of(second) == handler.context.span_id
    assert parent_of(handler) == first.context.span_id
    assert parent_of(first) == 0


async def test_durations_need_no_spans(
    spans: Spans, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
    await again(cluster, service_grace_s=GRACE_S)
    await cluster.worker(echo)
    client = await cluster.client()
    await client.call(b"hello")
    with pytest.raises(NoService):
        await client.call(b"hello", service="nobody")
    assert spans.ended == []
    assert spans.durations() == {
        "rpc.client.call.duration": {("it", ""): 1, ("nobody", "NoService"): 1},
        "rpc.server.call.duration": {("it", ""): 1},
    }


async def test_a_program_without_an_sdk_has_no_traces(
    spans: Spans, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", trace.ProxyTracerProvider)
    monkeypatch.setattr(metrics, "get_meter_provider", metrics.NoOpMeterProvider)
    assert call_spans() is None
    assert in_spans(echo) is echo


async def test_attempts_are_events_of_the_call(spans: Spans, cluster: Cluster) -> None:
    await again(cluster)
    client = await cluster.client(retry=requite.RetryPolicy(attempts=2, attempt_timeout=0.1))
    release = asyncio.Event()

    @service("it")
    async def slow(request: requite.Request) -> bytes:
        if request.attempt == 1 and not release.is_set():
            release.set()
            await asyncio.Event().wait()
        return request.body

    await cluster.worker(slow, capacity=2)
    reply = await client.call(b"hello")
    [call] = spans.of(SpanKind.CLIENT)
    assert [event.name for event in call.events] == ["sent", "retried", "sent"]
    assert "no reply" in str(dict(call.events[1].attributes or {})["reason"])
    assert facts(call)["requite.attempts"] == reply.attempts == 2


async def test_errors_end_spans_with_their_class(spans: Spans, cluster: Cluster) -> None:
    await again(cluster)

    @service("it")
    async def fail(request: requite.Request) -> bytes:
        if request.body == b"late":
            await asyncio.Event().wait()
        raise RemoteFailure("out of stock")

    await cluster.worker(fail)
    client = await cluster.client()
    with pytest.raises(RemoteFailure):
        await client.call(b"hello")
    with pytest.raises(CallTimeout):
        await client.call(b"late", timeout=0.2)
    call, late = spans.of(SpanKind.CLIENT)
    assert call.status.status_code is StatusCode.ERROR
    assert call.status.description == "out of stock"
    assert facts(call)["error.type"] == facts(call)["rpc.response.status_code"] == "RemoteFailure"
    assert facts(call)["requite.may_have_executed"] is True
    assert facts(late)["error.type"] == "CallTimeout"
    await until(lambda: len(spans.of(SpanKind.SERVER)) == 2)
    failed, interrupted = spans.of(SpanKind.SERVER)
    assert facts(failed)["error.type"] == "RemoteFailure"
    assert facts(interrupted)["error.type"] == "CancelledError"
    assert spans.durations()["rpc.client.call.duration"] == {
        ("it", "RemoteFailure"): 1,
        ("it", "CallTimeout"): 1,
    }


async def test_every_way_to_call_ends_its_spans(spans: Spans, cluster: Cluster) -> None:
    await again(cluster)

    @service("it")
    async def parts(request: requite.Request) -> AsyncIterator[bytes]:
        yield request.body

    await cluster.worker(parts)
    client = await cluster.client()
    await client.call(b"1")
    await client.start(b"2")
    async for _ in client.stream(b"3"):
        pass
    async for _ in client.map([b"4", b"5"]):
        pass
    running = client.start(b"6", service="nobody")
    running.cancel()
    await until(lambda: len(spans.of(SpanKind.CLIENT)) == 6)
    streamed = spans.of(SpanKind.CLIENT)[2]
    assert [event.name for event in streamed.events] == ["sent"]
    assert facts(streamed)["requite.partials"] == 1
    cancelled = spans.of(SpanKind.CLIENT, "nobody")[0]
    assert facts(cancelled)["error.type"] == Cancelled.__name__


async def test_a_blocking_client_and_handlers_in_threads_have_spans(
    spans: Spans, cluster: Cluster
) -> None:
    await again(cluster, service_grace_s=GRACE_S)

    @service("it")
    def plain(request: requite.Request) -> bytes:
        current = trace.get_current_span().get_span_context()
        return b"%032x" % current.trace_id

    @service("parts")
    def parts(request: requite.Request) -> Iterator[bytes]:
        yield b"%032x" % trace.get_current_span().get_span_context().trace_id

    await cluster.worker(plain, parts)

    def call() -> list[bytes]:
        with Client(cluster.url, service="it") as client:
            bodies = [client.call(b"").body]
            bodies += [each.body for each in client.map([b"", b""])]
            bodies += [each.body for each in client.stream(b"", service="parts")][:1]
            with pytest.raises(NoService):
                client.call(b"", service="nobody", timeout=30)
            return bodies

    bodies = await asyncio.to_thread(call)
    calls = spans.of(SpanKind.CLIENT)
    assert [b"%032x" % span.context.trace_id for span in calls[:4]] == bodies
    assert facts(calls[4])["error.type"] == "NoService"


async def test_a_program_that_does_not_use_opentelemetry_has_no_spans(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster
) -> None:
    import sys

    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    await again(cluster)
    seen: list[str] = []

    @service("it")
    async def noting(request: requite.Request) -> bytes:
        seen.append(request.traceparent)
        return b""

    await cluster.worker(noting)
    await (await cluster.client()).call(b"hello")
    assert seen == [""]


# --- what must not happen -------------------------------------------------------------------------
async def test_partial_replies_of_a_coroutine_are_within_its_span(
    spans: Spans, cluster: Cluster
) -> None:
    await again(cluster)

    async def parts() -> AsyncIterator[bytes]:
        await asyncio.sleep(0)
        yield b"%016x" % trace.get_current_span().get_span_context().span_id
        raise ValueError("in the middle")

    @service("it")
    async def coroutine(_request: requite.Request) -> AsyncIterator[bytes]:
        return parts()

    await cluster.worker(coroutine)
    client = await cluster.client()
    incoming = client.stream(b"")
    first = await anext(incoming)
    with pytest.raises(RemoteFailure):
        await anext(incoming)
    await until(lambda: spans.of(SpanKind.SERVER))
    [handler] = spans.of(SpanKind.SERVER)
    assert first.body == b"%016x" % handler.context.span_id
    assert facts(handler)["error.type"] == "ValueError"


async def test_a_generator_whose_partial_reply_is_too_large_ends_its_span_in_its_task(
    spans: Spans, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await again(cluster)

    @service("it")
    async def parts(_request: requite.Request) -> AsyncIterator[bytes]:
        yield bytes(5000)

    await cluster.worker(parts, message_size_max=1000)
    client = await cluster.client()
    with pytest.raises(RemoteFailure, match="5000 bytes"):
        await client.call(b"")
    await until(lambda: spans.of(SpanKind.SERVER))
    assert "Failed to detach context" not in caplog.text


async def test_a_blocking_map_with_a_bad_body_leaves_no_span_open(
    spans: Spans, cluster: Cluster
) -> None:
    await again(cluster)
    await cluster.worker(echo)

    def call() -> int:
        with Client(cluster.url, service="it") as client:
            bodies: Any = [b"a", b"b", "text"]
            with pytest.raises(TypeError):
                list(client.map(bodies))
            assert client._spans is not None
            return len(client._spans._open)

    assert await asyncio.to_thread(call) == 0


async def test_a_request_without_a_trace_begins_one_although_its_worker_was_made_in_a_span(
    spans: Spans, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    await again(cluster)
    with spans.span("start-up") as outer:
        await cluster.worker(echo)
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "opentelemetry.trace")
        client = await cluster.client()
    await client.call(b"hello")
    await until(lambda: spans.of(SpanKind.SERVER))
    [handler] = spans.of(SpanKind.SERVER)
    assert handler.parent is None
    assert handler.context.trace_id != outer.get_span_context().trace_id


async def test_many_partial_replies_do_not_displace_the_attempts(
    spans: Spans, cluster: Cluster
) -> None:
    await again(cluster)

    @service("it")
    async def parts(_request: requite.Request) -> AsyncIterator[bytes]:
        for _ in range(300):
            yield b"x"

    await cluster.worker(parts)
    client = await cluster.client()
    async for _ in client.stream(b""):
        pass
    await until(lambda: spans.of(SpanKind.INTERNAL, "broker it"))
    [call], [broker] = spans.of(SpanKind.CLIENT), spans.of(SpanKind.INTERNAL, "broker it")
    assert [event.name for event in call.events] == ["sent"]
    assert facts(call)["requite.partials"] == 300
    assert [event.name for event in broker.events] == ["dispatched"]


async def test_an_exception_without_a_text_reaches_the_caller_as_without_traces(
    spans: Spans, cluster: Cluster
) -> None:
    await again(cluster)

    class BadError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @service("it")
    async def fail(_request: requite.Request) -> bytes:
        raise BadError

    await cluster.worker(fail)
    client = await cluster.client()
    with pytest.raises(RemoteFailure, match=r"BadError: \(no text: its __str__ failed\)"):
        await client.call(b"")
    await until(lambda: spans.of(SpanKind.SERVER))
    assert facts(spans.of(SpanKind.SERVER)[0])["error.type"] == "BadError"


async def test_a_broker_that_stops_at_once_ends_its_spans(spans: Spans, cluster: Cluster) -> None:
    await again(cluster)
    client = await cluster.client()
    call = client.start(b"hello")  # there is no worker
    await until(lambda: cluster.broker.snapshot().pending == 1)
    await cluster.broker.close()
    [broker] = spans.of(SpanKind.INTERNAL, "broker it")
    assert facts(broker)["error.type"] == "CANCELLED"
    call.cancel()
