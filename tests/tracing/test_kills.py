"""One trace survives a SIGKILL of the worker, of the broker, and of the Titanic that stores it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import SpanKind
from tests.e2e.cluster import until
from tests.support.live import BrokerProcess, Process, eventually, hold_port
from tests.tracing.conftest import Spans

from requite.client import AsyncClient
from requite.trace_context import decode_traceparent

pytestmark = pytest.mark.e2e

PROGRAM = ("-m", "tests.tracing.program")
WAIT_S = 60


class TracedBroker(BrokerProcess):
    """`requite broker` in a program with OpenTelemetry's SDK, at the port of an earlier one."""

    def __init__(self, spans: Path, bind: str, *options: str) -> None:
        self._arguments = (*PROGRAM, str(spans), "broker", "--bind", bind, *options)
        Process.__init__(self, *self._arguments)
        self.endpoint = self.line().removeprefix("listening on ")

    def dispose(self) -> None:
        """Kill the broker if it is still running."""
        self.kill()


@pytest.fixture
def free_place() -> Iterator[str]:
    """The address of a free port, which stays reserved."""
    with socket.socket() as holder:
        yield f"tcp://127.0.0.1:{hold_port(holder)}"


def spans_in(file: Path) -> list[dict[str, Any]]:
    """Return the spans that a program has written."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def trace_ids(spans: list[dict[str, Any]]) -> set[int]:
    return {int(span["context"]["trace_id"], 16) for span in spans}


async def test_a_trace_survives_the_kills_of_worker_and_broker(
    tmp_path: Path, processes: list[Process], spans: Spans, free_place: str
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    broker = TracedBroker(tmp_path / "broker-1", free_place)
    processes.append(broker)
    worker = (*PROGRAM, str(tmp_path / "worker-1"), "worker", broker.url, str(first), "stuck")
    processes.append(Process(*worker))
    broker.await_workers("echo", 1)
    async with AsyncClient(f"{broker.url}/echo", heartbeat=0.2) as client:
        call = client.start(b"hello", timeout=WAIT_S)
        await until(first.exists)
        processes[1].kill()  # while it has the request
        broker.forget_observer()
        broker.kill()
        broker = TracedBroker(tmp_path / "broker-2", free_place)
        processes.append(broker)
        worker = (*PROGRAM, str(tmp_path / "worker-2"), "worker", broker.url, str(second), "")
        processes.append(Process(*worker))
        reply = await call
    assert reply.body == b"hello"
    [span] = spans.of(SpanKind.CLIENT)
    of_broker, of_worker = tmp_path / "broker-2", tmp_path / "worker-2"
    eventually(lambda: spans_in(of_broker), "the broker's span")
    eventually(lambda: len(spans_in(of_worker)) == 2, "the worker's spans")
    assert trace_ids(spans_in(of_broker) + spans_in(of_worker)) == {span.context.trace_id}
    handler = spans_in(of_worker)[1]
    assert handler["kind"] == "SpanKind.SERVER"
    assert int(handler["parent_id"], 16) == span.context.span_id
    assert decode_traceparent(first.read_text()) == decode_traceparent(second.read_text())
    assert "sent" in {event.name for event in span.events}
    assert (span.attributes or {})["requite.attempts"] == reply.attempts > 1


async def test_a_stored_request_stays_in_its_trace_after_a_restart(
    tmp_path: Path, processes: list[Process], spans: Spans, free_place: str
) -> None:
    store = ("--titanic", str(tmp_path / "store"))
    broker = TracedBroker(tmp_path / "broker-1", free_place, *store)
    processes.append(broker)
    async with AsyncClient(f"{broker.url}/echo", heartbeat=0.2) as client:
        ticket = await client.submit(b"hello", timeout=WAIT_S)
        broker.kill()  # there was no worker yet
        broker = TracedBroker(tmp_path / "broker-2", free_place, *store)
        processes.append(broker)
        started = tmp_path / "started"
        worker = (*PROGRAM, str(tmp_path / "worker"), "worker", broker.url, str(started), "")
        processes.append(Process(*worker))
        reply = await client.result(ticket, timeout=WAIT_S)
    assert reply.body == b"hello"
    [submission] = spans.of(SpanKind.CLIENT, "titanic.request")
    told = {span["name"]: span for span in spans_in(tmp_path / "broker-2")}
    stored = told["titanic echo"]
    assert int(stored["context"]["trace_id"], 16) == submission.context.trace_id
    assert int(stored["parent_id"], 16) == submission.context.span_id
    assert stored["attributes"]["requite.ticket"].upper() == ticket.upper()
    eventually(lambda: len(spans_in(tmp_path / "worker")) == 2, "the worker's spans")
    assert trace_ids(spans_in(tmp_path / "worker")) == {submission.context.trace_id}
    assert trace_ids([told["broker echo"]]) == {submission.context.trace_id}
