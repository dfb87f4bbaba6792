"""The spans of a client's calls: one per call, over all its attempts.

A span begins when a call is submitted, as a child of the span that is current there, and ends with
the call. Retries and partial replies are events of it. Attributes are those of the conventions for
RPC clients, and `requite.attempts`, `requite.may_have_executed` and `requite.request_id`, the id of
the call in journals.
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
    from opentelemetry.trace import Span

_EVENTS: Final = frozenset({"sent", "retried", "resent", "turned-away"})
_ATTRIBUTES: Final = frozenset({"attempts", "reason", "rest_s"})


class CallSpans:
    """The spans of one client's calls, by token."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing: Final = tracing
        self._spans: dict[Any, tuple[Span, str, float]] = {}

    def around(self, submit: Callable[[Input], None]) -> Callable[[Input], None]:
        """Return a function that begins the span of each `Submit`, and submits all inputs."""

        def submit_in_span(event: Input) -> None:
            if event.__class__ is Submit:
                self.begin(event)
            submit(event)

        return submit_in_span

    def begin(self, asked: Submit) -> None:
        """Begin the span of a call, unless it has begun, and set the trace context of the call."""
        tracing = self._tracing
        tracer = tracing.tracer
        if tracer is None or asked.token in self._spans:
            return
        service = asked.service
        span = tracer.start_span(
            service or "call",
            kind=tracing.kinds.CLIENT,
            attributes={"rpc.system.name": "requite", "rpc.method": service},
        )
        asked.trace = trace_of(span.get_span_context())
        self._spans[asked.token] = (span, service, clock.now())

    def watching(self, uses: Uses) -> Uses:
        """Return the callbacks of a shell, with those of the spans before them."""
        deliver, fail, deliver_all = uses["deliver"], uses["fail"], uses.get("deliver_all")

        def deliver_and_end(token: Any, what: Any) -> None:
            self._take(token, what)
            deliver(token, what)

        def deliver_all_and_end(pairs: Sequence[tuple[Any, Any]]) -> None:
            for token, what in pairs:
                self._take(token, what)
                if deliver_all is None:
                    deliver(token, what)
            if deliver_all is not None:
                deliver_all(pairs)

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
        found = self._spans.get(facts.get("token"))
        if found is None or note.kind not in _EVENTS:
            return
        span = found[0]
        if not span.is_recording():
            return
        if call_id := facts.get("call_id"):
            span.set_attribute("requite.request_id", call_id.hex())
        span.add_event(note.kind, {name: facts[name] for name in _ATTRIBUTES & facts.keys()})

    def abandon(self, error: CallError) -> None:
        """End all spans with an error, after which their calls are not heard of."""
        for token in list(self._spans):
            self._failed(token, error)

    def _take(self, token: Any, what: Any) -> None:
        if isinstance(what, Partial):
            found = self._spans.get(token)
            if found is not None:
                found[0].add_event("partial", {"index": what.index})
            return
        found = self._spans.pop(token, None)
        if found is None:
            return
        span, service, began = found
        assert isinstance(what, Reply)
        if span.is_recording():
            span.set_attribute("rpc.response.status_code", "OK")
            span.set_attribute("requite.attempts", what.attempts)
        span.end()
        self._record(service, began, "OK")

    def _failed(self, token: Any, error: CallError) -> None:
        found = self._spans.pop(token, None)
        if found is None:
            return
        span, service, began = found
        name = type(error).__name__
        if span.is_recording():
            span.set_attribute("rpc.response.status_code", name)
            span.set_attribute("requite.attempts", error.attempts)
            span.set_attribute("requite.may_have_executed", error.may_have_executed)
            self._tracing.fail(span, name, str(error))
        span.end()
        self._record(service, began, name, name)

    def _record(self, service: str, began: float, status: str, error: str = "") -> None:
        attributes = {
            "rpc.system.name": "requite",
            "rpc.method": service,
            "rpc.response.status_code": status,
        }
        if error:
            attributes["error.type"] = error
        self._tracing.record(clock.now() - began, attributes)


def call_spans() -> CallSpans | None:
    """Return the spans of a new client; None if the program does not use OpenTelemetry."""
    found = tracing("rpc.client.call.duration")
    return None if found is None else CallSpans(found)
