"""The audit of journals of the scalability protocols, whose messages carry no call id.

Only the client's journal is judged: events of workers and devices must not cause violations. The
tests need no Spark: from the engines' chronicles through real logs to verdicts on single requests.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from tests.support.sp_engines import INSTANCE, ORIGIN, DeviceBench, RepBench, ReqBench, tag, way

from requite.chronicle import WriterRole
from requite.engine import Started
from requite.journal import Journal
from requite.journal.event import Event
from requite.journal.reader import events
from requite.spark.watch.watched_request import KINDS, State, WatchedEvent, WatchedRequest
from requite.story.vocabulary import BROKER, CLIENT


class Chain:
    """A client, a device and a worker, each with a journal."""

    def __init__(self, folder: Path) -> None:
        self.journals = [
            Journal(folder, WriterRole.CLIENT, ORIGIN),
            Journal(folder, WriterRole.DEVICE, b"a-device"),
            Journal(folder, WriterRole.WORKER, INSTANCE),
        ]
        for journal in self.journals:
            journal.start()
        self.client = ReqBench(chronicle=self.journals[0].chronicle, attempt_timeout=1.0)
        self.device = DeviceBench(chronicle=self.journals[1].chronicle)
        self.worker = RepBench(chronicle=self.journals[2].chronicle)
        self.client.join("device")
        self.device.front("client")
        self.device.back("worker")
        self.worker.join("device")

    def carry(self) -> None:
        """Deliver all messages between the engines, until none is in flight."""
        way_of = {
            ("client", "device"): (self.client, self.device, "client"),
            ("device", "worker"): (self.device, self.worker, "device"),
            ("worker", "device"): (self.worker, self.device, "worker"),
            ("device", "client"): (self.device, self.client, "device"),
        }
        while self.client.sent or self.device.sent or self.worker.sent:
            for name, bench in (
                ("client", self.client),
                ("device", self.device),
                ("worker", self.worker),
            ):
                sent, bench.sent = bench.sent, []
                for message in sent:
                    _, other, by = way_of[name, message.peer]
                    other.say(by, message.payload)

    def serve(self) -> None:
        """Finish all running handlers."""
        for job in list(self.worker.running):
            self.worker.feed(Started(job))
            self.worker.finish(job, b"done")

    def advance(self, seconds: float) -> None:
        """Advance the clocks of all engines."""
        for bench in (self.client, self.device, self.worker):
            bench.advance(seconds)

    def close(self) -> None:
        """Close the journals, which writes all events."""
        for journal in self.journals:
            journal.close()


def judge(found: list[Event]) -> dict[str, State | object]:
    """Return the verdict on each request, from the events that the streaming audit uses."""
    cases: dict[str, WatchedRequest] = defaultdict(WatchedRequest)
    for event in found:
        if event.request_id and event.role in (BROKER, CLIENT) and event.kind in KINDS:
            facts = {name: getattr(event, name, None) for name in WatchedEvent._fields}
            facts["ts"] = round(event.ts.timestamp() * 1e6)
            facts["deadline"] = None
            cases[event.request_id].add(WatchedEvent(**facts), event.service)
    return {request_id: case.judge() for request_id, case in cases.items()}


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path)


def test_every_call_ends_once_and_causes_no_violation(chain: Chain, tmp_path: Path) -> None:
    for token in range(5):  # without incidents
        chain.client.submit(token)
    chain.carry()
    chain.serve()
    chain.carry()
    chain.client.submit("slow")  # sent twice, answered twice
    chain.carry()
    chain.advance(1.5)
    chain.carry()
    chain.serve()
    chain.carry()
    chain.client.submit("late", timeout=0.5)  # times out before its reply arrives
    chain.carry()
    chain.advance(0.6)
    chain.serve()
    chain.carry()
    chain.client.submit("cancelled")
    chain.client.cancel("cancelled")
    chain.carry()
    chain.serve()
    chain.device.say("worker", way(1) + tag(1))  # a reply that no client waits for
    chain.carry()
    chain.advance(1)
    chain.close()

    found = list(events(tmp_path))
    assert {event.role for event in found} == {"client", "device", "worker"}
    assert all(event.raw is None for event in found)
    verdicts = judge(found)
    assert len(verdicts) == 8
    assert set(verdicts.values()) == {State.ENDED}
    assert all(bytes.fromhex(request_id).startswith(ORIGIN) for request_id in verdicts)


def test_a_call_of_a_killed_client_is_open(chain: Chain, tmp_path: Path) -> None:
    chain.client.submit(1)
    chain.carry()
    chain.advance(0.2)  # its acceptance is in the journal, its outcome never is
    chain.serve()
    chain.close()
    assert set(judge(list(events(tmp_path))).values()) == {State.OPEN}


def test_events_of_workers_and_devices_are_no_acceptances_and_no_outcomes(
    chain: Chain, tmp_path: Path
) -> None:
    chain.client.submit(1)
    chain.carry()
    chain.worker.lose("device")
    chain.worker.join("device")
    chain.serve()
    chain.advance(1.2)
    chain.carry()
    chain.advance(1)
    chain.close()
    for event in events(tmp_path):
        assert event.role == CLIENT or event.kind not in KINDS
        assert event.role != "device" or event.request_id is None
