"""A synthetic journal of ordinary traffic of a broker, eight clients and four workers.

Calls arrive at random, 500 per second on average; a third waits in the queue; handlers take some
milliseconds, a few much longer. One in 500 fails; one in 1,000 is redelivered from a silent worker
to another. Each call has about 9.4 events.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from requite.chronicle import EventRow, Kind, SpanRow, WriterRole
from requite.journal import JournalSettings
from requite.journal.blocks import PURPOSE
from requite.journal.folder import log_name
from requite.journal.writer import BlockWriter
from requite.request import Status
from requite.storage import Log, LogSettings

EVENTS_PER_CALL: Final = 9.35
CALLS_PER_S: Final = 500.0
NOON_US: Final = 1_772_452_800_000_000  # 2026-03-02 12:00 UTC
CLIENTS: Final = tuple(f"client-{number}".encode() for number in range(8))
WORKERS: Final = tuple(f"worker-{number}".encode() for number in range(4))
SERVICES: Final = (b"echo", b"enrich")
BROKER: Final = b"broker-0"

_TIMEOUT_S: Final = 10.0
_FAILS: Final = 0.002
_REDELIVERED: Final = 0.001
_BATCH: Final = 512
_NOTICED_S: Final = 3.0


class Call(NamedTuple):
    """A call; `fate` is a kind of failure, or empty."""

    call_id: bytes
    client: int
    worker: int
    service: bytes
    accepted_at: float
    dispatched_at: float
    ended_at: float
    fate: str


class Writer:
    """The log of one process."""

    def __init__(self, folder: Path, role: WriterRole, name: bytes) -> None:
        size = JournalSettings().segment_size_bytes
        settings = LogSettings(segment_size_bytes=size, sync=False)
        self._log = Log.open(folder / log_name(role, name), purpose=PURPOSE, settings=settings)
        self._blocks = BlockWriter(self._log, {})
        self.spans: list[SpanRow] = []
        self.event_rows: list[EventRow] = []

    def flush(self) -> None:
        """Write the buffered rows."""
        if self.spans:
            self._blocks.write_spans(self.spans, NOON_US)
        if self.event_rows:
            self._blocks.write_event_rows(self.event_rows, NOON_US)
        self.spans, self.event_rows = [], []

    def close(self) -> None:
        """Write the remaining rows, and close the log."""
        self.flush()
        self._log.close()


def write_journal(folder: Path, events: int, *, news: float, seed: int = 1) -> Iterator[None]:
    """Write logs of about `events` events, determined by the seed. Yield twice: before the last
    part, a share of `news`, and at the end."""
    broker = Writer(folder, WriterRole.BROKER, BROKER)
    clients = [Writer(folder, WriterRole.CLIENT, name) for name in CLIENTS]
    workers = [Writer(folder, WriterRole.WORKER, name) for name in WORKERS]
    everyone = [broker, *clients, *workers]
    beat_at = 0.0
    count = round(events / EVENTS_PER_CALL)
    pause = round(count * (1 - news))
    for number, call in enumerate(calls(count, seed)):
        if number == pause:
            for writer in everyone:
                writer.flush()
            yield
        while beat_at < call.accepted_at:
            broker.event_rows += heartbeats(beat_at)
            beat_at += 1.0
        _write_call(call, broker, clients[call.client], workers)
        if number % _BATCH == 0:
            for writer in everyone:
                writer.flush()
    for writer in everyone:
        writer.close()
    yield


def calls(count: int, seed: int) -> Iterator[Call]:
    """Yield calls by time of arrival."""
    rng = random.Random(seed)
    at = 0.0
    for number in range(count):
        at += rng.expovariate(CALLS_PER_S)
        client, chance = rng.randrange(len(CLIENTS)), rng.random()
        fate = "fails" if chance < _FAILS else ""
        fate = "redelivered" if 1 - chance < _REDELIVERED else fate
        wait = rng.expovariate(200.0) if rng.random() < 1 / 3 else 0.0
        took = rng.lognormvariate(-5.5, 0.8)  # median 4 ms, p99 26 ms
        yield Call(
            CLIENTS[client] + number.to_bytes(8, "big"),
            client,
            rng.randrange(len(WORKERS)),
            SERVICES[number % len(SERVICES)],
            at,
            at + wait,
            at + wait + took,
            fate,
        )


def heartbeats(at: float) -> Iterator[EventRow]:
    """Yield the heartbeat events of the broker, one per worker and second."""
    for name in WORKERS:
        for service in SERVICES:
            counts = {"value": 0.4, "busy": 1, "capacity": 16}
            yield EventRow(at, Kind.HEARTBEAT, service=service, worker=name, **counts)


def _write_call(call: Call, broker: Writer, client: Writer, workers: Sequence[Writer]) -> None:
    if call.fate:
        _write_failed_call(call, broker, client, workers)
        return
    at, given, ended = call.accepted_at, call.dispatched_at, call.ended_at
    deadline, name = at + _TIMEOUT_S, WORKERS[call.worker]
    rest = (deadline, call.call_id, call.service)
    broker.spans.append((at, given, ended, *rest, name, 100, 200))
    client.spans.append((at, at, ended + 2e-4, *rest, b"", 100, 200))
    workers[call.worker].spans.append((given, given + 1e-4, ended - 1e-4, *rest, name, 100, 200))


def _write_failed_call(
    call: Call, broker: Writer, client: Writer, workers: Sequence[Writer]
) -> None:
    """Write the events of a call that fails or is redelivered to a second worker."""
    at, given, ended = call.accepted_at, call.dispatched_at, call.ended_at
    deadline = at + _TIMEOUT_S
    who = call.worker
    attempt = 1

    def write(writer: Writer, instant: float, kind: Kind, **facts: Any) -> None:
        writer.event_rows.append(EventRow(instant, kind, call.call_id, call.service, **facts))

    write(client, at, Kind.ACCEPTED, value=deadline)
    write(client, at, Kind.SENT, attempt=1)
    write(broker, at, Kind.ACCEPTED, value=deadline)
    write(broker, given, Kind.DISPATCHED, worker=WORKERS[who], attempt=1)
    write(workers[who], given, Kind.DELIVERED, worker=WORKERS[who], attempt=1)
    if call.fate == "redelivered":
        silent = {"worker": WORKERS[who], "attempt": 1, "reason": "its worker was silent"}
        write(broker, given + _NOTICED_S, Kind.REDELIVERED, **silent)
        who, attempt = (who + 1) % len(WORKERS), 2
        given, ended = given + _NOTICED_S, ended + _NOTICED_S
        write(broker, given, Kind.DISPATCHED, worker=WORKERS[who], attempt=2)
        write(workers[who], given, Kind.DELIVERED, worker=WORKERS[who], attempt=2)
    end: dict[str, Any] = {"outcome": Status.OK}
    if call.fate == "fails":
        reason = f"ValueError: no such key: {call.accepted_at:.3f}"
        end = {"outcome": Status.FAILED, "error": "RemoteFailure", "reason": reason}
    there = {"worker": WORKERS[who], "attempt": attempt}
    write(workers[who], given, Kind.STARTED, **there)
    write(workers[who], ended, Kind.FINISHED, **there, **end)
    write(broker, ended, Kind.ANSWERED, **there, **end)
    write(client, ended, Kind.ANSWERED, attempt=1, **end)
