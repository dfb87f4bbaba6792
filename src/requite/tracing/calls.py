"""The spans of a client's calls: one per call, over all its attempts.

A span begins when a call is submitted, as a child of the span that is current there, and ends with
the call. Retries are events of it. Attributes are those of the conventions for RPC clients, and
`requite.attempts`, `requite.partials` (the number of partial replies), `requite.may_have_executed`
and `requite.request_id`, the id of the call in journals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from requite.engine import Input, Note, Submit
from requite.errors import CallError
from requite.request import Partial, Reply
from requite.shell import clock
from requite.shell.uses import Uses
from requite.tracing.api import Tracing, trace_of, tracing

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_EVENTS: Final = frozenset({"sent", "retried", "resent", "turned-away"})
_ATTRIBUTES: Final = frozenset({"attempts", "reason", "rest_s"})


class _Open:
    """A call that has not ended. `span` is None if it is not sampled; `partials` counts its partial
    replies."""

    __slots__ = ("began", "partials", "service", "span")

    def __init__(self, span: Span | None, service: str) -> None:
        self.span = span
        self.service = service
        self.began = clock.now()
        self.partials = 0


class CallSpans:
    """The spans of one client's calls, by token."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing: Final = tracing
        self._open: dict[Any, _Open] = {}

    def around(self, submit: Callable[[Input], None]) -> Callable[[Input], None]:
        """Return a function that begins the span of each `Submit`, and submits all inputs."""

        def submit_in_span(event: Input) -> None:
            if event.__class__ is Submit:
                self.begin(event)
            submit(event)

        return submit_in_span

    def begin(self, asked: Submit) -> None:
        """Begin the span of a call, and set the trace context of the call.

        A call of a trace that is not sampled has no span, but its context.
        """
        tracing = self._tracing
        span = None
        if tracing.tracer is not None:
            parent = tracing.current_span().get_span_context()
            asked.trace = tracing.left_out(trace_of(parent), parent.is_remote)
            if not asked.trace:
                span = self._start(tracing.tracer, asked.service)
                asked.trace = trace_of(span.get_span_context())
                if not span.is_recording():
                    span = None
        if span is not None or tracing.records:
            self._open[asked.token] = _Open(span, asked.service)

    def _start(self, tracer: Tracer, service: str) -> Span:
        return tracer.start_span(
            service or "call",
            kind=self._tracing.kinds.CLIENT,
            attributes={"rpc.system.name": "requite", "rpc.method": service},
        )

    def forget(self, token: Any) -> None:
        """Forget the span of a call that was not submitted."""
        self._open.pop(token, None)

    def watching(self, uses: Uses) -> Uses:
        """Return the callbacks of a shell, with those of the spans before them."""
        deliver, fail, deliver_all = uses["deliver"], uses["fail"], uses.get("deliver_all")

        def deliver_and_end(token: Any, what: Any) -> None:
            self._take(token, what)
            deliver(token, what)

        def deliver_all_and_end(pairs: Sequence[tuple[Any, Any]]) -> None:
            if self._open:
                for token, what in pairs:
                    self._take(token, what)
            if deliver_all is not None:
                deliver_all(pairs)
            else:
                for token, what in pairs:
                    deliver(token, what)

        def fail_and_end(token: Any, error: CallError) -> None:
            self._failed(token, error)
            fail(token, error)

        watched = uses.copy()
        watched["deliver"], watched["deliver_all"] = deliver_and_end, deliver_all_and_end
        watched["fail"], watched["note"] = fail_and_end, self.note
        return watched

    def note(self, note: Note) -> None:
        """Add an attempt to the span of its call."""
        facts = note.facts
        found = self._open.get(facts.get("token"))
        if found is None or note.kind not in _EVENTS or found.span is None:
            return
        span = found.span
        if call_id := facts.get("call_id"):
            span.set_attribute("requite.request_id", call_id.hex())
        span.add_event(note.kind, {name: facts[name] for name in _ATTRIBUTES & facts.keys()})

    def abandon(self, error: CallError) -> None:
        """End all spans with an error, after which their calls are not heard of."""
        for token in list(self._open):
            self._failed(token, error)

    def _take(self, token: Any, what: Any) -> None:
        if isinstance(what, Partial):
            found = self._open.get(token)
            if found is not None:
                found.partials += 1
            return
        found = self._open.pop(token, None)
        if found is None:
            return
        assert isinstance(what, Reply)
        self._end(found, "OK", {"requite.attempts": what.attempts})

    def _failed(self, token: Any, error: CallError) -> None:
        found = self._open.pop(token, None)
        if found is None:
            return
        name = type(error).__name__
        if found.span is not None:
            self._tracing.fail(found.span, name, str(error))
        told = {
            "requite.attempts": error.attempts,
            "requite.may_have_executed": error.may_have_executed,
        }
        self._end(found, name, told, name)

    def _end(self, ended: _Open, status: str, told: dict[str, Any], error: str = "") -> None:
        span = ended.span
        if span is not None:
            span.set_attribute("rpc.response.status_code", status)
            if ended.partials:  # events of theirs would displace the attempts
                span.set_attribute("requite.partials", ended.partials)
            span.set_attributes(told)
            span.end()
        if self._tracing.records:
            attributes = {
                "rpc.system.name": "requite",
                "rpc.method": ended.service,
                "rpc.response.status_code": status,
            }
            if error:
                attributes["error.type"] = error
            self._tracing.record(clock.now() - ended.began, attributes)


def call_spans() -> CallSpans | None:
    """Return the spans of a new client; None if the program does not use OpenTelemetry."""
    found = tracing("rpc.client.call.duration")
    return None if found is None else CallSpans(found)
