"""OpenTelemetry's API, if the program uses it.

Most programs do not, and pay neither for its import nor for checks: clients and workers look once,
when they are made, whether the program has imported it. Without an SDK behind the API, a call costs
the check whether there is one.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from requite.trace_context import NO_TRACE

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram
    from opentelemetry.trace import Span, SpanContext, Tracer

_NAME: Final = "requite"
# Boundaries that the conventions advise for durations, in seconds.
_BOUNDARIES_S: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25),
    *(0.5, 0.75, 1, 2.5, 5, 7.5, 10),
)


class Tracing:
    """Makes spans and records durations. `duration` is the name of the histogram."""

    def __init__(self, duration: str = "") -> None:
        from opentelemetry import metrics, trace
        from opentelemetry.context import Context

        self._no_span: Final = Context()
        self._trace: Final = trace
        self._metrics: Final = metrics
        self._duration = duration
        self._tracer: Tracer | None = None
        self._histogram: Histogram | None = None

    @property
    def tracer(self) -> Tracer | None:
        """The tracer; None as long as there is no SDK."""
        if self._tracer is None:
            trace = self._trace
            provider = trace.get_tracer_provider()
            if not isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
                self._tracer = provider.get_tracer(_NAME)
        return self._tracer

    def record(self, duration_s: float, attributes: dict[str, Any]) -> None:
        """Record a duration, if there is an SDK for metrics."""
        histogram = self._histogram
        if histogram is None:
            if not self._duration:
                return
            provider = self._metrics.get_meter_provider()
            if type(provider).__module__.startswith("opentelemetry.metrics"):  # only the API
                return
            histogram = provider.get_meter(_NAME).create_histogram(
                self._duration,
                unit="s",
                description="The time until a call ended, with all attempts",
                explicit_bucket_boundaries_advisory=_BOUNDARIES_S,
            )
            self._histogram = histogram
        histogram.record(duration_s, attributes)

    def context_of(self, trace: bytes) -> Context:
        """Return a context in which the remote parent of a trace context is the current span; one
        without a span if there is no trace."""
        if not trace:
            return self._no_span
        api = self._trace
        parent = api.SpanContext(
            int.from_bytes(trace[:16], "big"),
            int.from_bytes(trace[16:24], "big"),
            is_remote=True,
            trace_flags=api.TraceFlags(trace[24]),
        )
        context: Context = api.set_span_in_context(api.NonRecordingSpan(parent))
        return context

    @property
    def kinds(self) -> Any:
        """The kinds of spans."""
        return self._trace.SpanKind

    def fail(self, span: Span, error: str, text: str) -> None:
        """Mark a span as failed; `error` is the name of the class."""
        span.set_attribute("error.type", error)
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, text))


def tracing(duration: str = "") -> Tracing | None:
    """Return what makes spans; None if the program has not imported OpenTelemetry."""
    return Tracing(duration) if "opentelemetry.trace" in sys.modules else None


def trace_of(context: SpanContext) -> bytes:
    """Return the trace context of a span, for messages."""
    if not context.is_valid:
        return NO_TRACE
    return (
        context.trace_id.to_bytes(16, "big")
        + context.span_id.to_bytes(8, "big")
        + bytes((context.trace_flags,))
    )
