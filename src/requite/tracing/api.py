"""OpenTelemetry's API, if the program has an SDK behind it.

Most programs do not, and pay neither for its import nor for checks: clients, workers, brokers and
Titanics look once, when they are made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from requite.trace_context import NO_TRACE, is_sampled

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, Tracer, TracerProvider

_NAME: Final = "requite"
# Boundaries that the conventions advise for durations, in seconds.
_BOUNDARIES_S: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25),
    *(0.5, 0.75, 1, 2.5, 5, 7.5, 10),
)


class Tracing:
    """Makes spans and records durations. `duration` is the name of the histogram; "": none.

    `tracer` is None if the program has no SDK for spans.
    """

    def __init__(self, duration: str = "") -> None:
        from opentelemetry import context, metrics, trace

        self.attach: Final = context.attach
        self.detach: Final = context.detach
        self._no_span: Final = context.Context()
        self._remote_parent: Final = _remote_parents()
        self._trace: Final = trace
        self.current_span: Final = trace.get_current_span
        self.within: Final = trace.set_span_in_context
        self.tracer: Final = _tracer(trace.get_tracer_provider())
        self._histogram: Final = _histogram(metrics.get_meter_provider(), duration)
        sampler = getattr(self.tracer, "sampler", None)
        ways = "" if sampler is None else sampler.get_description()
        self._follows_remote: Final = "remoteParentNotSampled:AlwaysOffSampler" in ways
        self._follows_local: Final = "localParentNotSampled:AlwaysOffSampler" in ways

    @property
    def has_sdk(self) -> bool:
        """Whether there is anything to make."""
        return self.tracer is not None or self._histogram is not None

    @property
    def records(self) -> bool:
        """Whether durations are recorded."""
        return self._histogram is not None

    def record(self, duration_s: float, attributes: dict[str, Any]) -> None:
        """Record a duration, if they are recorded."""
        if self._histogram is not None:
            self._histogram.record(duration_s, attributes)

    def is_left_out(self, trace: bytes) -> bool:
        """Whether the sampler is known to leave out all spans below the remote parent in `trace`.

        Asking it takes 2.9 us (SDK 1.45, CPython 3.11), as much as the fifth part of a call.
        """
        return bool(trace) and not is_sampled(trace) and self._follows_remote

    def is_left_out_here(self, parent: SpanContext) -> bool:
        """The same for the current span of this process."""
        if parent.trace_flags.sampled or not parent.is_valid:
            return False
        return self._follows_remote if parent.is_remote else self._follows_local

    def context_of(self, trace: bytes) -> Context:
        """Return a context whose current span is the remote parent in `trace`; one without a span
        if there is none."""
        return self.within(self._remote_parent(trace), self._no_span) if trace else self._no_span

    @property
    def kinds(self) -> Any:
        """The kinds of spans."""
        return self._trace.SpanKind

    def fail(self, span: Span, error: str, text: str) -> None:
        """Mark a span as failed; `error` is the name of the class."""
        span.set_attribute("error.type", error)
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, text))


def _remote_parents() -> Callable[[bytes], NonRecordingSpan]:
    """Return the class of spans of other processes; it is made with a trace context.

    Few of them are looked at: the parent of a handler that makes no calls of its own only is if it
    is sampled.
    """
    from opentelemetry import trace

    class RemoteParent(trace.NonRecordingSpan):
        def __init__(self, context: bytes) -> None:
            self._trace = context

        def __repr__(self) -> str:
            return f"RemoteParent({self.get_span_context()!r})"

        def get_span_context(self) -> SpanContext:
            context = self._trace
            return trace.SpanContext(
                int.from_bytes(context[:16], "big"),
                int.from_bytes(context[16:24], "big"),
                is_remote=True,
                trace_flags=trace.TraceFlags(context[24]),
            )

    return RemoteParent


def tracing(duration: str = "") -> Tracing | None:
    """Return what makes spans; None if the program has not set up OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    found = Tracing(duration)
    return found if found.has_sdk else None


def _tracer(provider: TracerProvider) -> Tracer | None:
    from opentelemetry import trace

    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):  # only the API
        return None
    return provider.get_tracer(_NAME)


def _histogram(provider: MeterProvider, name: str) -> Histogram | None:
    if not name or type(provider).__module__.startswith("opentelemetry.metrics"):  # only the API
        return None
    return provider.get_meter(_NAME).create_histogram(
        name,
        unit="s",
        description="The time until a call ended, with all attempts",
        explicit_bucket_boundaries_advisory=_BOUNDARIES_S,
    )


def current_trace() -> bytes:
    """Return the trace context of the current span; `NO_TRACE` if there is none."""
    if "opentelemetry.trace" not in sys.modules:
        return NO_TRACE
    from opentelemetry import trace

    return trace_of(trace.get_current_span().get_span_context())


def trace_of(context: SpanContext) -> bytes:
    """Return the trace context of a span, for messages."""
    if not context.is_valid:
        return NO_TRACE
    return (
        context.trace_id.to_bytes(16, "big")
        + context.span_id.to_bytes(8, "big")
        + bytes((context.trace_flags,))
    )
