"""The spans of requests at a broker or in a Titanic, made of the engine's notes.

Their parent is the call at the client, as that of the worker's span is: each broker that a request
reaches has one span of it. A broker's span has the attempts as events, and ends with its answer. A
Titanic's span covers the time from the submission, which may have been in an earlier process, to
the reply.

Only requests of sampled traces have notes, and only if the process makes spans.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from requite.engine import Note
from requite.tracing.api import Tracing, tracing

if TYPE_CHECKING:
    from opentelemetry.trace import Span

_OK: Final = "OK"
_PENDING_MAX: Final = 1 << 16  # spans of requests that are still at the broker
_NS_PER_US: Final = 1000


class BrokerSpans:
    """The spans of one broker's requests."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing: Final = tracing
        self._spans: dict[tuple[bytes, int], Span] = {}

    def note(self, note: Note) -> None:
        """Begin, continue or end the span of a request."""
        facts = note.facts
        trace = facts.get("trace")
        if not trace:
            return
        key = (facts["client"], facts["request_id"])
        if note.kind == "accepted":
            self._begin(key, trace, facts)
        elif (span := self._spans.get(key)) is None:
            return
        elif note.kind in ("answered", "cancelled"):
            del self._spans[key]
            self._end(span, facts)
        else:
            span.add_event(note.kind, _told(facts))

    def abandon(self) -> None:
        """End the spans of all requests: the broker stops without answers to them."""
        for span in self._spans.values():
            self._tracing.fail(span, "CANCELLED", "the broker stopped")
            span.end()
        self._spans.clear()

    def _begin(self, key: tuple[bytes, int], trace: bytes, facts: Any) -> None:
        tracer = self._tracing.tracer
        if tracer is None or len(self._spans) >= _PENDING_MAX:
            return
        service = facts["service"].decode(errors="replace")
        self._spans[key] = tracer.start_span(
            f"broker {service}",
            context=self._tracing.context_of(trace),
            attributes={"rpc.system.name": "requite", "rpc.method": service},
        )

    def _end(self, span: Span, facts: Any) -> None:
        status = facts.get("status", "CANCELLED")
        span.set_attribute("rpc.response.status_code", status)
        span.set_attribute("requite.attempts", facts["attempt"])
        if status != _OK:
            self._tracing.fail(span, status, facts.get("reason", ""))
        span.end()


class TitanicSpans:
    """The spans of one Titanic's requests."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing: Final = tracing

    def note(self, note: Note) -> None:
        """Make the span of a request that has ended."""
        facts = note.facts
        tracer = self._tracing.tracer
        trace = facts.get("trace")
        if tracer is None or not trace or note.kind not in ("answered", "poisoned"):
            return
        service = facts["service"].decode(errors="replace")
        span = tracer.start_span(
            f"titanic {service}",
            context=self._tracing.context_of(trace),
            attributes={
                "rpc.system.name": "requite",
                "rpc.method": service,
                "requite.ticket": facts["uuid"].hex(),
                "requite.attempts": facts["attempts"],
            },
            start_time=facts["submitted_us"] * _NS_PER_US,
        )
        if note.kind == "poisoned":
            self._tracing.fail(span, "Poisoned", facts["reason"])
        span.end()


def broker_spans() -> BrokerSpans | None:
    """Return the spans of a new broker; None if the program does not use OpenTelemetry."""
    found = tracing()
    return None if found is None else BrokerSpans(found)


def titanic_spans() -> TitanicSpans | None:
    """Return the spans of a new Titanic; None if the program does not use OpenTelemetry."""
    found = tracing()
    return None if found is None else TitanicSpans(found)


def both(
    first: Callable[[Note], None] | None, second: Callable[[Note], None] | None
) -> Callable[[Note], None]:
    """Return a function that passes a note to those of the two that exist."""
    takers = [taker for taker in (first, second) if taker is not None]

    def take(note: Note) -> None:
        for taker in takers:
            taker(note)

    return takers[0] if len(takers) == 1 else take


def _told(facts: Any) -> dict[str, Any]:
    """Return the facts of an event that say more than the span does."""
    told: dict[str, Any] = {"attempt": facts["attempt"]}
    if (worker := facts["worker"] or facts.get("lost_worker")) is not None:
        told["worker"] = worker.hex()
    if reason := facts.get("reason"):
        told["reason"] = reason
    return told
