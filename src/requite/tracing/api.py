"""OpenTelemetry's API, if the program has an SDK behind it.

Most programs do not, and pay neither for its import nor for checks: clients, workers, brokers and
Titanics look once, when they are made.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from requite.trace_context import NO_TRACE, is_sampled

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, Tracer, TracerProvider

_NAME: Final = "requite"
# In the descriptions of samplers.
_PARENTS: Final = ("remoteParentNotSampled", "localParentNotSampled")
_FOLLOWED: Final = ":AlwaysOffSampler"
_LOW_BITS: Final = (1 << 64) - 1  # of a trace id, which decide whether it is in the share
_TAKEN_MAX: Final = 64  # a disabled tracer does not ask for them
_RANDOM: Final = 2  # a flag of trace contexts: the trace id is random
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
        self._context: Final = context.Context
        self._no_span: Final = context.Context()
        self._remote_parent: Final = _remote_parents()
        self._trace: Final = trace
        self.current_span: Final = trace.get_current_span
        self.within: Final = trace.set_span_in_context
        # The only key of a context with a span. `within` takes four times as long.
        [self._key] = trace.set_span_in_context(trace.INVALID_SPAN, self._no_span)
        self.tracer: Final = _tracer(trace.get_tracer_provider())
        self._roots: Final = _roots(self.tracer, self._no_span)
        self._histogram: Final = _histogram(metrics.get_meter_provider(), duration)
        sampler = getattr(self.tracer, "sampler", None)
        ways = getattr(sampler, "get_description", str)()  # another SDK may have none
        self._follows_remote, self._follows_local = (
            f"{each}{_FOLLOWED}" in ways for each in _PARENTS
        )

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

    def left_out(self, parent: bytes, is_remote: bool = True) -> bytes:
        """Return the context of a trace whose spans the sampler is known to leave out: that of the
        parent, or of a new trace if there is none. `NO_TRACE`: the sampler has to be asked.

        Asking it takes 2.9 us (SDK 1.45, CPython 3.11), as much as the fifth part of a call.
        """
        if not parent:
            return NO_TRACE if self._roots is None else self._roots.begin_left_out()
        follows = self._follows_remote if is_remote else self._follows_local
        return parent if follows and not is_sampled(parent) else NO_TRACE

    def context_of(self, trace: bytes) -> Context:
        """Return a context whose current span is the remote parent in `trace`; one without a span
        if there is none."""
        return self._context({self._key: self._remote_parent(trace)}) if trace else self._no_span

    @property
    def kinds(self) -> Any:
        """The kinds of spans."""
        return self._trace.SpanKind

    def fail(self, span: Span, error: str, text: str) -> None:
        """Mark a span as failed; `error` is the name of the class."""
        span.set_attribute("error.type", error)
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, text))


class _Roots:
    """Traces that begin here, of which a sampler takes those in a share of all trace ids.

    Most are left out, without a question to the SDK. It takes the place of the generator of ids of
    the SDK's tracer, which gets the trace ids that are in the share from here.
    """

    def __init__(self, ids: IdGenerator, bound: int) -> None:
        self._bound: Final = bound
        self._taken: Final = deque[int](maxlen=_TAKEN_MAX)
        self._generate_trace_id: Final = ids.generate_trace_id
        self.generate_span_id: Final = ids.generate_span_id
        is_random = getattr(ids, "is_trace_id_random", None)  # not in older SDKs
        self._is_random: Final = is_random is not None and is_random()
        self._flags: Final = bytes([_RANDOM if self._is_random else 0])

    def begin_left_out(self) -> bytes:
        """Begin a trace without a span, if it is not in the share; return its context.

        `NO_TRACE`: it is, and has to begin with a span.
        """
        trace_id = self._generate_trace_id()
        if trace_id & _LOW_BITS < self._bound:
            self._taken.append(trace_id)
            return NO_TRACE
        parent_id = self.generate_span_id()
        return trace_id.to_bytes(16, "big") + parent_id.to_bytes(8, "big") + self._flags

    def generate_trace_id(self) -> int:
        """Return a trace id that is in the share, if one was taken."""
        return self._taken.pop() if self._taken else self._generate_trace_id()

    def is_trace_id_random(self) -> bool:
        """Whether trace ids are random."""
        return self._is_random


def _roots(tracer: Any, no_span: Context) -> _Roots | None:
    """Return what begins the traces of a tracer; None if only its SDK can decide on them."""
    ids, sampler = getattr(tracer, "id_generator", None), getattr(tracer, "sampler", None)
    if isinstance(ids, _Roots):  # the SDK has one tracer for all who ask for this name
        return ids
    is_enabled = getattr(tracer, "_is_enabled", None)
    if ids is None or sampler is None or (is_enabled is not None and not is_enabled()):
        return None
    if "opentelemetry.sdk.trace.sampling" not in sys.modules:  # another SDK
        return None
    bound = _bound(sampler, no_span)
    if bound is None:
        return None
    tracer.id_generator = roots = _Roots(ids, bound)
    return roots


def _bound(sampler: Any, no_span: Context) -> int | None:
    """Return how many values of the low bits of a trace id a sampler takes; None if it may decide
    by anything else, or does not follow parents that are left out."""
    from opentelemetry.sdk.trace import sampling

    # Classes of users may have the descriptions of those that they inherit from.
    root: Any = getattr(sampler, "_root", None)
    known = (sampling.ParentBased, sampling.ParentBasedTraceIdRatio)
    if type(sampler) not in known or type(root) is not sampling.TraceIdRatioBased:
        return None
    if not all(f"{parent}{_FOLLOWED}" in sampler.get_description() for parent in _PARENTS):
        return None
    bound: int = root.bound

    def takes(low_bits: int) -> bool:
        trace_id = _LOW_BITS + 1 | low_bits
        return bool(sampler.should_sample(no_span, trace_id, _NAME).decision.is_sampled())

    # The SDK may decide by other bits one day.
    is_known = 0 < bound <= _LOW_BITS and takes(bound - 1) and not takes(bound)
    return bound if is_known else None


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
