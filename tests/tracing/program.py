"""A program of the tests that has set up OpenTelemetry's SDK: python -m tests.tracing.program
SPANS broker|worker|titanic ARGUMENTS. It appends each span that ends to the file SPANS, as JSON."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

import requite
from requite.cli import main


def set_up(spans: Path) -> None:
    """Write the spans of this process to a file."""
    provider = TracerProvider()
    out = spans.open("a", buffering=1)
    exporter = ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + "\n")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


def work(url: str, started: Path, stuck: bool) -> None:
    """Serve `echo`. A worker that is `stuck` never answers."""

    @requite.service("echo")
    async def echo(request: requite.Request) -> bytes:
        with trace.get_tracer("tests").start_as_current_span("within the handler"):
            await asyncio.to_thread(started.write_text, request.traceparent)
            if stuck:
                await asyncio.Event().wait()
            return request.body

    requite.Worker(url, echo).run()


if __name__ == "__main__":
    set_up(Path(sys.argv[1]))
    if sys.argv[2] == "worker":
        work(sys.argv[3], Path(sys.argv[4]), sys.argv[5] == "stuck")
    else:
        sys.argv[1:] = sys.argv[2:]
        main()
